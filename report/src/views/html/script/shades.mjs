// Colours of change: red grew, blue shrank. What is certain is strong, what isn't is pale. Letters on them are dark.

/** The change of a share that has the full colour. */
const FULL = 0.05

/** The colour of a box: by how much its share changed, and the verdict that is about it. */
export function shadeOf(change, verdict) {
  const is = verdict?.certain
  const grew = (is ? verdict.change : change) > 0
  const depth = Math.min(1, Math.abs(change) / FULL)
  if (is) return grew ? `hsl(6 86% ${70 - 8 * depth}%)` : `hsl(212 84% ${72 - 8 * depth}%)`
  if (Math.abs(change) < 0.0005) return 'hsl(215 10% 84%)'
  return grew ? `hsl(6 50% ${92 - 8 * depth}%)` : `hsl(212 50% ${92 - 8 * depth}%)`
}

/** What stands before the name of a box: the verdict for whoever sees no colours. */
export function markOf(verdict) {
  return verdict?.certain ? (verdict.change > 0 ? '▲ ' : '▼ ') : ''
}

/** What the colours say, for the legend. */
export const SHADES = [
  ['▲ grew, certain', shadeOf(FULL, { certain: true, change: FULL })],
  ['▼ shrank, certain', shadeOf(-FULL, { certain: true, change: -FULL })],
  ['larger, not certain', shadeOf(FULL)],
  ['smaller, not certain', shadeOf(-FULL)],
  ['as before', shadeOf(0)],
]
