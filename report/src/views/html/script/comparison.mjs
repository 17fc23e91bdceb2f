// The page of a comparison: the time of each side, what was found, and both flame graphs. What is certain was found by
// `uniprof diff`, of all that it compared; the page selects, and colours.

import { share } from './amounts.mjs'
import { boxes } from './boxes.mjs'
import { Changes } from './changes.mjs'
import { button, element, once, swatch, toggle } from './element.mjs'
import { Filters } from './filters.mjs'
import { FlamePair } from './flamepair.mjs'
import { grownBy, joined } from './joined.mjs'
import { LOOK_AT_BOTH, addressOf, lookOf } from './look.mjs'
import { Model } from './model.mjs'
import { sought } from './selection.mjs'
import { SHADES, markOf, shadeOf } from './shades.mjs'
import { flagsOf, summaryOf } from './summary.mjs'
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
    const fixed = document.getElementById('changes')
    const flame = element('div', {}, element('p', { class: 'lead' }, ABOUT_FLAMES), this.legend, this.picked, this.flames.element)
    this.tabs = new Tabs(
      [
        ['changes', 'Changes', element('div', {}, ...fixed.childNodes)],
        ['flame', 'Flame graphs', flame],
      ],
      tab => this.change({ tab }),
    )
    const times = this.tracks.flatMap((tracks, side) => [
      element('h3', { class: 'side' }, `${'AB'[side]}: ${this.models[side].profile.about.recordings.join(' + ')}`),
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
    if (this.tabs.show(look.tab) === 'changes') this.drawChanges(found)
    else this.drawFlames(found)
  }

  drawForms() {
    const { look } = this
    const key = [look.invert, look.fold, look.icicle].join()
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
    this.forms.replaceChildren(...made)
    if (focused) this.forms.querySelector(`[data-form="${focused}"]`)?.focus()
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
    const [model] = this.models
    const { tree, levels, shown } = this.both()
    const { changes } = this.verdicts
    const looked = changes[this.look.change]
    const lookedFor = looked && (group => group === looked.function)
    document.getElementById('matches').textContent = ''
    this.flames.set({
      tree,
      levels,
      down: this.look.icicle,
      unit: model.profile.about.unit,
      about: group => model.about(group),
      found: found ?? lookedFor,
      titles: this.models.map((one, side) => `${'AB'[side]}: ${one.profile.about.recordings.join(' + ')}`),
      painted: node => {
        const verdict = changes[shown(node)]
        return { colour: shadeOf(grownBy(tree, node), verdict), mark: markOf(verdict) }
      },
      verdict: node => {
        const found = this.verdicts.of(tree.labels[node]).map(number => this.changes.told(number))
        return found.join('; ') || 'too small or too common to be judged'
      },
    })
    if (looked && this.isNew) this.widen(tree, looked)
    this.isNew = false
  }

  widen(tree, looked) {
    const node = placeOf(tree, looked)
    if (node !== null) this.flames.widen(node)
    const told = `${looked.name}: ${this.changes.told(this.look.change)}.`
    this.picked.textContent = node === null ? `${told} Nothing of it is in the selection.` : `${told} Escape shows all.`
  }

  /** A box was picked: what is found of its function. */
  tellOf(group) {
    const { name } = this.models[0].about(group)
    const told = this.verdicts.of(group).map(number => this.changes.told(number))
    this.picked.textContent = `${name}: ${told.join('; ') || 'too small or too common to be judged'}.`
  }
}

/** What B's time line selects, under its names in the look. */
function renamed(changed) {
  return Object.fromEntries(Object.entries(changed).map(([name, is]) => [OWN.includes(name) ? `${name}_b` : name, is]))
}

const ABOUT_FLAMES =
  'Each stack has one place in both, as wide as the larger of its shares; what is filled is the share that the side has.'
