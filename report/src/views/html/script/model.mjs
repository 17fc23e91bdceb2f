// A profile as it is looked at: asked for trees, rows and names of the present look, it makes each once. No DOM.

import { calls, calleesOf, callersOf, folded, inverted, outermost } from './calls.mjs'
import { boxes, ranked } from './boxes.mjs'
import { functions } from './functions.mjs'
import { HIDDEN, INLINED, functionOf, length, MADE, moduleOf, nameOf } from './profile.mjs'
import { escaped, filtered, weigh } from './selection.mjs'
import { weighSpots } from './spots.mjs'

/** What frames may be shown as. */
export const GROUPINGS = ['function', 'line', 'module']

export class Model {
  constructor(profile) {
    this.profile = profile
    this.end = length(profile)
    this.hasLines = profile.labels.lines.some(line => line > 0)
    this.made = new Map()
    this.look = null
  }

  /** Makes `what` unless it was made of the same. */
  once(what, of, make) {
    const known = this.made.get(what)
    if (known && known.of.length === of.length && known.of.every((one, index) => one === of[index])) return known.is
    const is = make()
    this.made.set(what, { of, is })
    return is
  }

  /** Which stacks count, and which frames are seen. Throws where a filter is no regular expression. */
  filter(look = this.look) {
    const of = [look.focus, look.ignore, look.hide, look.inlines]
    return this.once('filter', of, () => filtered(this.profile, look))
  }

  /** What each stack weighs, and all of them. */
  weights() {
    const { from, to, tasks } = this.look
    const { counts } = this.filter()
    return this.once('weights', [from, to, tasks, counts], () => weigh(this.profile, this.look, counts))
  }

  /** Under which number each label is shown, and what the numbers are called. */
  groups() {
    return this.once('groups', [this.look.by], () => grouped(this.profile, this.look.by))
  }

  /** The tree of calls. */
  tree() {
    const { own } = this.weights()
    const { groups, hidden } = this.groups()
    const { by, fold } = this.look
    const { seen } = this.filter()
    return this.once('tree', [own, groups, fold], () => {
      const tree = calls(this.profile, seen, own, { groups, joined: by === 'module', hidden })
      return fold ? folded(tree) : tree
    })
  }

  outermost() {
    const tree = this.tree()
    return this.once('outermost', [tree], () => outermost(tree))
  }

  /** The tree as it is drawn: turned over if so. */
  drawn() {
    const tree = this.tree()
    const { invert } = this.look
    return this.once('drawn', [tree, invert], () => (invert ? inverted(tree) : tree))
  }

  /** The boxes of a tree. */
  boxes(tree, what) {
    const { ranks } = this.groups()
    return this.once(`boxes ${what}`, [tree, ranks], () => boxes(tree, ranks))
  }

  /** Functions by what they weigh. */
  rows() {
    const tree = this.tree()
    const { names } = this.groups()
    return this.once('rows', [tree], () => functions(tree, group => names[group]))
  }

  /** Who called a function, and what it called. */
  around(group) {
    const tree = this.tree()
    const first = this.outermost()
    return this.once('around', [tree, group], () => ({
      callers: callersOf(tree, group, first),
      callees: calleesOf(tree, group, first),
    }))
  }

  /** What the lines or instructions of a function weigh: `code` is the page's. */
  spots(code, number, form) {
    const { own } = this.weights()
    const { seen } = this.filter()
    const { at, places } = code.spots(number, form)
    return this.once('spots', [own, seen, at], () => weighSpots(this.profile, seen, own, at, places.length))
  }

  /** The first label of a group; -1 where it has none. */
  labelOf(group) {
    return this.groups().first[group] ?? -1
  }

  /** The filter that finds a group's function; null where none does: of a module, and of what stands for no code. */
  filterOf(group) {
    const label = this.labelOf(group)
    if (label < 0 || this.look.by === 'module' || this.about(group).flags & MADE) return null
    const [name, whole] = [functionOf(this.profile, label), nameOf(this.profile, label)]
    // A profile that was made by line has the line in each name.
    return `^${escaped(name)}${name === whole ? '' : ' \\([^()]*:\\d+\\)'}$`
  }

  /** What is known of a group: the same object each time. */
  about(group) {
    const { names, modules, flags, known } = this.groups()
    known[group] ??= { name: names[group] ?? '', module: modules[group] ?? '', flags: flags[group] ?? 0 }
    return known[group]
  }
}

/** Labels that are shown as one have one number. */
function grouped(profile, by) {
  const { labels, about } = profile
  const groups = new Int32Array(labels.count)
  const [names, modules, flags, first, numbers] = [[], [], [], [], new Map()]
  for (let label = 0; label < labels.count; label++) {
    const [name, module] = told(profile, label, by)
    // Functions of one name in two modules are two; those that a comparison tells apart are, too.
    const apart = about.sides && by === 'function' ? label : ''
    const key = by === 'module' ? name : `${labels.modules[label]} ${labels.flags[label]} ${apart} ${name}`
    let number = numbers.get(key)
    if (number === undefined) {
      number = names.push(name) - 1
      modules.push(module)
      first.push(label)
      flags.push(by === 'module' ? labels.flags[label] & ~INLINED : labels.flags[label])
      numbers.set(key, number)
    }
    groups[label] = number
  }
  const hidden = names.push(HIDDEN) - 1
  modules.push('')
  flags.push(MADE)
  return { groups, first, names, modules, flags, hidden, ranks: ranked(names), known: [] }
}

function told(profile, label, by) {
  const [name, module] = [nameOf(profile, label), moduleOf(profile, label)]
  const { flags, lines, files } = profile.labels
  if (by === 'module') return [flags[label] & MADE ? name : module || '[unknown]', '']
  const bare = functionOf(profile, label)
  if (by === 'function') return [bare, module]
  // A profile that was made by line has it in its names.
  if (!lines[label] || name !== bare) return [name, module]
  const file = profile.texts[files[label]]
  return [`${name} (${file.slice(file.lastIndexOf('/') + 1)}:${lines[label]})`, module]
}
