// The table of functions of what is selected, in the place of the fixed one: the same cells in the same form.

import { amount, share } from './amounts.mjs'
import { bar } from './bar.mjs'
import { button, element } from './element.mjs'
import { compare } from './functions.mjs'
import { shortened } from './names.mjs'
import { INLINED } from './profile.mjs'

/** Rows that are shown, and those that are made at once: the others follow when the selection rests. */
const ROWS_MAX = 1000
const ROWS_FIRST = 100
const REST_MS = 250

/** A table without rows, as pages of one profile hold it. */
export function emptyTable() {
  const head = (text, attributes) => element('th', attributes, text)
  const number = { class: 'number' }
  const heads = [
    head('Self', { ...number, 'data-key': 'self' }),
    head('%', number),
    head('Total', { ...number, 'data-key': 'total' }),
    head('%', number),
    head('', { class: 'bar' }),
    head('Function', { class: 'function', 'data-key': 'function' }),
    head('Module', { class: 'module', 'data-key': 'module' }),
  ]
  return element('table', { id: 'top' }, element('thead', {}, element('tr', {}, ...heads)), element('tbody'))
}

export class Table {
  /** `change` is told how to sort, `picked` which function was asked for. */
  constructor(table, { change, picked }) {
    Object.assign(this, { table, picked })
    this.body = table.tBodies[0]
    this.note = element('p', { class: 'note' })
    this.headings = [...table.querySelectorAll('th[data-key]')]
    for (const heading of this.headings) {
      const key = heading.dataset.key
      const sort = () => {
        const isNumber = key === 'self' || key === 'total'
        const [first, second] = isNumber ? ['descending', 'ascending'] : ['ascending', 'descending']
        change({ sort: key, order: heading.getAttribute('aria-sort') === first ? second : first })
      }
      heading.replaceChildren(button(heading.textContent, sort))
    }
  }

  /** Shows the rows that `found` finds, or all. */
  draw({ rows, all, look, unit, about, found }) {
    for (const heading of this.headings) {
      if (heading.dataset.key === look.sort) heading.setAttribute('aria-sort', look.order)
      else heading.removeAttribute('aria-sort')
    }
    const sign = look.order === 'ascending' ? 1 : -1
    const key = {
      self: row => row.own,
      total: row => row.total,
      function: row => row.name,
      module: row => about(row.label).module,
    }[look.sort]
    const shown = found ? rows.filter(row => found(row.label)) : [...rows]
    if (key && (look.sort !== 'self' || look.order !== 'descending')) {
      shown.sort((a, b) => sign * compare(key(a), key(b)))
    }
    const made = (from, to) => shown.slice(from, to).map(row => this.row(row, { all, unit, about }))
    this.body.replaceChildren(...made(0, ROWS_FIRST))
    clearTimeout(this.rest)
    this.rest = setTimeout(() => this.body.append(...made(ROWS_FIRST, ROWS_MAX)), REST_MS)
    const more = shown.length - ROWS_MAX
    const none = rows.length ? 'No function has what is sought.' : 'Nothing is in the selection.'
    this.note.textContent = more > 0 ? `${more} more are not shown: search for them.` : shown.length ? '' : none
    return shown.length
  }

  row({ label, own, total, name }, { all, unit, about }) {
    const { module, flags } = about(label)
    const number = text => element('td', { class: 'number' }, text)
    const shown = button('', () => this.picked(label), { class: 'name' })
    shown.append(element('bdi', {}, shortened(name)))
    const mark = flags & INLINED ? [' ', element('i', {}, 'inlined')] : []
    return element(
      'tr',
      {},
      number(amount(own, unit)),
      number(share(own, all)),
      number(amount(total, unit)),
      number(share(total, all)),
      element('td', { class: 'bar' }, bar(total, own, all)),
      element('td', { class: 'function', title: shortened(name) === name ? null : name }, shown, ...mark),
      element('td', { class: 'module' }, module),
    )
  }
}
