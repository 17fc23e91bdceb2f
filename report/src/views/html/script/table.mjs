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
/** Rows on paper: page.css hides the later ones. */
const ROWS_PRINTED = 60

/** A table without rows, as pages of one profile hold it. */
export function emptyTable() {
  const head = (text, attributes) => element('th', attributes, text)
  const number = { class: 'number' }
  const heads = [
    head('Self', { ...number, 'data-key': 'self' }),
    head('Self %', number),
    head('Total', { ...number, 'data-key': 'total' }),
    head('Total %', number),
    head('', { class: 'bar' }),
    head('Function', { class: 'function', 'data-key': 'function' }),
    head('Module', { class: 'module', 'data-key': 'module' }),
  ]
  return element('table', { id: 'top' }, element('thead', {}, element('tr', {}, ...heads)), element('tbody'))
}

export class Table {
  /** `change` is told how to sort, `picked` which function was asked for. */
  constructor(table, { change, picked }) {
    this.picked = picked
    this.body = table.tBodies[0]
    this.body.addEventListener('click', event => this.pick(event.target.closest('tr')))
    this.note = element('p', { class: 'note' })
    this.printed = element('p', { class: 'note print' }, `Printed are the first ${ROWS_PRINTED} rows.`)
    this.parts = [table, this.note, this.printed]
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

  /** Shows the rows that have what is sought, or all; marks the selected one. */
  draw({ rows, all, look, unit, about, found }) {
    const of = [rows, all, look.search, look.sort, look.order]
    if (of.some((one, at) => one !== this.of?.[at])) this.fill({ rows, all, look, unit, about, found })
    Object.assign(this, { of, selected: look.function })
    for (const row of this.body.rows) this.mark(row)
  }

  /** Marks a row if it is the selected one's. */
  mark(row) {
    if (Number(row.dataset.group) === this.selected) row.setAttribute('aria-current', 'true')
    else row.removeAttribute('aria-current')
    return row
  }

  fill({ rows, all, look, unit, about, found }) {
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
    const made = (from, to) => shown.slice(from, to).map(row => this.mark(this.row(row, { all, unit, about })))
    this.body.replaceChildren(...made(0, ROWS_FIRST))
    clearTimeout(this.rest)
    this.rest = setTimeout(() => this.body.append(...made(ROWS_FIRST, ROWS_MAX)), REST_MS)
    this.printed.hidden = shown.length <= ROWS_PRINTED
    const more = shown.length - ROWS_MAX
    const none = rows.length ? 'No function has what is sought.' : 'Nothing is in the selection.'
    this.note.textContent = more > 0 ? `${more} more are not shown: search for them.` : shown.length ? '' : none
  }

  pick(row) {
    if (row) this.picked(Number(row.dataset.group))
  }

  row({ label, own, total, name }, { all, unit, about }) {
    const { module, flags } = about(label)
    const number = text => element('td', { class: 'number' }, text)
    const shown = button('', null, { class: 'name' })
    shown.append(element('bdi', {}, shortened(name)))
    const mark = flags & INLINED ? [' ', element('i', {}, 'inlined')] : []
    return element(
      'tr',
      { 'data-group': label },
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
