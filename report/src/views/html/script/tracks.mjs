// Time on top: a track for each vCPU or thread, and one for all. Dragging selects, the wheel zooms, keys do both; a
// click on a name selects that track alone, and with Ctrl adds it.

import { moment } from './amounts.mjs'
import { activity } from './activity.mjs'
import { bands, drawBands, rowsOf } from './bands.mjs'
import { button, element, swatch } from './element.mjs'
import { lapses, missingAt } from './lapses.mjs'
import { Surface, ink } from './surface.mjs'

const ROW = 22
const AXIS = 20
/** Tracks that are shown at first, and at most. */
const FIRST = 12
const MOST = 400
/** Times with something missing that are listed; all are drawn. */
const LAPSES_LISTED = 50

export class Tracks {
  /** `change` is told what was selected; `model` gives the profile. */
  constructor(model, { change, told }) {
    Object.assign(this, { model, change, told, view: [0, model.end], drag: null, isAll: false })
    const { tasks } = model.profile.about
    this.order = ordered(model)
    this.lapses = lapses(model.profile)
    this.bands = bands(model.profile)
    // Where the first track begins, below the axis and the bands.
    this.top = AXIS + rowsOf(this.bands) * ROW
    this.states = []
    for (const state of model.profile.states) this.states[state] = true
    this.lead = leadOf(model.profile)
    this.names = element('div', { class: 'names', role: 'group', 'aria-label': 'Tracks' })
    this.canvas = element('canvas', {
      class: 'tracks',
      tabindex: 0,
      role: 'application',
      'aria-roledescription': 'time line',
      'aria-label': 'Time: drag or arrows with Shift select, arrows move, plus and minus zoom, Escape selects all',
      onpointerdown: event => this.press(event),
      onpointermove: event => this.move(event),
      onpointerup: event => this.release(event),
      onpointercancel: () => (this.drag = null),
      onpointerleave: () => this.told(''),
      ondblclick: () => this.change({ from: 0, to: Infinity }),
      onkeydown: event => this.key(event),
    })
    this.canvas.addEventListener('wheel', event => this.wheel(event), { passive: false })
    this.surface = new Surface(this.canvas, () => this.draw())
    this.more = button('', () => ((this.isAll = !this.isAll), this.list(), this.draw()), {
      class: 'track',
      hidden: tasks.length <= FIRST,
    })
    this.legend = element('p', { class: 'legend' })
    this.rest = element('p', { class: 'note' })
    this.element = element('div', { class: 'timeline' }, this.names, this.canvas, this.more, this.rest)
    this.under = element('div', { class: 'under' }, this.legend, this.listOfBands(), this.listOfLapses())
    this.list()
  }

  /** The tracks that are shown, as buttons beside their rows. */
  list() {
    const { tasks, recordings } = this.model.profile.about
    this.shown = this.order.slice(0, this.isAll ? MOST : FIRST)
    const left = this.order.length - this.shown.length
    this.more.textContent = this.isAll ? 'Fewer tracks' : `${left} more tracks`
    this.rest.textContent = this.isAll && left ? `${left} have no track: only the row of all shows them` : ''
    const counts = new Map()
    for (const [, , , name] of tasks) counts.set(name, (counts.get(name) ?? 0) + 1)
    const all = button('all', () => this.change({ tasks: null }), { class: 'track', title: 'All tracks' })
    const rows = this.shown.map(task => {
      const [recording, space, number, name] = tasks[task]
      const file = recordings.length > 1 ? `${recordings[recording]}: ` : ''
      const title = `${file}${name}, number ${number}${space ? ` of process ${space}` : ''}`
      const pick = event => this.pick(task, event.ctrlKey || event.metaKey || event.shiftKey)
      const told = counts.get(name) > 1 && !name.includes(number) ? `${name} ${number}` : name
      return button(`${file}${told}`, pick, { class: 'track', title, 'data-task': task })
    })
    const phases = Array.from({ length: rowsOf(this.bands) }, () => element('div', { class: 'track' }, 'phases'))
    this.names.replaceChildren(...phases, all, ...rows)
  }

  /** The phases; each selects its time. */
  listOfBands() {
    const { tick_ns } = this.model.profile.about
    const items = this.bands.map(({ from, to, name }) => {
      const title = `${name}: ${moment(from * tick_ns, 1e5)} to ${moment(to * tick_ns, 1e5)}`
      return button(name, () => this.select(from, Math.max(to, from + 1)), { class: 'name', title })
    })
    return element('p', { class: 'phases', hidden: !items.length }, 'Phases:', ...items.flatMap(item => [' ', item]))
  }

  /** What is missing and when, in words; each selects its time. */
  listOfLapses() {
    const { tick_ns } = this.model.profile.about
    const items = this.lapses.slice(0, LAPSES_LISTED).map(({ from, to, what }) => {
      const step = Math.max(1, (to - from) * tick_ns) / 10
      const span = `${moment(from * tick_ns, step)} to ${moment(to * tick_ns, step)}`
      return element('li', {}, button(span, () => this.select(from, Math.max(to, from + 1)), { class: 'name' }), `: ${what}`)
    })
    const more = this.lapses.length - items.length
    if (more > 0) items.push(element('li', {}, `${more} more`))
    const count = this.lapses.length === 1 ? 'Once something is missing' : `${this.lapses.length} times something is missing`
    const list = [element('summary', {}, count), element('ul', {}, ...items)]
    return element('details', { class: 'lapses', hidden: !items.length }, ...list)
  }

  pick(task, isAdded) {
    const before = this.model.look.tasks
    const tasks = new Set(isAdded ? before : [])
    if (before?.has(task) && (isAdded || before.size === 1)) tasks.delete(task)
    else tasks.add(task)
    this.change({ tasks: tasks.size ? tasks : null })
  }

  draw() {
    const { profile, look } = this.model
    for (const one of this.names.querySelectorAll('button')) {
      const task = one.dataset.task
      const isOn = task === undefined ? !look.tasks : !!look.tasks?.has(Number(task))
      one.setAttribute('aria-pressed', isOn)
    }
    const height = this.shown.length + 1
    const pen = this.surface.clear(this.top + height * ROW)
    if (!pen) return
    const { width } = this.surface
    const bins = Math.max(1, Math.floor(width))
    const rows = Int32Array.from(profile.about.tasks, (_, task) => this.shown.indexOf(task))
    const { counts } = this.model.filter()
    // One more row, for all together.
    const found = activity(profile, counts, { rows, height: height - 1, range: this.view, bins })
    const hue = { ink: ink('ink'), soft: ink('soft'), line: ink('line'), self: ink('self'), link: ink('link') }
    const states = profile.about.states
    const all = new Float64Array(bins)
    if (this.shown.length < profile.about.tasks.length) this.sumAll(all, counts, bins)
    const tints = this.tints()
    const others = states.flatMap((_, state) => (this.states[state] && !this.lead.includes(state) ? [state] : []))
    this.shown.forEach((task, row) => {
      const y = this.top + (row + 1) * ROW
      const main = this.sumLead(new Float64Array(bins), found, row)
      if (this.shown.length === profile.about.tasks.length) {
        for (let bin = 0; bin < bins; bin++) all[bin] += main[bin]
      }
      const bands = others.map(state => [tints[state], found.at(row, state)])
      this.drawRow(pen, main, bands, { y, bins, tint: tints[this.lead[0]] })
    })
    this.drawRow(pen, all, [], { y: this.top, bins, tint: tints[this.lead[0]] })
    this.drawLapses(pen, width)
    const other = others.map(state => states[state])
    const swatches = other.flatMap(name => swatch(name, tints[states.indexOf(name)]))
    if (this.lapses.length) swatches.push(...swatch('something is missing', ink('missing')))
    const lead = swatch(this.lead.map(state => states[state]).join(', '), tints[this.lead[0]])
    this.legend.replaceChildren(...(swatches.length ? [...lead, ...swatches] : []))
    this.drawAxis(pen, width, hue)
    const { letter } = this.surface
    drawBands(pen, this.bands, { x: time => this.x(time, width), width, top: AXIS, high: ROW, letter })
    this.drawSelection(pen, width, this.top + height * ROW, hue)
  }

  /** All tasks as one row, where not all have their own. */
  sumAll(all, counts, bins) {
    const { profile } = this.model
    const rows = new Int32Array(profile.about.tasks.length)
    const found = activity(profile, counts, { rows, height: 1, range: this.view, bins })
    this.sumLead(all, found, 0)
  }

  /** Adds to `sums` what of a row is in the states that lines are of. */
  sumLead(sums, found, row) {
    for (const state of this.lead) found.at(row, state).forEach((sum, bin) => (sums[bin] += sum))
    return sums
  }

  /** Colours of the states, by number. */
  tints() {
    return this.model.profile.about.states.map(state => ink(`state-${state}`) || ink('soft'))
  }

  /** A track: what counts as the height of its line, other states as a band below it. */
  drawRow(pen, main, bands, { y, bins, tint }) {
    // Where there are fewer samples than pixels, neighbours are taken together: a line, no dots.
    const some = main.reduce((count, sum) => count + (sum > 0), 0)
    const step = Math.max(1, Math.min(24, Math.round((2 * bins) / Math.max(1, some))))
    const most = Math.max(...stretches(main, step))
    for (let bin = 0; bin < bins; bin += step) {
      const sum = total(main, bin, step)
      if (sum > 0) {
        const high = Math.max(2, ((ROW - 7) * sum) / most)
        pen.fillStyle = tint
        pen.fillRect(bin, y + ROW - 5 - high, step, high)
      }
      for (const [colour, sums] of bands) {
        if (total(sums, bin, step) <= 0) continue
        pen.fillStyle = colour
        pen.fillRect(bin, y + ROW - 4, step, 3)
      }
    }
  }

  /** What is missing, as bands: over the track that it is of and over that of all; over all tracks where nobody knows. */
  drawLapses(pen, width) {
    pen.fillStyle = ink('missing')
    for (const { from, to, task } of this.lapses) {
      const left = Math.max(0, this.x(from, width))
      const wide = Math.max(2, Math.min(width, this.x(to, width)) - left)
      if (left >= width || this.x(to, width) < 0) continue
      const rows = task === null ? this.shown.map((_, row) => row + 1) : [this.shown.indexOf(task) + 1]
      for (const row of new Set([0, ...rows])) {
        const y = this.top + row * ROW
        pen.globalAlpha = 0.2
        pen.fillRect(left, y, wide, ROW - 1)
        pen.globalAlpha = 1
        pen.fillRect(left, y, wide, 3)
      }
    }
  }

  drawAxis(pen, width, hue) {
    const { tick_ns } = this.model.profile.about
    const [from, to] = this.view
    const step = tidyStep(((to - from) * tick_ns * 90) / width)
    pen.fillStyle = hue.soft
    pen.textAlign = 'left'
    for (let ns = Math.ceil((from * tick_ns) / step) * step; ns < to * tick_ns; ns += step) {
      const x = Math.round(this.x(ns / tick_ns, width))
      pen.fillRect(x, 0, 1, AXIS - 4)
      if (x < width - 60) pen.fillText(moment(ns, step), x + 4, AXIS / 2 - 2)
    }
    pen.fillStyle = hue.line
    for (let row = 0; row <= this.shown.length + 1; row++) pen.fillRect(0, this.top + row * ROW - 1, width, 1)
  }

  drawSelection(pen, width, height, hue) {
    const { from, to } = this.model.look
    if (from <= 0 && to === Infinity) return
    const [left, right] = [this.x(from, width), this.x(Math.min(to, this.model.end), width)]
    pen.fillStyle = hue.link
    pen.globalAlpha = 0.16
    pen.fillRect(left, 0, Math.max(1, right - left), height)
    pen.globalAlpha = 1
    pen.fillRect(Math.floor(left), 0, 1, height)
    pen.fillRect(Math.floor(right), 0, 1, height)
  }

  x(time, width) {
    const [from, to] = this.view
    return ((time - from) * width) / (to - from)
  }

  /** The time under a pointer, in whole steps. */
  time(event) {
    const { x } = this.surface.at(event)
    const [from, to] = this.view
    const time = Math.round(from + (x / this.surface.width) * (to - from))
    return Math.max(0, Math.min(this.model.end, time))
  }

  press(event) {
    if (event.button !== 0) return
    this.canvas.setPointerCapture(event.pointerId)
    this.drag = this.time(event)
  }

  move(event) {
    const time = this.time(event)
    const { tick_ns } = this.model.profile.about
    const { y } = this.surface.at(event)
    const task = this.shown[Math.floor((y - this.top) / ROW) - 1]
    const name = task === undefined ? '' : `, ${this.model.profile.about.tasks[task][3]}`
    const slack = (2 * (this.view[1] - this.view[0])) / this.surface.width
    this.told(`${moment(time * tick_ns, 1e5)}${name}${missingAt(this.lapses, time, slack)}`)
    if (this.drag !== null) this.select(this.drag, time)
  }

  release(event) {
    if (this.drag === null) return
    const [from, to] = [this.drag, this.time(event)]
    this.drag = null
    // A click, not a drag: nothing is between.
    if (Math.abs(this.x(from, this.surface.width) - this.x(to, this.surface.width)) < 3) {
      this.change({ from: 0, to: Infinity })
    } else this.select(from, to)
  }

  select(from, to) {
    if (from !== to) this.change({ from: Math.min(from, to), to: Math.max(from, to) })
  }

  wheel(event) {
    if (!event.ctrlKey && !event.altKey && this.view[0] === 0 && this.view[1] === this.model.end && event.deltaY > 0) return
    event.preventDefault()
    this.zoom(1.2 ** Math.sign(event.deltaY), this.time(event))
  }

  /** Shows more or less time around a moment. */
  zoom(factor, time) {
    const [from, to] = this.view
    const { end } = this.model
    const least = Math.min(end, 20)
    const span = Math.max(least, Math.min(end, (to - from) * factor))
    const share = (time - from) / (to - from)
    const start = Math.max(0, Math.min(end - span, time - span * share))
    this.view = [start, start + span]
    this.draw()
  }

  key(event) {
    const { end, look } = this.model
    const [from, to] = [look.from, Math.min(look.to, end)]
    const span = this.view[1] - this.view[0]
    const step = Math.max(1, Math.round(span / 50))
    const isAll = look.from <= 0 && look.to === Infinity
    const [start, stop] = isAll ? [Math.round(this.view[0]), Math.round(this.view[0]) + step * 5] : [from, to]
    const shift = by => {
      const moved = Math.max(-start, Math.min(end - stop, by))
      return this.change({ from: start + moved, to: stop + moved })
    }
    const grow = by => this.change({ from: start, to: Math.max(start + 1, Math.min(end, stop + by)) })
    const acts = {
      ArrowLeft: () => (event.shiftKey ? grow(-step) : shift(-step)),
      ArrowRight: () => (event.shiftKey ? grow(step) : shift(step)),
      '+': () => this.zoom(1 / 1.5, (start + stop) / 2),
      '=': () => this.zoom(1 / 1.5, (start + stop) / 2),
      '-': () => this.zoom(1.5, (start + stop) / 2),
      Escape: () => ((this.view = [0, end]), this.change({ from: 0, to: Infinity })),
    }
    if (!acts[event.key]) return
    event.preventDefault()
    acts[event.key]()
  }
}

/** The states that lines are of: running, or those with stacks where nothing that runs has one, as in waits. */
export function leadOf({ states, stacks }) {
  const lead = new Set()
  stacks.forEach((stack, sample) => stack && lead.add(states[sample]))
  return lead.has(0) || !lead.size ? [0] : [...lead].sort((a, b) => a - b)
}

/** Tasks, those with the most samples first. */
function ordered({ profile }) {
  const sums = new Float64Array(profile.about.tasks.length)
  profile.tasks.forEach((task, sample) => {
    if (profile.stacks[sample]) sums[task] += profile.weights ? profile.weights[sample] : 1
  })
  return [...sums.keys()].sort((a, b) => sums[b] - sums[a] || a - b)
}

function total(sums, bin, step) {
  let sum = 0
  for (let at = bin; at < Math.min(sums.length, bin + step); at++) sum += sums[at]
  return sum
}

function stretches(sums, step) {
  const found = [0]
  for (let bin = 0; bin < sums.length; bin += step) found.push(total(sums, bin, step))
  return found
}

/** The next of 1, 2 and 5 times a power of ten. */
function tidyStep(ns) {
  const power = 10 ** Math.floor(Math.log10(Math.max(1, ns)))
  return power * ([1, 2, 5].find(one => one * power >= ns) ?? 10)
}
