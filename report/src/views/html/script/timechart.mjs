// The flame chart: the stacks of tasks on one axis of time, which is that of the selection. A line on top of each task
// names it.

import { moment, duration } from './amounts.mjs'
import { colourOf, wayOf } from './colours.mjs'
import { element } from './element.mjs'
import { chart, usualPeriod } from './moments.mjs'
import { fitted } from './names.mjs'
import { LINE, Surface, ink } from './surface.mjs'

/** Tasks and levels that are drawn. */
const TASKS_MAX = 8
const LINES_MAX = 400

export class TimeChart {
  constructor(model, { told, picked, order }) {
    Object.assign(this, { model, told, picked, order, lanes: [], at: null })
    this.period = usualPeriod(model.profile) * 1.5
    this.canvas = element('canvas', {
      class: 'chart',
      tabindex: 0,
      role: 'application',
      'aria-roledescription': 'flame chart',
      'aria-label':
        'Flame chart: stacks of each vCPU or thread over the selected time. Arrows go from box to box, Enter picks one',
      onkeydown: event => this.key(event),
      onfocus: () => this.draw(),
      onblur: () => this.draw(),
      onpointermove: event => this.tell(this.boxAt(event)),
      onpointerleave: () => this.told(''),
      onclick: event => {
        const box = this.boxAt(event)
        if (box) this.picked(box.group)
      },
    })
    this.note = element('p', { class: 'note' })
    this.surface = new Surface(this.canvas, () => this.draw())
    this.element = element('div', { class: 'picture' }, this.canvas, this.note)
  }

  draw() {
    const { model } = this
    const { profile, look, end } = model
    const range = [Math.max(0, look.from), Math.min(look.to, end)]
    const { seen, counts } = model.filter()
    const { groups } = model.groups()
    const tasks = this.order.filter(task => !look.tasks || look.tasks.has(task))
    const slots = Math.max(50, this.canvas.clientWidth || 800)
    this.lanes = []
    let lines = 1
    for (const task of tasks.slice(0, TASKS_MAX)) {
      const made = chart(profile, { seen, counts, groups }, task, { range, slots, period: this.period })
      if (!made.boxes.length) continue
      if (lines + made.depth + 1 > LINES_MAX) break
      this.lanes.push({ task, top: lines, ...made })
      lines += made.depth + 1
    }
    const left = tasks.length - this.lanes.length
    this.note.textContent = left > 0 ? `${left} more are not drawn, or have nothing here: select them above.` : ''
    const pen = this.surface.clear(lines * LINE)
    if (!pen) return
    this.range = range
    const [soft, letters] = [ink('soft'), ink('ink')]
    pen.fillStyle = soft
    const { tick_ns } = profile.about
    const span = (range[1] - range[0]) * tick_ns
    pen.fillText(`${moment(range[0] * tick_ns, span / 1000)} and ${duration(span)} from there`, 3, LINE / 2)
    for (const lane of this.lanes) {
      pen.fillStyle = letters
      const [, , number, name] = profile.about.tasks[lane.task]
      pen.fillText(fitted(`${name} ${number}`, 60), 3, lane.top * LINE + LINE / 2)
      this.drawLane(pen, lane)
    }
    if (this.at) this.at = this.nearest(this.at.lane, this.at.box)
    if (this.at && document.activeElement === this.canvas) this.drawMark(pen, letters)
  }

  /** A frame around the box that keys are at. */
  drawMark(pen, colour) {
    const { box, lane } = this.at
    const scale = this.surface.width / (this.range[1] - this.range[0])
    const left = Math.max(0, (box.from - this.range[0]) * scale)
    const right = Math.min(this.surface.width, (box.to - this.range[0]) * scale)
    pen.strokeStyle = colour
    pen.lineWidth = 2
    pen.strokeRect(left + 1, (this.lanes[lane].top + 1 + box.level) * LINE + 1, Math.max(2, right - left - 2), LINE - 3)
  }

  /** The box of a lane that is next to a time, on this level or the deepest above it. */
  nearest(lane, { level, from }) {
    const at = Math.min(lane, this.lanes.length - 1)
    const near = this.lanes[at]?.boxes.filter(box => box.level === Math.min(level, this.lanes[at].depth - 1)) ?? []
    const far = box => Math.abs(box.from - from)
    const box = near.reduce((best, one) => (best && far(best) <= far(one) ? best : one), null)
    return box && { lane: at, box }
  }

  key(event) {
    const first = () => this.nearest(0, { level: 0, from: 0 })
    if (!this.at) this.at = first()
    if (!this.at) return
    const { lane, box } = this.at
    const { boxes } = this.lanes[lane]
    const beside = boxes.filter(one => one.level === box.level).sort((a, b) => a.from - b.from)
    const index = beside.indexOf(box)
    const to = one => (one ? { lane, box: one } : null)
    const meets = one => one.from < box.to && box.from < one.to
    const moves = {
      ArrowLeft: () => to(beside[index - 1]),
      ArrowRight: () => to(beside[index + 1]),
      ArrowDown: () =>
        to(boxes.find(one => one.level === box.level + 1 && meets(one))) ??
        (lane + 1 < this.lanes.length ? this.nearest(lane + 1, { level: 0, from: box.from }) : null),
      ArrowUp: () =>
        box.level > 0
          ? to(boxes.find(one => one.level === box.level - 1 && meets(one)))
          : lane > 0 && this.nearest(lane - 1, { level: Infinity, from: box.from }),
      Home: first,
    }
    if (event.key !== 'Enter' && !moves[event.key]) return
    event.preventDefault()
    if (event.key === 'Enter') return this.picked(box.group)
    this.at = moves[event.key]() || this.at
    this.tell(this.at.box)
    this.draw()
  }

  drawLane(pen, { boxes, top }) {
    const { model, range } = this
    const scale = this.surface.width / (range[1] - range[0])
    for (const { group, level, from, to, found } of boxes) {
      const left = Math.max(0, (from - range[0]) * scale)
      const right = Math.min(this.surface.width, (to - range[0]) * scale)
      const y = (top + 1 + level) * LINE
      const one = model.about(group)
      const { colour } = model.look
      pen.fillStyle = colour === 'found' ? wayOf(found)[1] : colourOf(colour, one)
      pen.fillRect(left, y, Math.max(0.7, right - left - 0.3), LINE - 1)
      const text = fitted(one.name, Math.floor((right - left - 6) / this.surface.letter))
      if (!text) continue
      pen.fillStyle = '#14171a'
      pen.fillText(text, left + 3, y + LINE / 2)
    }
  }

  boxAt(event) {
    const { x, y } = this.surface.at(event)
    const line = Math.floor(y / LINE)
    const lane = this.lanes.findLast(({ top }) => top < line)
    if (!lane) return null
    const time = this.range[0] + (x / this.surface.width) * (this.range[1] - this.range[0])
    const level = line - lane.top - 1
    return lane.boxes.find(box => box.level === level && box.from <= time && time < box.to) ?? null
  }

  tell(box) {
    if (!box) return this.told('')
    const { tick_ns } = this.model.profile.about
    const { name, module } = this.model.about(box.group)
    const where = module ? ` [${module}]` : ''
    const length = duration(Math.round((box.to - box.from) * tick_ns))
    return this.told(`${name}${where}: about ${length} from ${moment(box.from * tick_ns, 1e5)}`)
  }
}
