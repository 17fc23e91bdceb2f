// The two sides of a comparison: the page's one profile goes in, a profile for A and one for B come out, with the same
// names and stacks, and each with its own recordings, tasks and samples.

/** The profiles of A and of B; a profile that is not of a comparison has none. */
export function sides(profile) {
  const { about } = profile
  if (!about.sides) return null
  let first = 0
  return about.sides.map(side => {
    const recordings = [first, (first += side.recordings)]
    return sideOf(profile, side, recordings)
  })
}

function sideOf(profile, side, [first, end]) {
  const { about, tasks, times, states, stacks, weights } = profile
  const mine = about.tasks.flatMap(([recording], task) => (recording >= first && recording < end ? [task] : []))
  const numbers = new Int32Array(about.tasks.length).fill(-1)
  mine.forEach((task, number) => (numbers[task] = number))
  const kept = Uint32Array.from(tasks.keys()).filter(sample => numbers[tasks[sample]] >= 0)
  const taken = (column, of = one => one) => new column.constructor(kept.length).map((_, at) => of(column[kept[at]]))
  return {
    ...profile,
    times: taken(times),
    tasks: taken(tasks, task => numbers[task]),
    states: taken(states),
    stacks: taken(stacks),
    weights: weights && taken(weights),
    about: {
      ...about,
      counted: side.counted,
      length_ns: side.length_ns,
      recordings: about.recordings.slice(first, end),
      lapses: about.lapses
        .filter(([recording]) => recording >= first && recording < end)
        .map(([recording, from, to, task, what]) => [recording - first, from, to, task === null ? null : numbers[task], what]),
      tasks: mine.map(task => [about.tasks[task][0] - first, ...about.tasks[task].slice(1)]),
    },
  }
}
