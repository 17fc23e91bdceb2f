// Numbers as the terminal has them: shares with one digit, times with three.

/** The number with so many digits behind the point; what lies in the middle goes to the even digit, as in Rust. */
function fixed(number, digits) {
  // The only doubles that lie in the middle are odd multiples of this power of two. toFixed takes the larger digit.
  const isMiddle = (number * 2 ** (digits + 1)) % 2 === 1
  const lower = Math.floor(number * 10 ** digits)
  return (isMiddle && lower % 2 === 0 ? lower / 10 ** digits : number).toFixed(digits)
}

/** A part of a whole as a percentage with one digit. */
export function share(part, whole) {
  return whole ? `${fixed((part * 100) / whole, 1)}%` : '-'
}

/** A duration, in the unit in which it is less than a thousand, as rounded. */
export function duration(ns) {
  if (ns < 1e3) return `${ns} ns`
  if (ns < 999_950) return `${fixed(ns / 1e3, 1)} us`
  if (ns < 999_950_000) return `${fixed(ns / 1e6, 1)} ms`
  return `${fixed(ns / 1e9, 2)} s`
}

/** A weight for tables. A unit is `samples`, or `time` with what it is of. */
export function amount(weight, unit) {
  return unit === 'samples' ? `${weight}` : duration(weight)
}

/** A weight in a sentence. */
export function phrase(weight, unit) {
  return `${amount(weight, unit)} ${unit.replace(/^time /, '')}`
}

/** A time since the start, as fine as `step_ns` asks for. */
export function moment(ns, step_ns = 1e6) {
  const digits = Math.min(9, Math.max(0, Math.ceil(-Math.log10(step_ns / 1e9))))
  return `${(ns / 1e9).toFixed(digits)} s`
}
