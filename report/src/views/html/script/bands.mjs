// The phases of a boot as bands, between the axis of the time line and its tracks.

import { fitted } from './names.mjs'
import { ink } from './surface.mjs'

/** Rows of bands: phases of several boots or processes may overlap. */
const BAND_ROWS_MAX = 4

/**
 * Bands as objects: `from` and `to` in steps of time, `name`, and the `row` in which they are drawn: the first one where
 * they meet no other, or -1 where each has one.
 */
export function bands({ about }) {
  const ends = []
  const inOrder = (about.bands ?? []).map(([, from, to, name]) => ({ from, to, name })).sort((a, b) => a.from - b.from)
  return inOrder.map(band => {
    const free = ends.findIndex(end => end <= band.from)
    const row = free < 0 ? ends.length : free
    if (row === BAND_ROWS_MAX) return { ...band, row: -1 }
    ends[row] = Math.max(band.to, band.from + 1)
    return { ...band, row }
  })
}

/** Number of rows of bands. */
export const rowsOf = all => all.reduce((rows, { row }) => Math.max(rows, row + 1), 0)

/** Draws bands; `x` is where a time is, `top` and `high` are of the first row, `letter` is the width of one. */
export function drawBands(pen, all, { x, width, top, high, letter }) {
  all.forEach(({ from, to, name, row }, number) => {
    const left = Math.max(0, x(from))
    const right = Math.min(width, x(to))
    if (row < 0 || left >= width || right < 0) return
    const y = top + row * high
    pen.fillStyle = ink('link')
    pen.globalAlpha = number % 2 ? 0.14 : 0.28
    pen.fillRect(left, y, Math.max(1, right - left), high - 1)
    pen.globalAlpha = 1
    pen.fillRect(left, y, 1, high - 1)
    pen.fillStyle = ink('ink')
    pen.textAlign = 'left'
    pen.fillText(fitted(name, Math.floor((right - left - 6) / letter)), left + 4, y + high / 2)
  })
}
