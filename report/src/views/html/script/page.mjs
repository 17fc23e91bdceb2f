// The page of a report: its parts, and what is looked at, which the address keeps.

import { phrase, share } from './amounts.mjs'
import { CallTree } from './calltree.mjs'
import { CodeView } from './codeview.mjs'
import { button, element, once } from './element.mjs'
import { Flame } from './flame.mjs'
import { HeatMap } from './heatmap.mjs'
import { LOOK, addressOf, lookOf } from './look.mjs'
import { Model } from './model.mjs'
import { sought } from './selection.mjs'
import { Table } from './table.mjs'
import { Tabs } from './tabs.mjs'
import { TimeChart } from './timechart.mjs'
import { Toolbar } from './toolbar.mjs'
import { Tracks } from './tracks.mjs'

/** Levels of a widened box that an address keeps. */
const ZOOM_MAX = 200

export class Page {
  /** `code` is source and instructions, or null. */
  constructor(profile, code, place) {
    this.model = new Model(profile)
    this.code = code
    this.opening = { ...LOOK, ...profile.about.opening }
    this.detail = element('p', { id: 'detail', role: 'status' })
    const told = text => (this.detail.textContent = text)
    const change = changed => this.change(changed)
    const picked = group => this.pick(group)
    this.tracks = new Tracks(this.model, { change, told })
    this.toolbar = new Toolbar(this.model, { change, reset: () => this.change({ ...this.opening, tab: this.look.tab }) })
    this.table = new Table(document.getElementById('top'), { change, picked: group => this.turn(group) })
    this.flame = new Flame({ label: 'Flame graph', told, picked })
    // A path that is too long for an address is not kept.
    this.flame.widened = path => this.change({ zoom: path.length > ZOOM_MAX ? '' : path.join('.') })
    this.callers = new Flame({ label: 'Callers', told, picked })
    this.callees = new Flame({ label: 'Callees', told, picked })
    this.calls = new CallTree({ picked: group => this.turn(group) })
    this.chart = new TimeChart(this.model, { told, picked, order: this.tracks.order })
    this.heat = new HeatMap(this.model, { change, told })
    this.source = code && new CodeView(code, { change, picked: label => this.show(label) })
    this.picked = element('div', { class: 'picked', hidden: true })
    this.title = element('h3', { class: 'around' })
    const table = element('div', { class: 'scroll tall' }, this.table.table)
    const functions = element('div', {}, element('p', { class: 'lead' }, ABOUT_TABLE), table, this.table.note)
    const around = element('div', {}, this.title, this.callers.element, this.callees.element)
    this.tabs = new Tabs(
      [
        ['functions', 'Functions', functions],
        ['flame', 'Flame graph', this.flame.element],
        ['sandwich', 'Sandwich', around],
        ['calls', 'Call tree', this.calls.element],
        ...(code ? [['code', 'Source', this.source.element]] : []),
        ['chart', 'Flame chart', this.chart.element],
        ['heat', 'Heat map', this.heat.element],
      ],
      tab => this.change({ tab }),
    )
    place.append(
      element('h2', {}, 'Time'),
      this.tracks.element,
      this.tracks.legend,
      this.tracks.missing,
      this.tracks.more,
      this.toolbar.element,
      this.picked,
      this.tabs.element,
      this.detail,
    )
    this.find = document.getElementById('find')
    this.find?.addEventListener('input', () => this.change({ search: this.find.value }))
    this.redraw = once(() => this.draw())
    window.addEventListener('hashchange', () => {
      if (location.hash.slice(1) !== addressOf(this.look, this.opening)) this.read()
    })
    this.read()
  }

  /** Looks at what the address says. */
  read() {
    this.look = lookOf(location.hash, this.opening, [this.model.profile.about.tasks.length])
    this.keep = null
    if (this.find) this.find.value = this.look.search
    this.draw()
  }

  change(changed) {
    this.look = { ...this.look, ...changed }
    const { tab } = changed
    // Groups' numbers are of their grouping.
    if (changed.by) Object.assign(this.look, { function: null, zoom: '' })
    const address = addressOf(this.look, this.opening)
    clearTimeout(this.keep)
    this.keep = setTimeout(() => history.replaceState(null, '', `#${address}`), tab ? 0 : 150)
    this.redraw()
  }

  /** Something was picked: what can be done with it. */
  pick(group) {
    const { name } = this.model.about(group)
    const exact = `^${name.replace(/[\\^$.*+?()[\]{}|/]/g, '\\$&')}$`
    const does = ['focus', 'ignore', 'hide'].map(filter =>
      button(filter[0].toUpperCase() + filter.slice(1), () => this.change({ [filter]: exact })),
    )
    this.picked.hidden = false
    this.picked.replaceChildren(
      element('bdi', { title: name }, name),
      button('Callers and callees', () => this.turn(group)),
      ...(this.hasCode(group) ? [button('Source', () => this.change({ tab: 'code', function: group }))] : []),
      ...does,
    )
    if (this.look.tab === 'sandwich' && group !== this.look.function) this.turn(group)
    else this.look.function = group
  }

  /** Turns a function over: who called it, and what it called. */
  turn(group) {
    this.change({ tab: 'sandwich', function: group })
    this.pick(group)
  }

  /** Shows the source of the function of a label. */
  show(label) {
    const group = this.model.groups().groups[label]
    this.change({ tab: 'code', function: group })
    this.pick(group)
  }

  hasCode(group) {
    const label = this.model.labelOf(group)
    return !!this.code && label >= 0 && this.look.by !== 'module' && this.code.of[label] >= 0
  }

  draw() {
    const { model, look } = this
    model.look = look
    if (!this.toolbar.draw()) return
    this.tracks.draw()
    const tab = this.tabs.show(look.tab)
    const { all } = model.weights()
    const { unit } = model.profile.about
    const about = group => model.about(group)
    const common = { all, unit, about, look, colouring: look.colour, found: this.sought(all) }
    const views = {
      functions: () => this.table.draw({ rows: model.rows(), ...common }),
      flame: () => {
        this.drawFlame(this.flame, model.drawn(), 'drawn', look.icicle, common)
        this.widen(look.zoom)
      },
      sandwich: () => this.drawAround(common),
      calls: () => this.calls.draw({ tree: model.drawn(), ...common }),
      code: () => this.drawCode(common),
      chart: () => this.chart.draw(),
      heat: () => this.heat.draw(),
    }
    views[tab]()
  }

  drawFlame(flame, tree, what, down, common) {
    flame.set({ tree, levels: this.model.boxes(tree, what), down, ...common })
  }

  /** Widens what the address says, unless that is so already. */
  widen(zoom) {
    const path = this.flame.path()
    if (zoom === path.join('.') || path.length > ZOOM_MAX) return
    this.flame.widenPath(zoom ? zoom.split('.').map(Number) : [])
  }

  drawAround(common) {
    const { model } = this
    // Without one that was picked, the one with the most samples of its own.
    const group = this.look.function ?? model.rows()[0]?.label
    const row = model.rows().find(one => one.label === group)
    this.callers.element.hidden = this.callees.element.hidden = !row
    const { name, module } = model.about(group ?? -1)
    const where = module ? ` [${module}]` : ''
    const { all, unit } = common
    const numbers = row && `${phrase(row.total, unit)} (${share(row.total, all)}), ${share(row.own, all)} in itself`
    this.title.replaceChildren(
      ...(row
        ? [element('bdi', {}, `${name}${where}`), ` ${numbers}; callers above, callees below`]
        : ['Nothing of it is in the selection: pick a function in another view.']),
    )
    if (!row) return
    const { callers, callees } = model.around(group)
    this.drawFlame(this.callers, callers, 'callers', false, common)
    this.drawFlame(this.callees, callees, 'callees', true, common)
  }

  /** Source and instructions of what was picked, else of what weighs most of what has any. */
  drawCode(common) {
    const { model, code, look } = this
    const rows = new Map()
    for (const row of model.rows()) {
      const label = model.labelOf(row.label)
      const number = label < 0 || look.by === 'module' ? -1 : code.of[label]
      if (number >= 0 && !rows.has(number)) rows.set(number, row)
    }
    const choices = [...rows.keys()]
    const picked = look.function === null ? -1 : model.labelOf(look.function)
    const number = picked < 0 || look.by === 'module' ? (choices[0] ?? -1) : code.of[picked]
    this.source.draw({
      ...common,
      number: number < 0 ? null : number,
      choices,
      row: rows.get(number),
      weigh: (one, form) => model.spots(code, one, form),
    })
  }

  /** Finds groups by the search; says how much has them. */
  sought(all) {
    const { search } = this.look
    const matches = document.getElementById('matches')
    if (!search) {
      matches.textContent = ''
      return null
    }
    const pattern = sought(search)
    const { names } = this.model.groups()
    const found = names.map(name => pattern.test(name))
    const rows = this.model.rows()
    const count = rows.filter(row => found[row.label]).length
    const part = this.weighFound(found)
    matches.textContent = `${count} of ${rows.length}; in ${share(part, all)} of the selection`
    return group => found[group]
  }

  /** What has a group that is found in its stack, each sample once. */
  weighFound(found) {
    const { labels, parents, own } = this.model.tree()
    const has = new Uint8Array(labels.length)
    let sum = 0
    for (let node = 1; node < labels.length; node++) {
      has[node] = has[parents[node]] || found[labels[node]] ? 1 : 0
      if (has[node]) sum += own[node]
    }
    return sum
  }
}

const ABOUT_TABLE = 'Self: in the function itself. Total: that in what it called, too. A function turns over when picked.'
