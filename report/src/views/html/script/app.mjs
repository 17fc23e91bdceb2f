// What both pages have in common: a look that the address keeps, a search, a line of status, and keys.

import { button, element, once } from './element.mjs'
import { helped } from './help.mjs'
import { addressOf, lookOf } from './look.mjs'

export class App {
  /** `tasks` are how many A and B have. */
  constructor(opening, tasks) {
    Object.assign(this, { opening, tasks })
    this.detail = element('p', { id: 'detail', role: 'status' })
    this.told = text => (this.detail.textContent = text)
    this.legend = element('p', { class: 'legend' })
    this.hint = element('p', { class: 'hint' })
    this.status = element('div', { class: 'status' }, this.detail, this.hint, this.legend)
    this.showAll = button('Show all', () => this.reset(), { title: 'No selection, no filters, no search' })
    this.find = document.getElementById('find')
    this.find.addEventListener('input', () => this.change({ search: this.find.value }))
    this.find.after(helped())
    this.matches = document.getElementById('matches')
    this.redraw = once(() => this.draw())
    window.addEventListener('hashchange', () => {
      if (location.hash.slice(1) !== addressOf(this.look, opening)) this.read()
    })
    document.addEventListener('keydown', event => this.shortcut(event))
  }

  /** Looks at what the address says. */
  read() {
    this.look = lookOf(location.hash, this.opening, this.tasks)
    this.arrived()
    this.draw()
  }

  arrived() {}

  change(changed) {
    this.look = { ...this.look, ...changed }
    const address = addressOf(this.look, this.opening)
    clearTimeout(this.keep)
    this.keep = setTimeout(() => history.replaceState(null, '', `#${address}`), changed.tab ? 0 : 150)
    this.redraw()
  }

  reset() {
    this.change({ ...this.opening, tab: this.look.tab })
  }

  /** What is drawn beside the views. */
  drawFrame() {
    const { look, opening, find } = this
    if (find.value !== look.search) find.value = look.search
    this.matches.textContent = ''
    this.showAll.disabled = addressOf({ ...look, tab: opening.tab }, opening) === ''
  }

  shortcut(event) {
    const { tagName, type } = event.target
    const isText = /^(INPUT|SELECT|TEXTAREA)$/.test(tagName) && type !== 'checkbox'
    if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey) return
    const acts = {
      '/': () => this.find.focus(),
      '?': () => document.getElementById('help').showModal(),
      Escape: () => this.reset(),
    }
    if (isText || !acts[event.key] || document.querySelector('dialog[open]')) return
    event.preventDefault()
    acts[event.key]()
  }
}
