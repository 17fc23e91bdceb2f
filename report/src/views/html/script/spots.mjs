// What lines and instructions weigh: stacks and what they weigh go in, and which line or instruction each label is at;
// sums come out, by the rules of `uniprof report --annotate`. No DOM.

/**
 * Of each spot what it weighs: `own` where the innermost frame that is seen is at it, `total` where any is, each sample
 * once. `at` has for each label the number of its spot, below `count`, or -1. `seen` tells which labels are shown.
 */
export function weighSpots({ parents, frames }, seen, weights, at, count) {
  const [own, total] = [new Float64Array(count), new Float64Array(count)]
  const below = weights.slice()
  for (let node = below.length - 1; node > 0; node--) below[parents[node]] += below[node]
  // Of each stack, the spot of its innermost frame and its depth; of the path to it, spots and how often each is in it.
  const [leaf, depths] = [new Int32Array(parents.length).fill(-1), new Int32Array(parents.length)]
  const [path, open] = [[], new Uint32Array(count)]
  for (let node = 1; node < parents.length; node++) {
    if (below[node] === 0) continue
    const label = frames[node]
    const spot = seen[label] ? at[label] : -1
    leaf[node] = seen[label] ? spot : leaf[parents[node]]
    depths[node] = depths[parents[node]] + 1
    while (path.length >= depths[node]) {
      const left = path.pop()
      if (left >= 0) open[left]--
    }
    path.push(spot)
    if (spot >= 0 && open[spot]++ === 0) total[spot] += below[node]
    if (leaf[node] >= 0) own[leaf[node]] += weights[node]
  }
  return { own, total }
}
