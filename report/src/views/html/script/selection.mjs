// What is looked at: a stretch of time, some tasks, and what filters leave of the stacks. A profile and a selection go
// in; what each stack weighs, and which of its frames are seen, come out. The rules are those of `uniprof report`'s
// flags --from, --to, --vcpu, --focus, --ignore, --hide and --no-inlines.

import { INLINED, MADE, nameOf } from './profile.mjs'

/** Everything: `to` is the first step of time behind it, `tasks` is a set of their numbers, or null. */
export const ALL = {
  from: 0,
  to: Infinity,
  tasks: null,
  focus: '',
  ignore: '',
  hide: '',
  inlines: true,
}

/** A regular expression as the user wrote it; throws a message to a person. */
export function expression(text) {
  if (!text) return null
  try {
    return new RegExp(text, 'u')
  } catch (error) {
    throw new Error(`${text} is no regular expression: ${error.message.replace(/^.*: /, '')}`)
  }
}

/** An expression that matches a text as it stands. */
export function escaped(text) {
  return text.replace(/[\\^$.*+?()[\]{}|/]/g, '\\$&')
}

/** What is sought, in small or large letters: an expression, or what is none as it stands. */
export function sought(text) {
  try {
    return new RegExp(expression(text).source, 'iu')
  } catch {
    // Half written, or text that is meant as it stands.
    return new RegExp(escaped(text), 'iu')
  }
}

/**
 * What filters make of the stacks: `seen` tells for each label whether it is shown, `counts` for each stack whether it
 * counts at all. What has no stack is a state alone, and never counts.
 */
export function filtered(profile, { focus, ignore, hide, inlines }) {
  const { labels, parents, frames } = profile
  const [focused, ignored, hidden] = [focus, ignore, hide].map(expression)
  const seen = new Uint8Array(labels.count).fill(1)
  // Bits: 1 focused on, 2 ignored.
  const says = new Uint8Array(labels.count)
  // A function at many lines is asked for once.
  const asked = new Map()
  const ask = name => {
    const passes = (focused?.test(name) ? 1 : 0) | (ignored?.test(name) ? 2 : 0)
    return { passes, isHidden: !!hidden?.test(name) }
  }
  for (let label = 0; label < labels.count; label++) {
    const flags = labels.flags[label]
    if (flags & MADE) continue
    if (!inlines && flags & INLINED) {
      seen[label] = 0
      continue
    }
    const text = labels.names[label]
    if (!asked.has(text)) asked.set(text, ask(nameOf(profile, label)))
    const { passes, isHidden } = asked.get(text)
    says[label] = passes
    if (isHidden) seen[label] = 0
  }
  const counts = new Uint8Array(parents.length)
  const passed = new Uint8Array(parents.length)
  for (let node = 1; node < parents.length; node++) {
    const here = passed[parents[node]] | says[frames[node]]
    passed[node] = here
    counts[node] = !(here & 2) && (!focused || here & 1) ? 1 : 0
  }
  return { seen, counts }
}

/** The first sample at or after a time. */
export function firstFrom(times, time) {
  let [low, high] = [0, times.length]
  while (low < high) {
    const middle = (low + high) >>> 1
    if (times[middle] < time) low = middle + 1
    else high = middle
  }
  return low
}

/** Whether samples have lengths: waits, of which a part may be selected. */
export function isTime(profile) {
  return profile.about.unit === 'time off CPU'
}

/** Whether the samples are calls of a trace: what one weighs is its own time, and those that it makes come later. */
export function isCalls(profile) {
  return profile.about.unit === 'time in calls'
}

/** Calls `take` with the number of each sample that is selected and counts, and what it weighs. */
export function selected(profile, { from, to, tasks }, counts, take) {
  const { times, stacks, weights } = profile
  const isWait = isTime(profile)
  const [first, end] = [isWait ? 0 : firstFrom(times, from), firstFrom(times, to)]
  const mask = tasks && Uint8Array.from(profile.about.tasks, (_, task) => (tasks.has(task) ? 1 : 0))
  for (let sample = first; sample < end; sample++) {
    if (mask && !mask[profile.tasks[sample]]) continue
    if (!counts[stacks[sample]]) continue
    const weight = weights ? weights[sample] : 1
    take(sample, isWait ? within(times[sample], weight, from, to) : weight)
  }
}

/** What each stack weighs in the selection, by its number, and all of them. */
export function weigh(profile, look, counts) {
  const { stacks } = profile
  const own = new Float64Array(profile.parents.length)
  selected(profile, look, counts, (sample, weight) => {
    own[stacks[sample]] += weight
  })
  let all = 0
  for (const weight of own) all += weight
  return { own, all }
}

/** What of a wait lies between two times: both are in nanoseconds. */
function within(start, length, from, to) {
  return Math.max(0, Math.min(start + length, to) - Math.max(start, from))
}
