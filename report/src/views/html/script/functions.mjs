// Functions and what they weigh: a tree of calls goes in, rows come out.

import { outermost } from './calls.mjs'

/**
 * What each label of a tree weighs: `own` as the innermost frame, `total` anywhere in the stack, once however often it
 * is in it. Rows are in the order of the terminal's table: most own first, then most in all, then by name.
 */
export function functions(tree, nameOf) {
  const first = outermost(tree)
  const rows = new Map()
  for (let node = 1; node < tree.labels.length; node++) {
    const label = tree.labels[node]
    let row = rows.get(label)
    if (!row) rows.set(label, (row = { label, own: 0, total: 0, name: nameOf(label) }))
    row.own += tree.own[node]
    if (first[node]) row.total += tree.total[node]
  }
  const found = [...rows.values()].filter(row => row.total > 0)
  return found.sort((a, b) => b.own - a.own || b.total - a.total || compare(a.name, b.name))
}

/** The order of texts by their code points, which is that of their bytes in UTF-8. */
export function compare(a, b) {
  return a < b ? -1 : a > b ? 1 : 0
}
