// Names that try to leave their place: to run a script, to load something, to close an element, a
// string, a comment or a CDATA section, to turn the direction of writing, or to be too long.

const RUN = 'window.pwned=1'

export const NAMES = [
  `<script>${RUN}</script>`,
  `"><script>${RUN}</script>`,
  `' onload='${RUN}' x='`,
  `]]><script>${RUN}</script>`,
  `--><script>${RUN}</script><!--`,
  `</title></text><image href="http://127.0.0.1:1/x" onerror="${RUN}"/>`,
  `&lt;script&gt;${RUN}&lt;/script&gt;`,
  `'+(${RUN})+'\${${RUN}}\\u0027`,
  `core::iter::${'Map<Filter<Zip<Chain<'.repeat(60)}u8${'>>>>'.repeat(60)}::next`,
  '网络接收_フレーム처리_ＷＩＤＥ',
  'שלום_עולם و_مرحبا',
  'e\u0301\u0302\u0303\u0304 Zalgo\u0336\u0335 👩‍👩‍👧‍👦 \u202eolleh',
  'W'.repeat(60),
]

/** The name of the recording and, with a slash, of what was recorded: long too. */
export const HOSTILE_NAME = `<script>${RUN}<&">'${'网络-very-long-'.repeat(11)}`

/** Samples in the form of `perf script`: a thread for two thirds of them, and another. */
export function hostileText(seed) {
  const samples = Array.from({ length: 300 }, (_, number) => {
    const deep = NAMES.slice(0, 3 + ((number * 7 + seed) % NAMES.length))
    const leaf = NAMES[(number * number + seed) % NAMES.length]
    const seconds = (number * 0.01).toFixed(9)
    const frames = [leaf, ...deep.reverse(), 'main'].map(
      (name, depth) => `\t${(0x1000 + depth).toString(16)} ${name}+0x10 (/x/<b onload="${RUN}">)`,
    )
    const heading = `<script>${RUN}</script> ${number % 3 ? 11 : 12} ${seconds}: cycles:`
    return [heading, ...frames, '', ''].join('\n')
  })
  return samples.join('')
}
