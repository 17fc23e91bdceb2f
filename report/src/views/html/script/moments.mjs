// The flame chart: stacks of single tasks in the order of time. A task's samples go in; boxes come out, each with its
// group, its level and the stretch of time in which nothing else was seen there.

import { firstFrom, isCalls, isTime } from './selection.mjs'

/** Boxes deeper than this are not drawn. */
export const LEVELS_MAX = 128

/**
 * The boxes of one task between two times, which are cut into `slots`: of each the first sample is drawn. `period` is
 * how long a sample stands for, at most.
 */
export function chart(profile, filter, task, { range: [from, to], slots, period }) {
  if (isCalls(profile)) return chartOfCalls(profile, filter, task, { range: [from, to], slots })
  const { times, tasks, stacks, weights } = profile
  const isWait = isTime(profile)
  const slot = Math.max(1, (to - from) / slots)
  const boxes = []
  // By level, the boxes that may go on.
  const open = []
  let [depth, until, taken] = [0, -Infinity, -Infinity]
  const close = level => (open.length = Math.min(open.length, level))
  for (let sample = isWait ? 0 : firstFrom(times, from); sample < times.length; sample++) {
    const start = times[sample]
    if (start >= to) break
    if (tasks[sample] !== task || !filter.counts[stacks[sample]]) continue
    const end = start + (profile.about.unit === 'samples' ? period : (weights?.[sample] ?? 1))
    if (end <= from) continue
    // In a slot that has a sample already, it only lasts longer.
    if (Math.floor((start - from) / slot) === taken) {
      for (const box of open) box.to = Math.max(box.to, end)
      until = Math.max(until, end)
      continue
    }
    taken = Math.floor((start - from) / slot)
    if (start > until + slot) close(0)
    const path = pathOf(profile, filter, stacks[sample])
    let level = 0
    while (level < open.length && level < path.length && open[level].group === path[level][0]) level++
    for (const box of open) box.to = start
    close(level)
    for (const box of open) box.to = end
    for (; level < Math.min(path.length, LEVELS_MAX); level++) {
      const [group, ways] = path[level]
      open.push({ group, level, from: start, to: end, found: ways })
      boxes.push(open[level])
    }
    until = end
    depth = Math.max(depth, Math.min(path.length, LEVELS_MAX))
  }
  return { boxes, depth }
}

/** The groups of a stack's frames that are seen, outermost first, each with how it was found. */
function pathOf({ parents, frames, found }, { seen, groups }, stack) {
  const path = []
  for (let node = stack; node > 0; node = parents[node]) {
    if (seen[frames[node]]) path.push([groups[frames[node]], found[node]])
  }
  return path.reverse()
}

/**
 * The same of calls, which come in the order in which they begin. A call lasts for its own time and that of the calls
 * which it makes. Calls that are shorter than a slot are boxes only where they are the first in it.
 */
function chartOfCalls(profile, filter, task, { range: [from, to], slots }) {
  const { times, tasks, stacks, weights } = profile
  const slot = Math.max(1, (to - from) / slots)
  const slotOf = time => Math.floor((time - from) / slot)
  const boxes = []
  // By level, the last box, which may go on.
  const open = []
  for (let sample = 0; sample < times.length; sample++) {
    const start = times[sample]
    if (start >= to) break
    if (tasks[sample] !== task || !filter.counts[stacks[sample]]) continue
    const own = weights?.[sample] ?? 1
    const path = pathOf(profile, filter, stacks[sample]).slice(0, LEVELS_MAX)
    // Callers go on, also those whose end is not in the trace: their own time isn't known.
    let level = 0
    const isCaller = () => level < path.length - 1
    const goesOn = (box, group) => box?.group === group && (start < box.to || start === box.from || isCaller())
    for (; level < path.length && goesOn(open[level], path[level][0]); level++) {
      open[level].to = Math.max(open[level].to, start) + own
    }
    for (; level < path.length; level++) {
      const before = open[level]
      if (before && before.from >= from && slotOf(before.from) === slotOf(start) && own < slot) break
      open.length = level
      const [group, ways] = path[level]
      open.push({ group, level, from: start, to: start + Math.max(1, own), found: ways })
      boxes.push(open[level])
    }
  }
  const shown = boxes.filter(box => box.to > from)
  return { boxes: shown, depth: shown.reduce((depth, { level }) => Math.max(depth, level + 1), 0) }
}

/** How long a sample stands for: the usual time between two of a task. */
export function usualPeriod({ times, tasks }) {
  const [last, steps] = [new Map(), []]
  const step = Math.max(1, Math.floor(times.length / 20000))
  for (let sample = 0; sample < times.length && steps.length < 4000; sample++) {
    const before = last.get(tasks[sample])
    if (before !== undefined && times[sample] > before && sample % step === 0) steps.push(times[sample] - before)
    last.set(tasks[sample], times[sample])
  }
  steps.sort((a, b) => a - b)
  return steps[Math.floor(steps.length / 2)] ?? 1
}
