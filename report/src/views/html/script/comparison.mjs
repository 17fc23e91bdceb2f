// The page of a comparison: the time of each side, what was found, and both flame graphs. What is certain was found by
// `uniprof diff`, of all that it compared; the page selects, and colours.

import { phrase, share } from './amounts.mjs'
import { boxes } from './boxes.mjs'
import { CallTree } from './calltree.mjs'
import { Changes } from './changes.mjs'
import { button, choice, element, once, swatch, toggle } from './element.mjs'
import { Filters } from './filters.mjs'
import { FlamePair } from './flamepair.mjs'
import { grownBy, joined } from './joined.mjs'
import { LOOK_AT_BOTH, addressOf, lookOf } from './look.mjs'
import { Model } from './model.mjs'
import { sought } from './selection.mjs'
import { SHADES, markOf, shadeOf } from './shades.mjs'
import { flagsOf, summaryOf } from './summary.mjs'
import { Table, emptyTable } from './table.mjs'
import { Tabs } from './tabs.mjs'
import { Tracks } from './tracks.mjs'
import { Verdicts, placeOf } from './verdicts.mjs'

/** What of the look is a side's own. */
const OWN = ['from', 'to', 'tasks']

export class Comparison {
  constructor(both, changes, place) {
    this.models = both.map(profile => new Model(profile))
    this.verdicts = new Verdicts(changes)
    this.made = null
    this.detail = element('p', { id: 'detail', role: 'status' })
    const told = text => (this.detail.textContent = text)
    this.tracks = this.models.map((model, side) => {
      const change = changed => this.change(side ? renamed(changed) : changed)
      return new Tracks(model, { change, told })
    })
    this.summaries = this.models.map(() => element('p', { class: 'selected', 'aria-live': 'polite' }))
    this.filters = new Filters(changed => this.change(changed))
    this.forms = element('div', { class: 'forms' })
    this.judged = element('p', { class: 'note' })
    this.legend = element('p', { class: 'legend' }, ...SHADES.flatMap(([name, colour]) => swatch(name, colour)))
    this.changes = new Changes(document.getElementById('verdicts-table'), number => this.show(number))
    this.flames = new FlamePair({ label: 'Flame graph', told, picked: group => this.tellOf(group) })
    this.picked = element('p', { class: 'note', 'aria-live': 'polite' })
    const turn = group => this.turn(group)
    this.around = ['Callers', 'Callees'].map(label => new FlamePair({ label, told, picked: turn }))
    this.title = element('h3', { class: 'around' })
    this.table = new Table(emptyTable(), { change: changed => this.change(changed), picked: turn })
    this.calls = new CallTree({ picked: turn })
    const fixed = document.getElementById('changes')
    const about = element('p', { class: 'lead' }, ABOUT_FLAMES)
    const flame = element('div', {}, about, this.legend, this.picked, this.flames.element)
    const table = element('div', { class: 'scroll tall' }, this.table.table)
    this.tabs = new Tabs(
      [
        ['changes', 'Changes', element('div', {}, ...fixed.childNodes)],
        ['flame', 'Flame graphs', flame],
        ['sandwich', 'Sandwich', element('div', {}, this.title, ...this.around.map(one => one.element))],
        ['functions', 'Functions', element('div', {}, table, this.table.note)],
        ['calls', 'Call tree', this.calls.element],
      ],
      tab => this.change({ tab }),
    )
    const times = this.tracks.flatMap((tracks, side) => [
      element('h3', { class: 'side' }, this.nameOf(side)),
      tracks.element,
      tracks.legend,
      tracks.missing,
      tracks.more,
      this.summaries[side],
    ])
    const row = element('div', { class: 'row' }, this.forms, button('Show all', () => this.reset(), { title: 'No selection, no filters' }))
    const toolbar = element('div', { class: 'toolbar' }, this.filters.element, this.filters.wrong, row, this.judged)
    place.append(element('h2', {}, 'Time'), ...times, toolbar, this.tabs.element, this.detail)
    this.find = document.getElementById('find')
    this.find.addEventListener('input', () => this.change({ search: this.find.value }))
    this.redraw = once(() => this.draw())
    window.addEventListener('hashchange', () => {
      if (location.hash.slice(1) !== addressOf(this.look, LOOK_AT_BOTH)) this.read()
    })
    this.read()
  }

  /** Looks at what the address says. */
  read() {
    this.look = lookOf(location.hash, LOOK_AT_BOTH, this.models.map(({ profile }) => profile.about.tasks.length))
    if (!(this.look.change in this.verdicts.changes)) this.look.change = null
    this.find.value = this.look.search
    this.isNew = this.look.change !== null
    this.draw()
  }

  change(changed) {
    this.look = { ...this.look, ...changed }
    const address = addressOf(this.look, LOOK_AT_BOTH)
    clearTimeout(this.keep)
    this.keep = setTimeout(() => history.replaceState(null, '', `#${address}`), changed.tab ? 0 : 150)
    this.redraw()
  }

  reset() {
    this.change({ ...LOOK_AT_BOTH, tab: this.look.tab })
  }

  /** Shows where a change is in the flame graphs. */
  show(number) {
    this.isNew = true
    this.change({ tab: 'flame', change: number })
  }

  draw() {
    const { look, models } = this
    const [a, b] = models
    a.look = look
    b.look = { ...look, ...Object.fromEntries(OWN.map(name => [name, look[`${name}_b`]])) }
    this.drawForms()
    if (!this.filters.draw(look)) return
    for (const one of this.tracks) one.draw()
    this.summaries.forEach((summary, side) => summary.replaceChildren(...summaryOf(models[side])))
    this.judged.textContent = this.judgedAs()
    const found = this.sought()
    const views = {
      changes: () => this.drawChanges(found),
      flame: () => this.drawFlames(found),
      sandwich: () => this.drawAround(found),
      functions: () => this.drawFunctions(found),
      calls: () => this.calls.draw({ tree: this.side().drawn(), ...this.common(this.side()) }),
    }
    document.getElementById('matches').textContent = ''
    views[this.tabs.show(look.tab)]()
  }

  /** The side that is looked at where a view is of one. */
  side() {
    return this.models[this.look.side === 'A' ? 0 : 1]
  }

  common(model) {
    const { unit } = model.profile.about
    return { all: model.weights().all, unit, about: group => model.about(group), look: this.look }
  }

  drawFunctions(found) {
    const rows = this.side().rows()
    this.table.draw({ rows, found, ...this.common(this.side()) })
    if (found) document.getElementById('matches').textContent = `${rows.filter(row => found(row.label)).length} of ${rows.length}`
  }

  drawForms() {
    const { look } = this
    const isOfOne = look.tab === 'functions' || look.tab === 'calls'
    const key = [look.invert, look.fold, look.icicle, isOfOne, look.side].join()
    if (this.drawn === key) return
    this.drawn = key
    const focused = document.activeElement?.dataset?.form
    const made = [
      ['invert', 'Invert'],
      ['icicle', 'Icicle'],
      ['fold', 'Fold recursion'],
    ].map(([name, title]) => {
      const label = toggle(title, look[name], value => this.change({ [name]: value }))
      label.querySelector('input').dataset.form = name
      return label
    })
    if (isOfOne) {
      const sides = this.models.map((_, side) => ['AB'[side], this.nameOf(side)])
      const label = choice('Side', sides, look.side === 'A' ? 'A' : 'B', side => this.change({ side }))
      label.querySelector('select').dataset.form = 'side'
      made.unshift(label)
    }
    this.forms.replaceChildren(...made)
    if (focused) this.forms.querySelector(`[data-form="${focused}"]`)?.focus()
  }

  /** A side with its recordings. */
  nameOf(side) {
    return `${'AB'[side]}: ${this.models[side].profile.about.recordings.join(' + ')}`
  }

  /** Says of what the verdicts are, where that is not what is selected. */
  judgedAs() {
    const flags = this.models.map(model => flagsOf(model).join(' '))
    if (!flags.some(one => one)) return ''
    const isOne = flags[0] === flags[1] && !this.look.tasks && !this.look.tasks_b
    const how = isOne ? ` uniprof diff ${flags[0]} judges the selection.` : ''
    return `Verdicts are of all that was compared, not of what is selected here.${how}`
  }

  /** Finds functions by the search. */
  sought() {
    const { search } = this.look
    if (!search) return null
    const pattern = sought(search)
    const found = this.models[0].groups().names.map(name => pattern.test(name))
    return group => found[group]
  }

  drawChanges(found) {
    const { changes } = this.verdicts
    const has = found && (number => found(changes[number].function) || changes[number].path.some(found))
    const shown = this.changes.draw(has, this.look.change)
    document.getElementById('matches').textContent = found ? `${shown} of ${changes.length}` : ''
  }

  /** The tree of both, made once of what it is of. */
  both() {
    const trees = this.models.map(model => model.drawn())
    if (this.made?.trees.every((tree, side) => tree === trees[side])) return this.made
    const tree = joined(trees, this.models.map(model => model.weights().all))
    const { ranks } = this.models[0].groups()
    const shown = this.verdicts.shownBy(tree, this.look.invert)
    return (this.made = { trees, tree, levels: boxes(tree, ranks), shown })
  }

  drawFlames(found) {
    const { tree, levels, shown } = this.both()
    const looked = this.verdicts.changes[this.look.change]
    const lookedFor = looked && (group => group === looked.function)
    this.drawPair(this.flames, { tree, levels, down: this.look.icicle, found: found ?? lookedFor }, shown)
    if (looked && this.isNew) this.widen(tree, looked)
    this.isNew = false
  }

  /** Draws a tree of both; `shown` gives for a node the number of the change that its width shows. */
  drawPair(pair, data, shown) {
    const [model] = this.models
    const { tree } = data
    const { changes } = this.verdicts
    pair.set({
      ...data,
      unit: model.profile.about.unit,
      about: group => model.about(group),
      titles: this.models.map((_, side) => `${data.what ?? ''}${this.nameOf(side)}`),
      painted: node => {
        const verdict = changes[shown(node)]
        return { colour: shadeOf(grownBy(tree, node), verdict), mark: markOf(verdict) }
      },
      verdict: node => this.verdictOf(tree.labels[node]),
    })
  }

  /** What is found of a function, in words. */
  verdictOf(group) {
    const told = this.verdicts.of(group).map(number => this.changes.told(number))
    return told.join('; ') || 'too small or too common to be judged'
  }

  /** Callers of a function above, callees below, each of both sides. */
  drawAround(found) {
    const { models, look } = this
    const rows = models.map(model => model.rows())
    const group = look.function ?? this.verdicts.changes[look.change]?.function ?? rows.flat()[0]?.label
    const of = rows.map(all => all.find(row => row.label === group))
    for (const pair of this.around) pair.element.hidden = !of.some(Boolean)
    if (!of.some(Boolean)) {
      this.title.replaceChildren('Nothing of it is in the selection: pick a function in another view.')
      return
    }
    const { name, module } = models[0].about(group)
    const numbers = models.map((model, side) => {
      const { all, unit } = this.common(model)
      const { total = 0, own = 0 } = of[side] ?? {}
      return `${'AB'[side]} has ${phrase(total, unit)} (${share(total, all)}), ${share(own, all)} in itself`
    })
    const where = module ? ` [${module}]` : ''
    const told = ` ${numbers.join('; ')}; ${this.verdictOf(group)}; callers above, callees below`
    this.title.replaceChildren(element('bdi', {}, `${name}${where}`), told)
    const total = this.verdicts.of(group).find(number => this.verdicts.changes[number].of === 'total')
    for (const [at, what] of ['callers', 'callees'].entries()) {
      const { tree, levels } = this.turned(group, what)
      const data = { tree, levels, down: at > 0, found, what: at ? 'Callees, ' : 'Callers, ' }
      this.drawPair(this.around[at], data, node => (tree.parents[node] === 0 ? total : undefined))
    }
  }

  /** Callers or callees in both, made once of what they are of. */
  turned(group, what) {
    const trees = this.models.map(model => model.around(group)[what])
    return this.models[0].once(`both ${what}`, trees, () => {
      const tree = joined(trees, this.models.map(model => model.weights().all))
      return { tree, levels: boxes(tree, this.models[0].groups().ranks) }
    })
  }

  widen(tree, looked) {
    const node = placeOf(tree, looked)
    if (node !== null) this.flames.widen(node)
    const told = `${looked.name}: ${this.changes.told(this.look.change)}.`
    this.picked.textContent = node === null ? `${told} Nothing of it is in the selection.` : `${told} Escape shows all.`
  }

  /** A box was picked: what is found of its function, and who called it. */
  tellOf(group) {
    this.look.function = group
    const { name } = this.models[0].about(group)
    const around = button('Callers and callees', () => this.turn(group))
    this.picked.replaceChildren(`${name}: ${this.verdictOf(group)}. `, around)
  }

  /** Turns a function over: who called it, and what it called. */
  turn(group) {
    this.change({ tab: 'sandwich', function: group })
  }
}

/** What B's time line selects, under its names in the look. */
function renamed(changed) {
  return Object.fromEntries(Object.entries(changed).map(([name, is]) => [OWN.includes(name) ? `${name}_b` : name, is]))
}

const ABOUT_FLAMES =
  'Each stack has one place in both, as wide as the larger of its shares; what is filled is the share that the side has.'
