// What stands between the time line and the views: what is selected in a line, filters, forms, copies.

import { moment, phrase, share } from './amounts.mjs'
import { COLOURINGS, legendOf } from './colours.mjs'
import { button, choice, element, swatch, toggle } from './element.mjs'
import { foldedText, speedscope } from './folded.mjs'
import { GROUPINGS } from './model.mjs'

const FILTERS = [
  ['focus', 'Focus', 'only stacks that have a function that matches'],
  ['ignore', 'Ignore', 'no stacks that have one'],
  ['hide', 'Hide', 'functions that are left out of their stacks'],
]

export class Toolbar {
  constructor(model, { change, reset }) {
    Object.assign(this, { model, change })
    this.summary = element('p', { class: 'selected', 'aria-live': 'polite' })
    this.flags = element('code')
    this.wrong = element('p', { class: 'wrong', role: 'alert', hidden: true })
    this.inputs = new Map()
    const input = ([name, title, about]) => {
      const text = element('input', {
        type: 'search',
        spellcheck: 'false',
        autocomplete: 'off',
        maxlength: 200,
        placeholder: 'regular expression',
        title: about,
        oninput: event => change({ [name]: event.target.value }),
      })
      this.inputs.set(name, text)
      return element('label', {}, `${title} `, text)
    }
    const filters = element('div', { class: 'filters', role: 'search' }, ...FILTERS.map(input))
    this.forms = element('div', { class: 'forms' })
    this.legend = element('p', { class: 'legend' })
    const does = element('div', { class: 'does' })
    does.append(
      button('Show all', reset, { title: 'No selection, no filters' }),
      button('Copy as folded text', () => this.copy()),
      button('Save for speedscope', () => this.save()),
    )
    this.element = element('div', { class: 'toolbar' }, this.summary, filters, this.wrong, element('div', { class: 'row' }, this.forms, does), this.legend)
  }

  /** Says what is selected; `error` is what is wrong with a filter. */
  draw(error) {
    const { look, profile } = this.model
    for (const [name, input] of this.inputs) {
      if (document.activeElement !== input) input.value = look[name]
      input.setAttribute('aria-invalid', !!error && error.filter === name)
    }
    this.wrong.hidden = !error
    this.wrong.textContent = error?.message ?? ''
    this.drawForms()
    if (error) return
    const { all } = this.model.weights()
    const { unit, counted, tick_ns } = profile.about
    const isPart = look.from > 0 || look.to < Infinity
    const end = Math.min(look.to, this.model.end)
    const step = ((end - look.from) * tick_ns) / 1000
    const span = isPart
      ? `from ${moment(look.from * tick_ns, step)} to ${moment(end * tick_ns, step)}`
      : 'the whole recording'
    const tasks = look.tasks ? `, ${look.tasks.size} of ${profile.about.tasks.length} tracks` : ''
    this.summary.replaceChildren(
      element('b', {}, phrase(all, unit)),
      `, ${share(all, counted)} of all: ${span}${tasks}. `,
      this.flags,
    )
    this.flags.textContent = this.asFlags().join(' ')
  }

  /** The flags of `uniprof report` that select the same. */
  asFlags() {
    const { look, profile } = this.model
    const { tick_ns, tasks } = profile.about
    const seconds = ticks => `${((ticks * tick_ns) / 1e9).toFixed(tick_ns < 1000 ? 9 : 6)}s`
    const quoted = text => `'${text.replaceAll("'", "'\\''")}'`
    const flags = []
    if (look.from > 0) flags.push(`--from ${seconds(look.from)}`)
    if (look.to < Infinity) flags.push(`--to ${seconds(look.to)}`)
    for (const task of look.tasks ?? []) flags.push(`--vcpu ${tasks[task][2]}`)
    for (const [name] of FILTERS) if (look[name]) flags.push(`--${name} ${quoted(look[name])}`)
    if (!look.inlines) flags.push('--no-inlines')
    return flags
  }

  drawForms() {
    const { look, hasLines } = this.model
    const key = [look.by, look.colour, look.invert, look.fold, look.icicle, look.inlines].join()
    if (this.drawn === key) return
    this.drawn = key
    const focused = document.activeElement?.dataset?.form
    const set = name => value => this.change({ [name]: value })
    const by = GROUPINGS.filter(one => one !== 'line' || hasLines).map(one => [one, one])
    const made = [
      ['by', choice('By', by, look.by, set('by'))],
      ['colour', choice('Colour', COLOURINGS, look.colour, set('colour'))],
      ['invert', toggle('Invert', look.invert, set('invert'))],
      ['icicle', toggle('Icicle', look.icicle, set('icicle'))],
      ['fold', toggle('Fold recursion', look.fold, set('fold'))],
      ['inlines', toggle('Inlined functions', look.inlines, set('inlines'))],
    ]
    for (const [name, label] of made) label.querySelector('input, select').dataset.form = name
    this.forms.replaceChildren(...made.map(([, label]) => label))
    if (focused) this.forms.querySelector(`[data-form="${focused}"]`)?.focus()
    const legend = legendOf(look.colour).map(([name, colour]) => swatch(name, colour))
    this.legend.replaceChildren(...legend.flat())
  }

  text() {
    const { names } = this.model.groups()
    return foldedText(this.model.tree(), group => names[group], this.model.profile.about.unit)
  }

  async copy() {
    const text = this.text()
    const area = element('textarea', { readonly: true, 'aria-label': 'Folded text' })
    area.value = text
    try {
      await navigator.clipboard.writeText(text)
    } catch {
      // Pages from a file may not; the old way may.
      this.element.append(area)
      area.select()
      document.execCommand('copy')
      area.remove()
    }
  }

  save() {
    const { about } = this.model.profile
    const made = speedscope(this.model.tree(), group => this.model.about(group), { name: about.title, unit: about.unit })
    const file = URL.createObjectURL(new Blob([JSON.stringify(made)], { type: 'application/json' }))
    element('a', { href: file, download: 'selection.speedscope.json' }).click()
    setTimeout(() => URL.revokeObjectURL(file), 10_000)
  }
}
