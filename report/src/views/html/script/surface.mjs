// A canvas that is as wide as its place and as sharp as the screen. Its height follows from its attributes, so that it
// needs no style of its own.

/** The height of a line of boxes, and the letters on them, in CSS pixels. */
export const LINE = 18
export const FONT = '12px ui-monospace, "SF Mono", Menlo, Consolas, "DejaVu Sans Mono", monospace'

export class Surface {
  /** `redraw` is called when the width changes. */
  constructor(canvas, redraw) {
    this.canvas = canvas
    this.pen = canvas.getContext('2d')
    this.width = 0
    new ResizeObserver(() => {
      if (canvas.clientWidth && canvas.clientWidth !== this.width) redraw()
    }).observe(canvas)
    matchMedia('(prefers-color-scheme: dark)').addEventListener('change', redraw)
  }

  /** Makes it empty and so high; gives the pen, or null where nothing can be seen. */
  clear(height) {
    const { canvas, pen } = this
    const scale = window.devicePixelRatio || 1
    this.width = canvas.clientWidth
    this.height = height
    if (!this.width) return null
    const [wide, high] = [Math.round(this.width * scale), Math.round(height * scale)]
    if (canvas.width !== wide) canvas.width = wide
    if (canvas.height !== high) canvas.height = high
    pen.setTransform(wide / this.width, 0, 0, high / height, 0, 0)
    pen.clearRect(0, 0, this.width, height)
    pen.font = FONT
    pen.textBaseline = 'middle'
    pen.direction = 'ltr'
    this.letter ??= pen.measureText('M'.repeat(20)).width / 20
    return pen
  }

  /** Where a pointer is, in CSS pixels. */
  at(event) {
    const place = this.canvas.getBoundingClientRect()
    return { x: event.clientX - place.left, y: ((event.clientY - place.top) * this.height) / place.height }
  }
}

/** A colour of the page's style. */
export function ink(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim()
}
