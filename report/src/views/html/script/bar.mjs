// The bar of a table's row: what is in a function, and what of it is in itself, as parts of all.

const SVG = 'http://www.w3.org/2000/svg'

/** A bar; SVG has its widths as attributes, which need no style. */
export function bar(total, own, all) {
  const made = document.createElementNS(SVG, 'svg')
  for (const [key, value] of [['viewBox', '0 0 100 8'], ['preserveAspectRatio', 'none'], ['aria-hidden', 'true']]) {
    made.setAttribute(key, value)
  }
  for (const [kind, weight] of [['total', total], ['self', own]]) {
    const rect = document.createElementNS(SVG, 'rect')
    rect.setAttribute('class', kind)
    rect.setAttribute('width', ((weight * 100) / (all || 1)).toFixed(2))
    rect.setAttribute('height', '8')
    made.append(rect)
  }
  return made
}
