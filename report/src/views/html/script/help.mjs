// What pointer and keys do, behind a question mark.

import { button, element } from './element.mjs'

const HELP = [
  ['Time', 'Drag', 'selects; a click selects all again'],
  ['', 'Wheel, + −', 'shows less or more time'],
  ['', '← →, with Shift', 'move the selection, make it longer or shorter'],
  ['', 'Click on a name', 'selects that thread; with Ctrl one more'],
  ['Flame graph', 'Click, Enter', 'selects a function and widens its box; the same again shows all'],
  ['', '← ↑ → ↓', 'go from box to box'],
  ['', 'Wheel, Page Up, Page Down', 'show more levels'],
  ['Tables and trees', 'Click on a row, Enter', 'selects a function'],
  ['', '← →', 'fold and unfold calls'],
  ['Everywhere', 'Escape', 'shows all again'],
  ['', '/', 'searches: a function, or a regular expression'],
  ['', '?', 'shows this'],
  ['', 'The address', 'keeps what you look at: a link shows the same'],
]

/** The button that opens it. */
export function helped() {
  const rows = HELP.map(([where, key, does]) =>
    element('tr', {}, element('th', { scope: 'row' }, where), element('td', {}, key), element('td', {}, does)),
  )
  const close = button('Close', () => dialog.close(), { autofocus: true })
  const dialog = element('dialog', { id: 'help', 'aria-label': 'Keys' }, element('table', {}, element('tbody', {}, ...rows)), close)
  document.body.append(dialog)
  return button('?', () => dialog.showModal(), { class: 'help', title: 'Keys', 'aria-label': 'Keys' })
}
