// The page of a comparison: the time of each side, what was found, and both flame graphs. What is certain was found by
// `uniprof diff`, of all that it compared; the page selects, and colours.

import { phrase, share } from './amounts.mjs'
import { App } from './app.mjs'
import { boxes } from './boxes.mjs'
import { CallTree } from './calltree.mjs'
import { Changes } from './changes.mjs'
import { button, choice, element, swatch, toggle } from './element.mjs'
import { Filters } from './filters.mjs'
import { FlamePair } from './flamepair.mjs'
import { Forms } from './forms.mjs'
import { grownBy, joined, neighboursOfBoth } from './joined.mjs'
import { LOOK_AT_BOTH } from './look.mjs'
import { Model } from './model.mjs'
import { sought } from './selection.mjs'
import { SHADES, markOf, shadeOf } from './shades.mjs'
import { LISTED, Side } from './side.mjs'
import { flagsOf, summaryOf } from './summary.mjs'
import { Table, emptyTable } from './table.mjs'
import { Tabs } from './tabs.mjs'
import { Tracks } from './tracks.mjs'
import { Verdicts, placeOf } from './verdicts.mjs'

/** What of the look is a side's own. */
const OWN = ['from', 'to', 'tasks']

/** Which views each control matters to. */
const TABS_OF = {
  side: ['functions', 'calls'],
  invert: ['flame', 'calls'],
  icicle: ['flame'],
  fold: ['flame', 'sandwich', 'functions', 'calls'],
}

export class Comparison extends App {
  constructor(both, changes, place) {
    super(LOOK_AT_BOTH, both.map(({ about }) => about.tasks.length))
    this.models = both.map(profile => new Model(profile))
    this.verdicts = new Verdicts(changes)
    this.made = null
    const { told } = this
    const change = changed => this.change(changed)
    const picked = group => this.pick(group)
    this.tracks = this.models.map(
      (model, side) => new Tracks(model, { change: changed => change(side ? renamed(changed) : changed), told }),
    )
    this.summaries = this.models.map(() => element('p', { class: 'selected', 'aria-live': 'polite' }))
    this.filters = new Filters(change)
    this.forms = new Forms()
    this.judged = element('p', { class: 'note' })
    this.changes = new Changes(document.getElementById('verdicts-table'), number => this.show(number))
    this.flames = new FlamePair({ label: 'Flame graph', told, picked })
    this.picked = element('p', { class: 'note', 'aria-live': 'polite' })
    this.around = ['Callers', 'Callees'].map(label => new FlamePair({ label, told, picked }))
    this.title = element('h3', { class: 'around' })
    this.table = new Table(emptyTable(), { change, picked })
    this.calls = new CallTree({ picked })
    this.side = new Side(picked)
    const [verdict, ...rest] = [...document.getElementById('changes').children]
    const does = element('div', { class: 'does' }, this.filters.element, this.showAll)
    this.tabs = new Tabs(
      [
        ['changes', 'Changes', [...rest.slice(1), rest[0]]],
        ['flame', 'Flame graphs', [this.picked, this.flames.element]],
        ['sandwich', 'Sandwich', [this.title, ...this.around.map(one => one.element)]],
        ['functions', 'Functions', this.table.parts],
        ['calls', 'Call tree', [this.calls.element]],
      ],
      {
        chosen: tab => this.change({ tab }),
        tools: [does, this.forms.element, this.filters.wrong, this.judged],
        side: this.side.element,
      },
    )
    const times = this.tracks.flatMap((tracks, side) => [
      element('h3', { class: 'side' }, this.nameOf(side)),
      tracks.element,
      tracks.under,
    ])
    const summary = element('summary', {}, 'Time', ...this.summaries.flatMap((one, side) => [` ${'AB'[side]}: `, one]))
    const time = element('details', { class: 'times' }, summary, ...times)
    this.hint.textContent = 'Click a change to see it in both flame graphs; Time selects; Escape shows all, ? lists all keys.'
    place.append(verdict, time, this.tabs.element, this.status)
    this.read()
  }

  /** A link may lead to a change that there isn't. */
  arrived() {
    if (!(this.look.change in this.verdicts.changes)) this.look.change = null
    this.isNew = this.look.change !== null
  }

  /** Shows where a change is in the flame graphs. */
  show(number) {
    this.isNew = true
    this.change({ tab: 'flame', change: number, function: this.verdicts.changes[number].function })
  }

  reset() {
    for (const { flames } of [this.flames, ...this.around]) flames.forEach(flame => flame.widenPath([]))
    this.picked.textContent = ''
    super.reset()
  }

  draw() {
    const { look, models } = this
    const [a, b] = models
    a.look = look
    b.look = { ...look, ...Object.fromEntries(OWN.map(name => [name, look[`${name}_b`]])) }
    this.drawFrame()
    const tab = this.tabs.show(look.tab)
    this.drawForms(tab)
    if (!this.filters.draw(look)) return
    for (const one of this.tracks) one.draw()
    this.summaries.forEach((summary, side) => summary.replaceChildren(...summaryOf(models[side])))
    this.judged.textContent = this.judgedAs()
    const isColoured = tab === 'flame' || tab === 'sandwich'
    const legend = isColoured ? SHADES.flatMap(([name, colour]) => swatch(name, colour)) : []
    this.legend.replaceChildren(...legend)
    const found = this.sought()
    const views = {
      changes: () => this.drawChanges(found),
      flame: () => this.drawFlames(found),
      sandwich: () => this.drawAround(found),
      functions: () => this.drawFunctions(found),
      calls: () => this.calls.draw({ tree: this.shown().drawn(), ...this.common(this.shown()) }),
    }
    views[tab]()
    this.drawSide()
  }

  /** The selected function: what each side has of it, and what was found. */
  drawSide() {
    const { models, look } = this
    const group = look.function
    this.side.element.hidden = group === null
    if (group === null) return
    const { name, module } = models[0].about(group)
    const facts = models.flatMap((model, side) => {
      const { all } = model.weights()
      const { own, total } = model.rows().find(row => row.label === group) ?? { own: 0, total: 0 }
      const letter = 'AB'[side]
      return [[`${letter}, self`, share(own, all)], [`${letter}, total`, share(total, all)]]
    })
    const alls = models.map(model => model.weights().all)
    const lists = ['callers', 'callees'].map(what => {
      const near = neighboursOfBoth(models.map(model => model.around(group)[what]), alls)
      const rows = near.slice(0, LISTED).map(({ label, weights, part }) => {
        const [a, b] = weights.map((weight, side) => share(weight, alls[side]))
        return { group: label, name: models[0].about(label).name, text: `A ${a}, B ${b}`, part }
      })
      return [`${what[0].toUpperCase()}${what.slice(1)}`, rows]
    })
    this.side.draw({
      name,
      module,
      facts: [...facts, ...this.verdicts.of(group).map(number => ['Verdict', this.changes.told(number)])],
      lists,
      does: [
        button('Callers and callees', () => this.change({ tab: 'sandwich' })),
        button('Clear', () => this.change({ function: null }), { title: 'Select no function' }),
      ],
    })
  }

  /** The side that is looked at where a view is of one. */
  shown() {
    return this.models[this.look.side === 'A' ? 0 : 1]
  }

  common(model) {
    const { unit } = model.profile.about
    return { all: model.weights().all, unit, about: group => model.about(group), look: this.look }
  }

  drawFunctions(found) {
    const rows = this.shown().rows()
    this.table.draw({ rows, found, ...this.common(this.shown()) })
    if (found) this.matches.textContent = `${rows.filter(row => found(row.label)).length} of ${rows.length}`
  }

  drawForms(tab) {
    const { look } = this
    const set = name => value => this.change({ [name]: value })
    const sides = this.models.map((_, side) => ['AB'[side], this.nameOf(side)])
    const controls = {
      side: () => choice('Side', sides, look.side === 'A' ? 'A' : 'B', set('side')),
      invert: () => toggle('Invert', look.invert, set('invert')),
      icicle: () => toggle('Icicle', look.icicle, set('icicle')),
      fold: () => toggle('Fold recursion', look.fold, set('fold')),
    }
    const shown = Object.keys(controls).filter(name => TABS_OF[name].includes(tab))
    this.forms.draw(shown.map(name => `${name} ${look[name]}`).join(), () => shown.map(name => [name, controls[name]()]))
    this.filters.element.hidden = tab === 'changes'
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
    this.matches.textContent = found ? `${shown} of ${this.changes.rows.length}` : ''
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

  /** Selects a function: the panel shows it. */
  pick(group) {
    this.change({ function: group })
  }
}

/** What B's time line selects, under its names in the look. */
function renamed(changed) {
  return Object.fromEntries(Object.entries(changed).map(([name, is]) => [OWN.includes(name) ? `${name}_b` : name, is]))
}
