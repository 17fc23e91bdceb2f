// Tabs: one panel at a time, by the pattern that readers of screens know. Arrows, Home and End go from tab to tab.

import { button, element } from './element.mjs'

export class Tabs {
  /**
   * `panels` are `[name, title, elements]`; `chosen` gets the name of the tab that was asked for. `tools` share a bar with
   * the tabs, and `side` stands beside the panels.
   */
  constructor(panels, { chosen, tools, side }) {
    this.panels = panels
    this.buttons = panels.map(([name, title]) =>
      button(title, () => chosen(name), { role: 'tab', id: `tab-${name}`, 'aria-controls': `panel-${name}` }),
    )
    const go = event => {
      const at = this.buttons.indexOf(document.activeElement)
      const count = this.buttons.length
      const next = { ArrowRight: at + 1, ArrowLeft: at + count - 1, Home: 0, End: count - 1 }[event.key]
      if (at < 0 || next === undefined) return
      event.preventDefault()
      this.buttons[next % count].focus()
      chosen(panels[next % count][0])
    }
    const list = element('div', { role: 'tablist', 'aria-label': 'Views', onkeydown: go }, ...this.buttons)
    this.contents = panels.map(([name, , parts]) =>
      element('div', { role: 'tabpanel', id: `panel-${name}`, 'aria-labelledby': `tab-${name}`, class: 'panel' }, ...parts),
    )
    const bar = element('div', { class: 'toolbar' }, list, ...tools)
    this.element = element('div', { class: 'views' }, bar, element('div', { class: 'work' }, ...this.contents, side))
  }

  /** Shows a panel; the first one where there is none of that name. */
  show(name) {
    const found = this.panels.findIndex(([one]) => one === name)
    const at = Math.max(0, found)
    this.buttons.forEach((one, index) => {
      one.setAttribute('aria-selected', index === at)
      one.setAttribute('tabindex', index === at ? 0 : -1)
    })
    this.contents.forEach((one, index) => (one.hidden = index !== at))
    return this.panels[at][0]
  }
}
