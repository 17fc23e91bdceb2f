// What is selected, in a line, and as flags of the terminal.

import { moment, phrase, share } from './amounts.mjs'
import { element } from './element.mjs'
import { FILTERS } from './filters.mjs'

/** How much of a recording is selected, and which part, as text and elements. */
export function summaryOf(model) {
  const { look, profile, end } = model
  const { unit, counted, tick_ns, tasks } = profile.about
  const { all } = model.weights()
  const isPart = look.from > 0 || look.to < Infinity
  const to = Math.min(look.to, end)
  const step = ((to - look.from) * tick_ns) / 1000
  const span = isPart
    ? `from ${moment(look.from * tick_ns, step)} to ${moment(to * tick_ns, step)}`
    : 'the whole recording'
  const some = look.tasks ? `, ${look.tasks.size} of ${tasks.length} tracks` : ''
  return [element('b', {}, phrase(all, unit)), `, ${share(all, counted)} of all: ${span}${some}`]
}

/** The flags of `uniprof report` that select the same, or a comment that says where none do. */
export function flagsOf({ look, profile }) {
  const { tick_ns, tasks } = profile.about
  const seconds = ticks => `${((ticks * tick_ns) / 1e9).toFixed(tick_ns < 1000 ? 9 : 6)}s`
  const quoted = text => `'${text.replaceAll("'", "'\\''")}'`
  const flags = []
  if (look.from > 0) flags.push(`--from ${seconds(look.from)}`)
  if (look.to < Infinity) flags.push(`--to ${seconds(look.to)}`)
  // Tasks of several recordings, or of several guests, may have one number.
  const numbers = new Set(Array.from(look.tasks ?? [], task => tasks[task][2]))
  const isAlone = tasks.every(([, , number], task) => look.tasks?.has(task) || !numbers.has(number))
  if (isAlone) for (const number of numbers) flags.push(`--vcpu ${number}`)
  for (const [name] of FILTERS) if (look[name]) flags.push(`--${name} ${quoted(look[name])}`)
  if (!look.inlines) flags.push('--no-inlines')
  if (!isAlone) flags.push('# --vcpu would select more tracks')
  return flags
}
