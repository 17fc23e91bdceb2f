// The filters of stacks and frames: regular expressions, and what is wrong with one.

import { element, menu } from './element.mjs'
import { expression } from './selection.mjs'

/** Name, title, what it does. */
export const FILTERS = [
  ['focus', 'Focus', 'only stacks that have a function that matches'],
  ['ignore', 'Ignore', 'no stacks that have one'],
  ['hide', 'Hide', 'functions that are left out of their stacks'],
]

export class Filters {
  /** `change` is told what was written. */
  constructor(change) {
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
    this.element = menu('Filter', [element('div', { class: 'filters', role: 'search' }, ...FILTERS.map(input))])
  }

  /** Shows what is looked at; whether all of it can be understood. */
  draw(look) {
    let error = null
    const used = FILTERS.filter(([name]) => look[name]).length
    this.element.firstElementChild.textContent = used ? `Filter (${used})` : 'Filter'
    for (const [name, input] of this.inputs) {
      if (document.activeElement !== input) input.value = look[name]
      const wrong = wrongWith(look[name])
      input.setAttribute('aria-invalid', !!wrong)
      error ??= wrong
    }
    this.wrong.hidden = !error
    this.wrong.textContent = error ?? ''
    return !error
  }
}

/** What is wrong with an expression, or null. */
function wrongWith(text) {
  try {
    expression(text)
    return null
  } catch (error) {
    return error.message
  }
}
