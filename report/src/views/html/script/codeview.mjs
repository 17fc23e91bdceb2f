// Source and instructions of a function, each line with what it weighs in the selection.

import { amount, phrase, share } from './amounts.mjs'
import { bar } from './bar.mjs'
import { choice, element } from './element.mjs'
import { Forms } from './forms.mjs'
import { shortened } from './names.mjs'

export class CodeView {
  /** `change` is told in which form code is looked at, `picked` of which function, by one of its labels. */
  constructor(code, { change, picked }) {
    Object.assign(this, { code, change, picked })
    this.forms = new Forms()
    this.title = element('h3', { class: 'around' })
    this.body = element('tbody')
    const head = (text, kind) => element('th', { class: kind, scope: 'col' }, text)
    const numbers = ['Self', 'Self %', 'Total', 'Total %'].map(text => head(text, 'number'))
    this.place = head('Line', 'number')
    const heads = element('tr', {}, ...numbers, head('', 'bar'), this.place, head('Text', 'text'))
    this.table = element('table', { class: 'code' }, element('thead', {}, heads), this.body)
    this.note = element('p', { class: 'note' })
    this.element = element('div', {}, this.forms.element, this.title, element('div', { class: 'scroll' }, this.table), this.note)
  }

  /**
   * Shows the function with this number, or says that it has no code; `weigh(number, form)` weighs its spots, `choices`
   * are numbers of functions to choose from.
   */
  draw({ number, choices, look, all, unit, row, weigh }) {
    const { code } = this
    const forms = number === null ? [] : code.forms(number)
    const form = forms.includes(look.code) ? look.code : forms[0]
    this.forms.draw([number, form, ...choices].join(), () => this.made(number, forms, form, choices))
    const one = number === null ? null : code.functions[number]
    this.table.hidden = !one
    this.table.className = `code ${form ?? ''}`
    this.place.textContent = form === 'instructions' ? 'Address' : 'Line'
    this.note.textContent = form === 'source' ? '' : code.missing.map(one => `${one}.`).join(' ')
    if (!one) {
      this.title.replaceChildren('Of what was picked neither source nor image was at hand, or too few samples have it.')
      return
    }
    const where = one.module ? ` [${one.module}]` : ''
    const numbers = row ? ` ${phrase(row.total, unit)} (${share(row.total, all)}), ${share(row.own, all)} in itself` : ''
    this.title.replaceChildren(element('bdi', {}, `${one.name}${where}`), numbers || ' nothing of it is in the selection')
    const { own, total } = weigh(number, form)
    const most = Math.max(...total, 1e-9)
    const rows = code.rows(number, form).map(shown => this.row(shown, { own, total, most, all, unit }))
    this.body.replaceChildren(...rows)
  }

  made(number, forms, form, choices) {
    const { functions } = this.code
    const listed = choices.includes(number) || number === null ? choices : [number, ...choices]
    const named = listed.map(one => [`${one}`, `${shortened(functions[one].name)}  [${functions[one].module}]`])
    const none = number === null ? [['', 'another function']] : []
    const pick = one => one && this.picked(functions[Number(one)].labels[0])
    const which = choice('Function', [...none, ...named], `${number ?? ''}`, pick)
    const how = choice('Show', forms.map(one => [one, one]), form, one => this.change({ code: one }))
    return [['function', which], ...(forms.length > 1 ? [['code', how]] : [])]
  }

  row({ heading, note, gap, line, spot, place, text }, { own, total, most, all, unit }) {
    if (heading !== undefined) {
      const more = note ? [' ', element('i', {}, note)] : []
      const told = element('th', { colspan: 7, scope: 'rowgroup' }, element('bdi', {}, heading), ...more)
      return element('tr', { class: 'heading' }, told)
    }
    if (gap) return element('tr', { class: 'gap' }, element('td', { colspan: 7 }, '…'))
    const blank = Array.from({ length: 4 }, () => element('td', { class: 'number' }))
    if (line !== undefined) {
      const told = element('td', { class: 'text', colspan: 2 }, element('i', {}, line), ' ', element('bdi', {}, text))
      return element('tr', { class: 'of' }, ...blank, element('td', { class: 'bar' }), told)
    }
    const [mine, everything] = spot === undefined ? [0, 0] : [own[spot], total[spot]]
    const number = weight => [
      element('td', { class: 'number' }, weight > 0 ? amount(weight, unit) : ''),
      element('td', { class: 'number' }, weight > 0 ? share(weight, all) : ''),
    ]
    return element(
      'tr',
      { class: everything > 0 ? 'weighs' : null },
      ...number(mine),
      ...number(everything),
      element('td', { class: 'bar' }, everything > 0 ? bar(everything, mine, most) : ''),
      element('td', { class: 'number place' }, place),
      element('td', { class: 'text' }, element('bdi', {}, text)),
    )
  }
}
