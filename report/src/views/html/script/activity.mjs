// When what ran: samples counted by stretches of time, for tracks and for the heat map. Nothing here knows a screen.

import { firstFrom, isCalls, isTime } from './selection.mjs'

/**
 * Weights by row, state and stretch: `rows` gives each task's row or -1, `range` is cut into `bins`. `at(row, state)`
 * gives a row's stretches. Only stacks that count are counted; samples without a stack are states alone.
 */
export function activity(profile, counts, { rows, height, range: [from, to], bins }) {
  const { times, tasks, states, stacks, weights, about } = profile
  const kinds = about.states.length
  const sums = new Float64Array(height * kinds * bins)
  const scale = bins / Math.max(1, to - from)
  const isWait = isTime(profile)
  const startOf = sample => (rows[tasks[sample]] * kinds + states[sample]) * bins
  const isSeen = sample => rows[tasks[sample]] >= 0 && (!stacks[sample] || counts[stacks[sample]])
  if (isCalls(profile)) {
    pieces(profile, (sample, at, length) => {
      if (isSeen(sample)) spread(sums, startOf(sample), (at - from) * scale, length * scale, bins)
    })
  }
  const end = isCalls(profile) ? 0 : firstFrom(times, to)
  for (let sample = isWait ? 0 : firstFrom(times, from); sample < end; sample++) {
    if (!isSeen(sample)) continue
    const start = startOf(sample)
    if (isWait) spread(sums, start, (times[sample] - from) * scale, weights[sample] * scale, bins)
    else sums[start + Math.floor((times[sample] - from) * scale)] += weights ? weights[sample] : 1
  }
  return { at: (row, state) => sums.subarray((row * kinds + state) * bins, (row * kinds + state + 1) * bins) }
}

/**
 * Calls `take` with each piece of a call's own time: its sample, when the piece begins, and its length. While a call
 * that it makes goes on, a call's own time waits.
 */
function pieces({ times, tasks, weights }, take) {
  const threads = new Map()
  const pass = (thread, until) => {
    while (thread.calls.length && thread.now < until) {
      const call = thread.calls.at(-1)
      const length = Math.min(call.left, until - thread.now)
      if (length > 0) take(call.sample, thread.now, length)
      call.left -= length
      thread.now += length
      if (call.left <= 0) thread.calls.pop()
    }
    if (!thread.calls.length) thread.now = until
  }
  for (let sample = 0; sample < times.length; sample++) {
    const task = tasks[sample]
    if (!threads.has(task)) threads.set(task, { now: times[sample], calls: [] })
    const thread = threads.get(task)
    pass(thread, times[sample])
    thread.calls.push({ sample, left: weights?.[sample] ?? 1 })
  }
  for (const thread of threads.values()) pass(thread, Infinity)
}

/** Adds to each stretch what of a wait, or of a piece of a call, lies in it. */
function spread(sums, start, from, length, bins) {
  const [first, last] = [Math.max(0, from), Math.min(bins, from + length)]
  for (let bin = Math.floor(first); bin < last; bin++) {
    sums[start + bin] += Math.min(last, bin + 1) - Math.max(first, bin)
  }
}

/** Rows that a column of the heat map is cut into, and its most columns. */
const HEAT_ROWS = 50
const HEAT_COLUMNS_MAX = 600

/**
 * A heat map: a column a second, or several seconds where there are too many; its parts upwards. A cell has the weights
 * in its time: samples, or nanoseconds.
 */
export function heat(profile, counts, tasks, end) {
  const { times, stacks, weights, about } = profile
  const second = 1e9 / about.tick_ns
  const column = Math.max(1, Math.ceil(end / second / HEAT_COLUMNS_MAX)) * second
  const columns = Math.max(1, Math.ceil(end / column))
  const cells = new Float64Array(columns * HEAT_ROWS)
  const cell = column / HEAT_ROWS
  const isLong = isTime(profile) || isCalls(profile)
  const isSeen = sample => counts[stacks[sample]] && (!tasks || tasks.has(profile.tasks[sample]))
  const put = (sample, at, length) => isSeen(sample) && spread(cells, 0, at / cell, length / cell, cells.length)
  if (isCalls(profile)) pieces(profile, put)
  for (let sample = 0; sample < times.length && !isCalls(profile); sample++) {
    if (isLong) put(sample, times[sample], weights[sample])
    else if (isSeen(sample)) cells[Math.floor(times[sample] / cell)] += weights ? weights[sample] : 1
  }
  // Of waits and calls they have the number of threads in them.
  if (isLong) cells.forEach((threads, at) => (cells[at] = threads * cell * about.tick_ns))
  return { columns, rows: HEAT_ROWS, cell, cells, most: cells.reduce((most, one) => Math.max(most, one), 0) }
}
