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
    Object.assign(this, { model, change, told, drag: null })
    this.canvas = element('canvas', {
      class: 'heatmap',
      tabindex: 0,
      role: 'img',
      'aria-label': 'Heat map: a column a second, its parts upwards. Drag to select; the time line has keys for it',
      onpointerdown: event => {
        this.canvas.setPointerCapture(event.pointerId)
        this.drag = this.cellAt(event)
      },
      onpointermove: event => this.move(event),
      onpointerup: event => this.release(event),
      onpointerleave: () => this.told(''),
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

  move(event) {
    const cell = this.cellAt(event)
    const { about } = this.model.profile
    const from = moment(cell * this.map.cell * about.tick_ns, 1e7)
    this.told(`from ${from}: ${amount(Math.round(this.map.cells[cell]), about.unit)}`)
    if (this.drag !== null && cell !== this.drag) this.change(this.times(this.drag, cell))
  }

  release(event) {
    if (this.drag !== null) this.change(this.times(this.drag, this.cellAt(event)))
    this.drag = null
  }
}
