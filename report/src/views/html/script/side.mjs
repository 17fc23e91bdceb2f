// The panel beside the views: the function that was picked, with its numbers, its neighbours, and what can be done.

import { bar } from './bar.mjs'
import { button, element } from './element.mjs'
import { shortened } from './names.mjs'

/** Neighbours of a function, and lines of its source, that are listed. */
export const LISTED = 6

export class Side {
  /** `picked` gets the group of a neighbour that was clicked on. */
  constructor(picked) {
    this.picked = picked
    this.element = element('aside', { class: 'picked', 'aria-label': 'Selected function' })
  }

  /**
   * `facts` are pairs of a term and a text; `lists` have a title and rows of `{group, name, text, part, own}`, parts of
   * one; `does` are buttons.
   */
  draw({ name, module, facts = [], lists, does = [] }) {
    const terms = facts.map(([term, text]) => element('div', {}, element('dt', {}, term), element('dd', {}, text)))
    const title = element('h3', { 'aria-live': 'polite' }, element('bdi', { title: name }, shortened(name)))
    if (module) title.append(' ', element('i', {}, module))
    this.element.replaceChildren(
      title,
      ...(terms.length ? [element('dl', {}, ...terms)] : []),
      ...(does.length ? [element('div', { class: 'does' }, ...does)] : []),
      ...lists.filter(([, rows]) => rows.length).flatMap(([text, rows]) => [
        element('h4', {}, text),
        element('div', { class: 'list' }, ...rows.map(row => this.row(row))),
      ]),
    )
  }

  row({ group, name, text, part, own = 0, act }) {
    const row = button('', act ?? (() => this.picked(group)), { title: name })
    row.append(element('bdi', {}, shortened(name)), element('span', {}, text), bar(part, own, 1))
    return row
  }
}
