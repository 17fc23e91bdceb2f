// When something is missing: losses that the recorder counted, and damage of the file, for the time line.

/** Lapses as objects: `from` and `to` in steps of time, `task` or null, and `what` is missing. */
export function lapses({ about }) {
  return about.lapses.map(([, from, to, task, what]) => ({ from, to, task, what }))
}

/** What is missing at a time, or within `slack` of it, in words. */
export function missingAt(all, time, slack) {
  const found = all.filter(({ from, to }) => from - slack <= time && time <= to + slack)
  const told = found.slice(0, 3).map(({ what }) => what)
  if (found.length > told.length) told.push(`${found.length - told.length} more`)
  return told.length ? `; missing here: ${told.join('; ')}` : ''
}
