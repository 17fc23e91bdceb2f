// What stands between the time line and the views of a report: what is selected in a line, filters, forms, copies.

import { gzipped } from './bytes.mjs'
import { COLOURINGS, legendOf } from './colours.mjs'
import { button, choice, element, swatch, toggle } from './element.mjs'
import { Filters } from './filters.mjs'
import { foldedText, speedscope } from './folded.mjs'
import { GROUPINGS } from './model.mjs'
import { pprof } from './pprof.mjs'
import { flagsOf, summaryOf } from './summary.mjs'

export class Toolbar {
  constructor(model, { change, reset }) {
    Object.assign(this, { model, change })
    this.summary = element('p', { class: 'selected', 'aria-live': 'polite' })
    this.flags = element('code')
    this.filters = new Filters(change)
    this.forms = element('div', { class: 'forms' })
    this.legend = element('p', { class: 'legend' })
    const does = element('div', { class: 'does' })
    does.append(
      button('Show all', reset, { title: 'No selection, no filters' }),
      button('Copy as folded text', () => this.copy()),
      button('Save for speedscope', () => this.saveForSpeedscope()),
      button('Save for pprof', () => this.saveForPprof()),
    )
    const row = element('div', { class: 'row' }, this.forms, does)
    const parts = [this.summary, this.filters.element, this.filters.wrong, row, this.legend]
    this.element = element('div', { class: 'toolbar' }, ...parts)
  }

  /** Says what is selected; whether the filters can be understood. */
  draw() {
    const isSound = this.filters.draw(this.model.look)
    this.drawForms()
    if (!isSound) return false
    this.flags.textContent = flagsOf(this.model).join(' ')
    this.summary.replaceChildren(...summaryOf(this.model), '. ', this.flags)
    return true
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

  saveForSpeedscope() {
    const { about } = this.model.profile
    const made = speedscope(this.model.tree(), group => this.model.about(group), { name: about.title, unit: about.unit })
    save('selection.speedscope.json', 'application/json', JSON.stringify(made))
  }

  async saveForPprof() {
    const { model } = this
    const packed = await gzipped(pprof(model.profile, model.look, model.filter()))
    save('selection.pb.gz', 'application/octet-stream', packed)
  }
}

/** Gives the browser's user a file. */
function save(name, type, content) {
  const file = URL.createObjectURL(new Blob([content], { type }))
  element('a', { href: file, download: name }).click()
  setTimeout(() => URL.revokeObjectURL(file), 10_000)
}
