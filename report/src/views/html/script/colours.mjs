// Colours of boxes. They mean the same as in the SVG of `--flame`: orange is the kernel, aqua is inlined, yellow and
// red are functions of processes; what has no name is grey. Processes and threads are lavender.

import { INLINED, KERNEL, MADE, UNKNOWN } from './profile.mjs'

/** What a box's colour tells. */
export const COLOURINGS = [
  ['kind', 'kernel, user, inlined'],
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

function mixed(colouring, { name, module, flags }) {
  const shade = hashed(name)
  if (flags & MADE) return 'hsl(255 34% 84%)'
  if (colouring === 'module') return `hsl(${Math.floor(hashed(module) * 360)} 62% ${68 + Math.floor(shade * 9)}%)`
  if (colouring === 'name') return `hsl(${Math.floor(shade * 360)} 66% 72%)`
  if (flags & KERNEL) return `hsl(28 92% ${62 + Math.floor(shade * 11)}%)`
  if (flags & UNKNOWN) return `hsl(210 8% ${72 + Math.floor(shade * 10)}%)`
  if (flags & INLINED) return `hsl(180 52% ${66 + Math.floor(shade * 11)}%)`
  return `hsl(${name.includes('::') ? 50 : 8} 84% ${68 + Math.floor(shade * 10)}%)`
}

/** What the colours of a colouring are called, for the legend. */
export function legendOf(colouring) {
  const one = (name, flags, of = 'f') => [name, colourOf('kind', { name: of, module: '', flags })]
  if (colouring === 'found') return [...WAYS, SEVERAL, UNTOLD]
  if (colouring !== 'kind') return []
  return [
    one('kernel', KERNEL),
    one('user', 0),
    one('user, with a path', 0, 'a::f'),
    one('inlined', INLINED),
    one('no name', UNKNOWN),
    one('process, thread', MADE),
  ]
}
