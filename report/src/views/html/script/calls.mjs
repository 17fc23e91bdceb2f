// Trees of calls: stacks and what they weigh go in; trees of the frames that are seen come out, as they were called,
// turned over, or around one function. A tree is arrays by node, callers before what they called; node 0 is the root.
// What is found of a node's frame has the bits of all stacks that are one there.

import { MADE } from './profile.mjs'

/** A tree while it grows. */
export class Growing {
  constructor() {
    this.labels = [-1]
    this.parents = [0]
    this.own = [0]
    this.found = [0]
    this.known = new Map()
  }

  child(parent, label) {
    const key = parent * 0x1000000 + label
    const found = this.known.get(key)
    if (found !== undefined) return found
    const node = this.labels.push(label) - 1
    this.parents.push(parent)
    this.own.push(0)
    this.found.push(0)
    this.known.set(key, node)
    return node
  }

  grown() {
    const [labels, parents] = [Int32Array.from(this.labels), Int32Array.from(this.parents)]
    const own = Float64Array.from(this.own)
    const total = own.slice()
    for (let node = total.length - 1; node > 0; node--) total[parents[node]] += total[node]
    return { labels, parents, own, total, found: Uint8Array.from(this.found) }
  }
}

/**
 * The frames that are seen, as they were called. `groups` tells for each label under which number it is shown; where
 * `joined`, a frame of its caller's group is its caller. The group of whole stacks that are hidden is `hidden`.
 */
export function calls(profile, seen, own, { groups, joined, hidden }) {
  const { parents, frames, labels } = profile
  const tree = new Growing()
  const weighs = below(parents, own)
  const places = new Int32Array(parents.length)
  // Of each stack, whether nothing but what stands for no code is above it.
  const bare = new Uint8Array(parents.length).fill(1)
  for (let node = 1; node < parents.length; node++) {
    if (!weighs[node]) continue
    const [parent, label] = [parents[node], frames[node]]
    const isMade = labels.flags[label] & MADE
    let place = places[parent]
    bare[node] = bare[parent]
    if (seen[label]) {
      const group = groups[label]
      const isSame = joined && tree.labels[place] === group
      if (!isSame) place = tree.child(place, group)
      tree.found[place] |= profile.found[node]
      // What was made without frames is no stack that was hidden.
      if (!isMade || isLeafName(profile, label)) bare[node] = 0
    }
    places[node] = place
    if (own[node] > 0) tree.own[bare[node] ? tree.child(place, hidden) : place] += own[node]
  }
  return tree.grown()
}

/** Whether a label that stands for no code stands in the place of frames. */
export function isLeafName({ texts, labels }, label) {
  return texts[labels.names[label]] === '[no frame]' || texts[labels.names[label]] === '[hidden]'
}

/** Whether anything weighs at or below each stack. */
function below(parents, own) {
  const weighs = new Uint8Array(parents.length)
  for (let node = parents.length - 1; node > 0; node--) {
    if (own[node] > 0) weighs[node] = 1
    if (weighs[node]) weighs[parents[node]] = 1
  }
  return weighs
}

/** A tree turned over: what ran first, below it who called it. */
export function inverted(of) {
  const tree = new Growing()
  for (let node = 1; node < of.labels.length; node++) {
    if (of.own[node] > 0) outwards(tree, of, node, of.own[node])
  }
  return tree.grown()
}

/** Adds the way from a node outwards. */
function outwards(tree, { labels, parents, found }, node, weight) {
  let place = 0
  for (let at = node; at > 0; at = parents[at]) {
    place = tree.child(place, labels[at])
    tree.found[place] |= found[at]
  }
  tree.own[place] += weight
}

/** Of each node, whether none above it has its label: where recursion is counted. */
export function outermost({ labels, parents }) {
  const most = labels.reduce((most, label) => Math.max(most, label), 0)
  const open = new Uint32Array(most + 1)
  const path = []
  const first = new Uint8Array(labels.length)
  const depths = new Uint32Array(labels.length)
  for (const node of preorder(parents)) {
    depths[node] = node === 0 ? 0 : depths[parents[node]] + 1
    while (path.length >= Math.max(1, depths[node])) open[path.pop()]--
    if (node === 0) continue
    first[node] = open[labels[node]]++ === 0 ? 1 : 0
    path.push(labels[node])
  }
  return first
}

/** The nodes of a tree, each directly behind its caller or what that called before. */
export function preorder(parents) {
  const [last, before] = [new Int32Array(parents.length), new Int32Array(parents.length)]
  for (let node = 1; node < parents.length; node++) {
    before[node] = last[parents[node]]
    last[parents[node]] = node
  }
  const order = new Int32Array(parents.length)
  const open = [0]
  for (let index = 0; open.length; index++) {
    const node = open.pop()
    order[index] = node
    for (let child = last[node]; child; child = before[child]) open.push(child)
  }
  return order
}

/** Who called a function: it is below the root, its callers below it. Recursion is counted at its outermost call. */
export function callersOf(tree, label, first = outermost(tree)) {
  const turned = new Growing()
  for (let node = 1; node < tree.labels.length; node++) {
    if (tree.labels[node] === label && first[node]) outwards(turned, tree, node, tree.total[node])
  }
  return turned.grown()
}

/** The functions next to the one that such a tree is of, most first. */
export function neighbours({ labels, parents, total }) {
  const found = []
  for (let node = 2; node < labels.length; node++) {
    if (parents[node] === 1 && total[node] > 0) found.push({ label: labels[node], weight: total[node] })
  }
  return found.sort((a, b) => b.weight - a.weight)
}

/** What a function called: it is below the root. */
export function calleesOf({ labels, parents, own, found }, label, first = outermost({ labels, parents })) {
  const tree = new Growing()
  const places = new Int32Array(labels.length)
  for (let node = 1; node < labels.length; node++) {
    const above = places[parents[node]]
    if (above) places[node] = tree.child(above, labels[node])
    else if (labels[node] === label && first[node]) places[node] = tree.child(0, label)
    if (!places[node]) continue
    tree.own[places[node]] += own[node]
    tree.found[places[node]] |= found[node]
  }
  return tree.grown()
}

/** Functions in a round of recursion at most, as `--recursion folded` has it. */
const ROUND_MAX = 8

/** A tree with each chain of calls that follows upon itself told once: `main;walk;walk;leaf` becomes `main;walk;leaf`. */
export function folded({ labels, parents, own, found }) {
  const tree = new Growing()
  const places = new Int32Array(labels.length)
  for (let node = 1; node < labels.length; node++) {
    const at = places[parents[node]]
    const functions = roundOf(tree, at, labels[node])
    places[node] = functions ? up(tree, at, functions - 1) : tree.child(at, labels[node])
    tree.own[places[node]] += own[node]
    tree.found[places[node]] |= found[node]
  }
  return tree.grown()
}

/** How many functions, ending with `label` called from `at`, are those that stand before them once more. */
function roundOf(tree, at, label) {
  const outer = [label]
  for (let node = at; node > 0 && outer.length < 2 * ROUND_MAX; node = tree.parents[node]) outer.push(tree.labels[node])
  for (let functions = 1; functions * 2 <= outer.length; functions++) {
    let same = 0
    while (same < functions && outer[same] === outer[same + functions]) same++
    if (same === functions) return functions
  }
  return 0
}

/** The node so many calls further out. */
function up(tree, node, calls) {
  for (let at = 0; at < calls; at++) node = tree.parents[node]
  return node
}
