// Controls that are made anew when what they show changes; whichever has the keyboard keeps it.

import { element } from './element.mjs'

export class Forms {
  constructor() {
    this.element = element('div', { class: 'forms' })
  }

  /** Shows what `make` makes, labels by their names, unless `key` is that of what is shown. */
  draw(key, make) {
    if (this.drawn === key) return
    this.drawn = key
    const focused = document.activeElement?.dataset?.form
    const made = make()
    for (const [name, label] of made) label.querySelector('input, select').dataset.form = name
    this.element.replaceChildren(...made.map(([, label]) => label))
    if (focused) this.element.querySelector(`[data-form="${focused}"]`)?.focus()
  }
}
