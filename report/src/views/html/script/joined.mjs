// Two trees of calls as one, so that a stack has one place in both pictures. A place is as wide as the larger of both
// sides' shares asks for, for what ends in a stack and so for all that is below it.

import { Growing, neighbours } from './calls.mjs'

/**
 * The tree of both: `own` and `total` are widths, in shares of a side; `sides` has for each side its `own` and `total`
 * by node, in its own weights, and `all` of them.
 */
export function joined(trees, alls) {
  const tree = new Growing()
  const owns = trees.map(({ labels, parents, own }) => {
    const places = new Int32Array(labels.length)
    const sums = []
    for (let node = 1; node < labels.length; node++) {
      const place = tree.child(places[parents[node]], labels[node])
      places[node] = place
      sums[place] = (sums[place] ?? 0) + own[node]
    }
    return sums
  })
  const sides = owns.map((own, side) => ({ own: tree.own.map((_, node) => own[node] ?? 0), all: alls[side] }))
  tree.own.forEach((_, node) => {
    tree.own[node] = Math.max(...sides.map(({ own, all }) => (all ? own[node] / all : 0)))
  })
  const grown = tree.grown()
  for (const side of sides) side.total = totals(side.own, grown.parents)
  return { ...grown, sides }
}

function totals(own, parents) {
  const total = own.slice()
  for (let node = total.length - 1; node > 0; node--) total[parents[node]] += total[node]
  return total
}

/**
 * The functions next to the one that the trees of both sides are of: `weights` of A and of B, and `part`, the larger of
 * both shares; the largest first.
 */
export function neighboursOfBoth(trees, alls) {
  const near = trees.map(tree => new Map(neighbours(tree).map(({ label, weight }) => [label, weight])))
  const labels = new Set(near.flatMap(side => [...side.keys()]))
  const found = Array.from(labels, label => {
    const weights = near.map(side => side.get(label) ?? 0)
    return { label, weights, part: Math.max(...weights.map((weight, side) => weight / (alls[side] || 1))) }
  })
  return found.sort((a, b) => b.part - a.part)
}

/** What a node's share has grown by, from A to B. */
export function grownBy({ sides }, node) {
  const [a, b] = sides.map(({ total, all }) => (all ? total[node] / all : 0))
  return b - a
}
