// Stacks of a tree in forms of other programs: folded lines, and speedscope's JSON.

/** Calls `each` with the groups of a stack, outermost first, and what it weighs. */
function stacks({ labels, parents, own }, each) {
  for (let node = 1; node < labels.length; node++) {
    if (own[node] <= 0) continue
    const frames = []
    for (let at = node; at > 0; at = parents[at]) frames.push(labels[at])
    each(frames.reverse(), own[node])
  }
}

/** A frame of a line: its name may end neither the frame nor, with a number, the stack, as in `export -f folded`. */
function frameOf(name) {
  return name.replaceAll(';', ':').replace(/ ([\d.]*)$/u, '\u00a0$1')
}

/** A line a stack, as flamegraph.pl and others read it; times in whole microseconds, as `export -f folded` has them. */
export function foldedText(tree, nameOf, unit) {
  const lines = []
  const width = weight => (unit === 'samples' ? weight : Math.max(1, Math.round(weight / 1000)))
  stacks(tree, (frames, weight) => {
    lines.push(`${frames.map(frame => frameOf(nameOf(frame))).join(';')} ${width(weight)}`)
  })
  return `${lines.sort().join('\n')}\n`
}

/** The stacks for speedscope.app (its file-format-spec), as one profile. */
export function speedscope(tree, about, { name, unit }) {
  const [frames, numbers] = [[], new Map()]
  const [samples, weights] = [[], []]
  stacks(tree, (groups, weight) => {
    samples.push(
      groups.map(group => {
        if (!numbers.has(group)) {
          const { name, module } = about(group)
          numbers.set(group, frames.push(module ? { name, file: module } : { name }) - 1)
        }
        return numbers.get(group)
      }),
    )
    weights.push(weight)
  })
  return {
    $schema: 'https://www.speedscope.app/file-format-schema.json',
    exporter: 'uniprof',
    name,
    shared: { frames },
    profiles: [
      {
        type: 'sampled',
        name,
        unit: unit === 'samples' ? 'none' : 'nanoseconds',
        startValue: 0,
        endValue: tree.total[0],
        samples,
        weights,
      },
    ],
  }
}
