// What the comparison found certain, as `uniprof diff --json` lists it, and which verdict is about which box of a flame
// graph. Nothing is judged here.

import { Columns, fromBase64, inflated } from './bytes.mjs'
import { childrenOf, nodeAt } from './boxes.mjs'

/** Reads the changes, as base64 text. */
export async function decodeVerdicts(text) {
  return JSON.parse(new Columns(await inflated(fromBase64(text))).text()).changes
}

export class Verdicts {
  constructor(changes) {
    this.changes = changes
    this.known = new Map(changes.map((change, number) => [keyOf(change.function, change.of), number]))
  }

  /** The numbers of a function's changes: in all of its stacks, and in itself. */
  of(label) {
    return ['total', 'self'].map(of => this.known.get(keyOf(label, of))).filter(number => number !== undefined)
  }

  /** Gives for a node of a tree, turned over or not, the number of the change that its width shows, or undefined. */
  shownBy(tree, inverted) {
    const { labels, parents, total, own } = tree
    if (inverted) return node => (node && parents[node] === 0 ? this.known.get(keyOf(labels[node], 'self')) : undefined)
    const [paths, children] = [new Map(), childrenOf(parents)]
    this.changes.forEach(({ path }, number) => {
      const node = path.length ? nodeAt(tree, path, children) : null
      if (node) paths.set(node, number)
    })
    return node => {
      const known = paths.get(node) ?? this.known.get(keyOf(labels[node], 'total'))
      // A function that calls nothing has its own samples alone.
      return known ?? (own[node] === total[node] ? this.known.get(keyOf(labels[node], 'self')) : undefined)
    }
  }
}

const keyOf = (label, of) => (of === 'path' ? null : `${label} ${of}`)

/** The widest node of a function, or of a path; null where the tree has none. */
export function placeOf(tree, { function: label, path }) {
  if (path.length) return nodeAt(tree, path)
  let widest = null
  tree.labels.forEach((one, node) => {
    if (one === label && tree.total[node] > 0 && (widest === null || tree.total[node] > tree.total[widest])) widest = node
  })
  return widest
}
