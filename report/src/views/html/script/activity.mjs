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
  const isLong = isTime(profile) || isCalls(profile)
  const end = firstFrom(times, to)
  for (let sample = isLong ? 0 : firstFrom(times, from); sample < end; sample++) {
    const row = rows[tasks[sample]]
    const stack = stacks[sample]
    if (row < 0 || (stack && !counts[stack])) continue
    const start = (row * kinds + states[sample]) * bins
    if (isLong) spread(sums, start, (times[sample] - from) * scale, weights[sample] * scale, bins)
    else sums[start + Math.floor((times[sample] - from) * scale)] += weights ? weights[sample] : 1
  }
  return { at: (row, state) => sums.subarray((row * kinds + state) * bins, (row * kinds + state + 1) * bins) }
}

/** Adds to each stretch what of a wait, or of a call, lies in it. */
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
  for (let sample = 0; sample < times.length; sample++) {
    if (!counts[stacks[sample]] || (tasks && !tasks.has(profile.tasks[sample]))) continue
    const at = times[sample] / cell
    if (isLong) spread(cells, 0, at, weights[sample] / cell, cells.length)
    else cells[Math.floor(at)] += weights ? weights[sample] : 1
  }
  // Of waits and calls they have the number of threads in them.
  if (isLong) cells.forEach((threads, at) => (cells[at] = threads * cell * about.tick_ns))
  return { columns, rows: HEAT_ROWS, cell, cells, most: cells.reduce((most, one) => Math.max(most, one), 0) }
}
