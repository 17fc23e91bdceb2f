// Where the boxes of a flame graph are: a tree goes in; levels come out, outermost first, each with its nodes from left
// to right and where each begins, in the tree's own weights. What is next to each other is in the order of names, so
// that a box stays where it is while the selection grows.

/** The boxes of a tree; `ranks` orders its labels. */
export function boxes({ labels, parents, total }, ranks) {
  const children = childrenOf(parents)
  const levels = []
  let above = { nodes: Int32Array.of(0), from: Float64Array.of(0) }
  for (;;) {
    const [nodes, from] = [[], []]
    above.nodes.forEach((node, index) => {
      const below = [...children(node)].sort((a, b) => ranks[labels[a]] - ranks[labels[b]] || a - b)
      let at = above.from[index]
      for (const child of below) {
        if (total[child] <= 0) continue
        nodes.push(child)
        from.push(at)
        at += total[child]
      }
    })
    if (nodes.length === 0) return levels
    above = { nodes: Int32Array.from(nodes), from: Float64Array.from(from) }
    levels.push(above)
  }
}

/** Gives the children of a node. */
export function childrenOf(parents) {
  const starts = new Int32Array(parents.length + 1)
  for (let node = 1; node < parents.length; node++) starts[parents[node] + 1]++
  for (let node = 0; node < parents.length; node++) starts[node + 1] += starts[node]
  const [places, children] = [starts.slice(), new Int32Array(Math.max(0, parents.length - 1))]
  for (let node = 1; node < parents.length; node++) children[places[parents[node]]++] = node
  return node => children.subarray(starts[node], starts[node + 1])
}

/** The node of a path, outermost function first; null where the tree has none. */
export function nodeAt({ labels, parents }, path, children = childrenOf(parents)) {
  let node = 0
  for (const label of path) {
    node = children(node).find(child => labels[child] === label)
    if (node === undefined) return null
  }
  return node
}

/** The number in its level of the last box that begins at or before a place; -1 where none does. */
export function boxAt({ from }, place) {
  let [low, high] = [0, from.length]
  while (low < high) {
    const middle = (low + high) >>> 1
    if (from[middle] <= place) low = middle + 1
    else high = middle
  }
  return low - 1
}

/** The rank of each name among all. */
export function ranked(names) {
  const order = names.map((_, index) => index)
  order.sort((a, b) => (names[a] < names[b] ? -1 : names[a] > names[b] ? 1 : a - b))
  const ranks = new Int32Array(names.length)
  order.forEach((index, rank) => (ranks[index] = rank))
  return ranks
}
