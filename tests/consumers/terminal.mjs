// What a terminal shows, as a picture: text with its colours goes in, SVG comes out, the same bytes each time.

const LETTER = 8.4
const LINE = 18
const MARGIN = 14
/** Foregrounds by their numbers in escape sequences. */
const COLOURS = { 1: '#ffffff', 31: '#f28b82', 32: '#81c995', 33: '#fdd663', 36: '#78d9ec' }
const [TEXT, BACK] = ['#d0d7de', '#161b22']

const escaped = text => text.replace(/[&<>]/gu, letter => ({ '&': '&amp;', '<': '&lt;', '>': '&gt;' })[letter])

/** Parts of a line, each with its colour. */
function* parts(line) {
  let colour = TEXT
  for (const piece of line.split(/(\x1b\[\d*m)/u)) {
    const escape = /^\x1b\[(\d*)m$/u.exec(piece)
    if (escape) colour = COLOURS[escape[1]] ?? TEXT
    else if (piece) yield [piece, colour]
  }
}

/** The picture of these lines, `columns` wide. */
export function picture(text, columns) {
  const lines = text.trimEnd().split('\n')
  const width = Math.ceil(columns * LETTER + 2 * MARGIN)
  const height = lines.length * LINE + 2 * MARGIN
  const rows = lines.map((line, number) => {
    const spans = [...parts(line)].map(([piece, colour]) => {
      const fill = colour === TEXT ? '' : ` fill="${colour}"`
      return `<tspan${fill}>${escaped(piece)}</tspan>`
    })
    return `<text x="${MARGIN}" y="${MARGIN + (number + 1) * LINE - 5}" xml:space="preserve">${spans.join('')}</text>`
  })
  return `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}" viewBox="0 0 ${width} ${height}">
<rect width="100%" height="100%" rx="8" fill="${BACK}"/>
<g font-family="ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace" font-size="14" fill="${TEXT}">
${rows.join('\n')}
</g>
</svg>
`
}
