// Colours of boxes. They mean the same as in the SVG of `--flame` (report/src/views/flame/palette.rs).

import { INLINED, JIT, KERNEL, LIBRARY, MADE, UNKNOWN } from './profile.mjs'

/** What a box's colour tells. */
export const COLOURINGS = [
  ['kind', 'kind of code'],
  ['module', 'module'],
  ['name', 'name'],
  ['found', 'how the frame was found'],
]

/** How frames are found, by their bits in the profile, and the colour. */
const WAYS = [
  ['register or frame pointer', 'hsl(150 45% 68%)'],
  ['call frame information', 'hsl(212 70% 76%)'],
  ['a guess: a word on the stack', 'hsl(6 84% 72%)'],
  ['the trap frame', 'hsl(280 45% 80%)'],
]
const SEVERAL = ['in several ways', 'hsl(48 75% 72%)']
const UNTOLD = ['not told', 'hsl(215 12% 78%)']

/** How a frame with these bits was found: what it is called, and its colour. */
export function wayOf(bits) {
  if (!bits) return UNTOLD
  const way = Math.log2(bits)
  return Number.isInteger(way) ? (WAYS[way] ?? UNTOLD) : SEVERAL
}

/** How a frame with these bits was found, in words; empty where nobody says. */
export function foundBy(bits) {
  return WAYS.filter((_, way) => bits & (1 << way))
    .map(([name]) => name)
    .join(' and ')
}

/** A number below one that a text always has. */
function hashed(text) {
  let hash = 2166136261
  for (let at = 0; at < text.length; at++) hash = Math.imul(hash ^ text.charCodeAt(at), 16777619)
  return ((hash ^ (hash >>> 15)) >>> 0) / 2 ** 32
}

/** Colours by what they are of, one colouring at a time. */
let known = { colouring: '', colours: new WeakMap() }

/** The colour of a box; letters on it are dark. */
export function colourOf(colouring, of) {
  if (known.colouring !== colouring) known = { colouring, colours: new WeakMap() }
  let colour = known.colours.get(of)
  if (!colour) known.colours.set(of, (colour = mixed(colouring, of)))
  return colour
}

/** Kinds of code by their flag, the first that a label has, as hue, saturation and least lightness. */
const KINDS = [
  [MADE, 'process, thread', 250, 37, 84],
  [KERNEL, 'kernel', 28, 92, 62],
  [UNKNOWN, 'no name', 210, 8, 72],
  [INLINED, 'inlined', 180, 52, 66],
  [JIT, 'JIT', 112, 44, 66],
  [LIBRARY, 'library', 48, 84, 68],
]
const PROGRAM = [0, 'program', 7, 84, 69]

const kindOf = flags => KINDS.find(([flag]) => flags & flag) ?? PROGRAM

function mixed(colouring, { name, module, flags }) {
  const shade = Math.floor(hashed(name) * 11)
  if (colouring === 'module' && !(flags & MADE)) return `hsl(${Math.floor(hashed(module) * 360)} 62% ${68 + shade}%)`
  if (colouring === 'name' && !(flags & MADE)) return `hsl(${Math.floor(hashed(name) * 360)} 66% 72%)`
  const [, , hue, saturation, least] = kindOf(flags)
  return `hsl(${hue} ${saturation}% ${least + shade}%)`
}

/** What the colours of a colouring are called, for the legend: those of labels with these flags. */
export function legendOf(colouring, flags) {
  if (colouring === 'found') return [...WAYS, SEVERAL, UNTOLD]
  if (colouring !== 'kind') return []
  const found = new Set(Array.from(new Set(flags), kindOf))
  const shown = [PROGRAM, ...KINDS].filter(kind => found.has(kind))
  return shown.map(([, name, hue, saturation, least]) => [name, `hsl(${hue} ${saturation}% ${least}%)`])
}
