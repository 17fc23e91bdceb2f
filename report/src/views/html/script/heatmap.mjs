// The heat map of parts of seconds: a column a second, its parts upwards, darker where there was more. Dragging selects
// the time from the first cell to the last.

import { amount, moment } from './amounts.mjs'
import { heat } from './activity.mjs'
import { element } from './element.mjs'
import { Surface, ink } from './surface.mjs'

const CELL = 6
const BELOW = 20

export class HeatMap {
  constructor(model, { change, told }) {
    Object.assign(this, { model, change, told, drag: null, cursor: 0, anchor: null })
    this.canvas = element('canvas', {
      class: 'heatmap',
      tabindex: 0,
      role: 'application',
      'aria-roledescription': 'heat map',
      'aria-label':
        'Heat map: a column a second, its parts upwards. Drag to select, or arrows with Shift; Enter selects one, Escape all',
      onpointerdown: event => {
        if (event.button !== 0) return
        this.canvas.setPointerCapture(event.pointerId)
        this.drag = this.cellAt(event)
      },
      onpointermove: event => this.move(event),
      onpointerup: event => this.release(event),
      onpointercancel: () => (this.drag = null),
      onpointerleave: () => this.told(''),
      onkeydown: event => this.key(event),
      onfocus: () => this.draw(),
      onblur: () => this.draw(),
    })
    this.surface = new Surface(this.canvas, () => this.draw())
    this.element = element('div', { class: 'picture' }, this.canvas)
  }

  draw() {
    const { profile, look, end } = this.model
    const { counts } = this.model.filter()
    const map = this.model.once('heat', [counts, look.tasks], () => heat(profile, counts, look.tasks, end))
    this.map = map
    const pen = this.surface.clear(map.rows * CELL + BELOW)
    if (!pen) return
    const wide = this.wide()
    const [first, last] = [look.from / map.cell, Math.min(look.to, end) / map.cell]
    const [warm, soft] = [ink('self'), ink('soft')]
    for (let cell = 0; cell < map.cells.length; cell++) {
      if (map.cells[cell] <= 0) continue
      const [x, y] = this.place(cell, wide)
      const isIn = cell + 1 > first && cell < last
      pen.globalAlpha = 0.12 + 0.88 * Math.sqrt(map.cells[cell] / map.most)
      pen.fillStyle = isIn ? warm : soft
      pen.fillRect(x, y, Math.max(1, wide - 1), CELL - 1)
    }
    pen.globalAlpha = 1
    this.cursor = Math.min(this.cursor, map.rows * map.columns - 1)
    if (document.activeElement === this.canvas) {
      const [x, y] = this.place(this.cursor, wide)
      pen.strokeStyle = ink('ink')
      pen.lineWidth = 1.5
      pen.strokeRect(x, y, Math.max(2, wide - 1), CELL - 1)
    }
    pen.fillStyle = soft
    const every = Math.max(1, Math.ceil(70 / wide))
    for (let column = 0; column < map.columns; column += every) {
      const text = moment(column * map.cell * map.rows * profile.about.tick_ns, 1e9)
      pen.fillText(text, column * wide + 2, map.rows * CELL + BELOW / 2)
    }
  }

  wide() {
    return Math.min(80, this.surface.width / this.map.columns)
  }

  place(cell, wide) {
    const { rows } = this.map
    return [Math.floor(cell / rows) * wide, (rows - 1 - (cell % rows)) * CELL]
  }

  cellAt(event) {
    const { x, y } = this.surface.at(event)
    const { rows, columns } = this.map
    const column = Math.max(0, Math.min(columns - 1, Math.floor(x / this.wide())))
    return column * rows + Math.max(0, Math.min(rows - 1, rows - 1 - Math.floor(y / CELL)))
  }

  times(one, other) {
    const [first, last] = [Math.min(one, other), Math.max(one, other)]
    return { from: Math.floor(first * this.map.cell), to: Math.ceil((last + 1) * this.map.cell) }
  }

  key(event) {
    const { rows, columns } = this.map
    const steps = { ArrowUp: 1, ArrowDown: -1, ArrowRight: rows, ArrowLeft: -rows }
    const step = steps[event.key]
    if (step === undefined && event.key !== 'Enter' && event.key !== 'Escape') return
    event.preventDefault()
    if (event.key === 'Escape') return this.change({ from: 0, to: Infinity })
    if (event.key === 'Enter') return this.change(this.times(this.cursor, this.cursor))
    this.anchor = event.shiftKey ? (this.anchor ?? this.cursor) : null
    this.cursor = Math.max(0, Math.min(rows * columns - 1, this.cursor + step))
    this.tell(this.cursor)
    if (event.shiftKey) this.change(this.times(this.anchor, this.cursor))
    else this.draw()
  }

  move(event) {
    const cell = this.cellAt(event)
    this.tell(cell)
    if (this.drag !== null && cell !== this.drag) this.change(this.times(this.drag, cell))
  }

  tell(cell) {
    const { about } = this.model.profile
    const from = moment(cell * this.map.cell * about.tick_ns, 1e7)
    this.told(`from ${from}: ${amount(Math.round(this.map.cells[cell] ?? 0), about.unit)}`)
  }

  release(event) {
    if (this.drag !== null) this.change(this.times(this.drag, this.cellAt(event)))
    this.drag = null
  }
}
