// What stands beside the tabs of a report: what is selected in a line, filters, the controls of a view, copies.

import { gzipped } from './bytes.mjs'
import { COLOURINGS } from './colours.mjs'
import { button, choice, element, menu, toggle } from './element.mjs'
import { Filters } from './filters.mjs'
import { foldedText, speedscope } from './folded.mjs'
import { Forms } from './forms.mjs'
import { GROUPINGS } from './model.mjs'
import { pprof } from './pprof.mjs'
import { flagsOf, summaryOf } from './summary.mjs'

/** Which views each control matters to. */
const MATTERS = {
  by: ['flame', 'functions', 'sandwich', 'calls', 'chart'],
  colour: ['flame', 'sandwich', 'chart'],
  invert: ['flame', 'calls'],
  icicle: ['flame'],
  fold: ['flame', 'functions', 'sandwich', 'calls'],
  inlines: ['flame', 'functions', 'sandwich', 'calls', 'chart'],
}

export class Toolbar {
  constructor(model, { change, showAll }) {
    Object.assign(this, { model, change })
    this.summary = element('p', { class: 'selected', 'aria-live': 'polite' })
    this.flags = element('code')
    this.filters = new Filters(change)
    this.forms = new Forms()
    this.save = menu('Save', [
      button('Save for speedscope', () => this.saveForSpeedscope()),
      button('Save for pprof', () => this.saveForPprof()),
      button('Copy as folded text', () => this.copy()),
    ])
    const does = element('div', { class: 'does' }, this.filters.element, this.save, showAll)
    this.parts = [does, this.forms.element, this.summary, this.filters.wrong]
  }

  /** Says what is selected, with the controls of a view; whether the filters can be understood. */
  draw(tab) {
    const isSound = this.filters.draw(this.model.look)
    this.drawForms(tab)
    if (!isSound) return false
    this.flags.textContent = flagsOf(this.model).join(' ')
    this.summary.replaceChildren(...summaryOf(this.model), '. ', this.flags)
    return true
  }

  drawForms(tab) {
    const { look, hasLines } = this.model
    const by = GROUPINGS.filter(one => one !== 'line' || hasLines).map(one => [one, one])
    const controls = {
      by: set => choice('By', by, look.by, set),
      colour: set => choice('Colour', COLOURINGS, look.colour, set),
      invert: set => toggle('Invert', look.invert, set),
      icicle: set => toggle('Icicle', look.icicle, set),
      fold: set => toggle('Fold recursion', look.fold, set),
      inlines: set => toggle('Inlined', look.inlines, set),
    }
    const shown = Object.keys(controls).filter(name => MATTERS[name].includes(tab))
    const make = name => [name, controls[name](value => this.change({ [name]: value }))]
    this.forms.draw(shown.map(name => `${name} ${look[name]}`).join(), () => shown.map(make))
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
      this.save.append(area)
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
