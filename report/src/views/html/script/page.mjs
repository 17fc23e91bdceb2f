// The page of a report: its parts, and what is looked at, which the address keeps.

import { phrase, share } from './amounts.mjs'
import { App } from './app.mjs'
import { CallTree } from './calltree.mjs'
import { neighbours } from './calls.mjs'
import { CodeView } from './codeview.mjs'
import { legendOf } from './colours.mjs'
import { button, element, swatch } from './element.mjs'
import { Flame } from './flame.mjs'
import { HeatMap } from './heatmap.mjs'
import { LOOK } from './look.mjs'
import { Model } from './model.mjs'
import { sought } from './selection.mjs'
import { LISTED, Side } from './side.mjs'
import { Table } from './table.mjs'
import { Tabs } from './tabs.mjs'
import { TimeChart } from './timechart.mjs'
import { Toolbar } from './toolbar.mjs'
import { Tracks } from './tracks.mjs'

/** Levels of a widened box that an address keeps. */
const ZOOM_MAX = 200
/** The hottest functions that the panel lists. */
const HOTTEST = 12

export class Page extends App {
  /** `code` is source and instructions, or null. */
  constructor(profile, code, place) {
    super({ ...LOOK, ...profile.about.opening }, [profile.about.tasks.length])
    this.model = new Model(profile)
    this.code = code
    const { told } = this
    const change = changed => this.change(changed)
    const picked = group => this.pick(group)
    this.tracks = new Tracks(this.model, { change, told })
    this.toolbar = new Toolbar(this.model, { change, showAll: this.showAll })
    this.table = new Table(document.getElementById('top'), { change, picked })
    this.flame = new Flame({ label: 'Flame graph', told, picked })
    // A path that is too long for an address is not kept.
    this.flame.widened = path => this.change({ zoom: path.length > ZOOM_MAX ? '' : path.join('.') })
    this.callers = new Flame({ label: 'Callers', told, picked })
    this.callees = new Flame({ label: 'Callees', told, picked })
    this.calls = new CallTree({ picked })
    this.chart = new TimeChart(this.model, { told, picked, order: this.tracks.order })
    this.heat = new HeatMap(this.model, { change, told })
    this.source = code && new CodeView(code, { change, picked: label => this.show(label) })
    this.side = new Side(picked)
    this.title = element('h3', { class: 'around' })
    // Written with the page; there if the host's view of the vCPUs was recorded.
    const wall = document.getElementById('wall')
    this.tabs = new Tabs(
      [
        ['flame', 'Flame graph', [this.flame.element]],
        ['functions', 'Functions', [element('p', { class: 'lead' }, ABOUT_TABLE), ...this.table.parts]],
        ['sandwich', 'Sandwich', [this.title, this.callers.element, this.callees.element]],
        ['calls', 'Call tree', [this.calls.element]],
        ...(code ? [['code', 'Source', [this.source.element]]] : []),
        ['chart', 'Flame chart', [this.chart.element]],
        ['heat', 'Heat map', [this.heat.element]],
        ...(wall ? [['wall', 'Wall time', [wall]]] : []),
      ],
      { chosen: tab => this.change({ tab }), tools: this.toolbar.parts, side: this.side.element },
    )
    this.hint.textContent = 'Drag over the time to select, click a box to widen it, Escape shows all, ? lists all keys.'
    place.append(this.tracks.element, this.tracks.under, this.tabs.element, this.status)
    this.read()
  }

  change(changed) {
    // Groups' numbers are of their grouping.
    super.change(changed.by ? { ...changed, function: null, zoom: '' } : changed)
  }

  reset() {
    // The address doesn't keep a path that is too long.
    this.flame.widenPath([])
    super.reset()
  }

  /** Selects a function: the panel shows it. */
  pick(group) {
    this.change({ function: group })
  }

  /** Shows the source of the function of a label. */
  show(label) {
    this.change({ tab: 'code', function: this.model.groups().groups[label] })
  }

  /** The number of a group's code; -1 where there is none. */
  codeOf(group) {
    const label = this.model.labelOf(group)
    return label < 0 || !this.code || this.look.by === 'module' ? -1 : this.code.of[label]
  }

  draw() {
    const { model, look } = this
    model.look = look
    this.drawFrame()
    const tab = this.tabs.show(look.tab)
    if (!this.toolbar.draw(tab)) return
    this.tracks.draw()
    const { all } = model.weights()
    const { unit } = model.profile.about
    const about = group => model.about(group)
    const common = { all, unit, about, look, colouring: look.colour, found: this.sought(all) }
    const isColoured = ['flame', 'sandwich', 'chart'].includes(tab)
    const legend = isColoured ? legendOf(look.colour, model.profile.labels.flags) : []
    this.legend.replaceChildren(...legend.flatMap(([name, colour]) => swatch(name, colour)))
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
      wall: () => {},
    }
    views[tab]()
    this.drawSide(common)
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

  /** The selected function; where there is none, those with the most samples of their own. */
  drawSide({ all, unit }) {
    const { model, look } = this
    const rows = model.rows()
    const listed = (label, weight, own = 0) => ({
      group: label,
      name: model.about(label).name,
      text: share(weight, all),
      part: weight / (all || 1),
      own: own / (all || 1),
    })
    if (look.function === null) {
      const hottest = rows.filter(({ own }) => own > 0).slice(0, HOTTEST)
      const lists = [['Self', hottest.map(({ label, own }) => listed(label, own, own))]]
      return this.side.draw({ name: 'Hottest functions', lists })
    }
    const group = look.function
    const { own, total } = rows.find(row => row.label === group) ?? { own: 0, total: 0 }
    const { callers, callees } = model.around(group)
    const near = tree => neighbours(tree).slice(0, LISTED).map(({ label, weight }) => listed(label, weight))
    const number = this.codeOf(group)
    const { name, module } = model.about(group)
    const exact = model.filterOf(group)
    const filter = (what, text, title) => button(text, () => this.change({ [what]: exact }), { title })
    const filters = [
      filter('focus', 'Focus', 'Only stacks that have this function'),
      filter('ignore', 'Ignore', 'No stacks that have this function'),
      filter('hide', 'Hide', 'Stacks without this function'),
    ]
    this.side.draw({
      name,
      module,
      facts: [
        ['Self', `${share(own, all)}, ${phrase(own, unit)}`],
        ['Total', `${share(total, all)}, ${phrase(total, unit)}`],
      ],
      does: [
        button('Callers and callees', () => this.change({ tab: 'sandwich' })),
        ...(number >= 0 ? [button('Source', () => this.change({ tab: 'code' }))] : []),
        ...(exact === null ? [] : filters),
        button('Clear', () => this.change({ function: null }), { title: 'Select no function' }),
      ],
      lists: [
        ['Callers', near(callers)],
        ['Callees', near(callees)],
        ['Source', number >= 0 ? this.hotLines(number, all) : []],
      ],
    })
  }

  /** The lines, or instructions, of a function that have the most samples. */
  hotLines(number, all) {
    const { model, code } = this
    const [form] = code.forms(number)
    const { own, total } = model.spots(code, number, form)
    const lines = code.rows(number, form).filter(({ spot, text }) => spot !== undefined && total[spot] > 0 && text)
    lines.sort((a, b) => own[b.spot] - own[a.spot] || total[b.spot] - total[a.spot])
    return lines.slice(0, LISTED).map(({ spot, place, text }) => ({
      name: `${place} ${text.trim()}`,
      text: share(total[spot], all),
      part: total[spot] / (all || 1),
      own: own[spot] / (all || 1),
      act: () => this.change({ tab: 'code', code: form }),
    }))
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
    const { model, look } = this
    const rows = new Map()
    for (const row of model.rows()) {
      const number = this.codeOf(row.label)
      if (number >= 0 && !rows.has(number)) rows.set(number, row)
    }
    const choices = [...rows.keys()]
    const isPicked = look.function !== null && model.labelOf(look.function) >= 0 && look.by !== 'module'
    const number = isPicked ? this.codeOf(look.function) : (choices[0] ?? -1)
    this.source.draw({
      ...common,
      number: number < 0 ? null : number,
      choices,
      row: rows.get(number),
      weigh: (one, form) => model.spots(this.code, one, form),
    })
  }

  /** Finds groups by the search; says how much has them. */
  sought(all) {
    const { search } = this.look
    if (!search) return null
    const pattern = sought(search)
    const { names } = this.model.groups()
    const found = names.map(name => pattern.test(name))
    const rows = this.model.rows()
    const count = rows.filter(row => found[row.label]).length
    const part = this.weighFound(found)
    this.matches.textContent = `${count} of ${rows.length}; in ${share(part, all)} of the selection`
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

const ABOUT_TABLE = 'Self: in the function itself. Total: with what it called.'
