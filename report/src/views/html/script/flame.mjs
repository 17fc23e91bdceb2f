// A flame graph on a canvas: boxes of a tree, which widen when picked. Keys go from box to box.

import { share, phrase } from './amounts.mjs'
import { boxAt, nodeAt } from './boxes.mjs'
import { colourOf, foundBy, wayOf } from './colours.mjs'
import { element } from './element.mjs'
import { fitted } from './names.mjs'
import { LINE, Surface, ink } from './surface.mjs'

/** Levels that are seen on a small screen, whose page scrolls; others fill what is left of theirs. */
const LEVELS_SMALL = 25
const SMALL = matchMedia('(max-width: 42rem), print')

export class Flame {
  /**
   * `told(text)` shows what a box is, `picked(group)` is told what was picked; `label` is for readers of screens.
   * `moved` is called after what another picture of the same tree should follow, `widened` with the path of the box that
   * was widened, outermost group first.
   */
  constructor({ label, told, picked }) {
    Object.assign(this, { told, picked, zoomed: null, at: null, top: 0, data: null })
    this.moved = this.widened = () => {}
    this.canvas = element('canvas', {
      class: 'flame',
      tabindex: 0,
      role: 'application',
      'aria-roledescription': 'flame graph',
      'aria-label': `${label}: arrows go from box to box, Enter widens one, Escape shows all`,
      onpointermove: event => this.hover(event),
      onpointerleave: () => this.told(''),
      onclick: event => this.click(event),
      onkeydown: event => this.key(event),
      onfocus: () => this.draw(),
      onblur: () => this.draw(),
    })
    this.canvas.addEventListener('wheel', event => this.wheel(event), { passive: false })
    this.note = element('p', { class: 'note' })
    this.element = element('div', { class: 'picture' }, this.canvas, this.note)
    this.surface = new Surface(this.canvas, () => this.draw())
    new ResizeObserver(() => this.draw()).observe(this.element)
  }

  /** How many levels are seen at one time; the wheel and the keys go on. */
  seen() {
    const room = SMALL.matches ? LEVELS_SMALL : Math.max(3, Math.floor(this.element.clientHeight / LINE))
    const { length } = this.data.levels
    // The last line says which they are.
    return length > room ? room - 1 : length
  }

  /**
   * What to draw: a tree and its levels, `down` for the outermost on top, `about` a group, `found` a group or not. Of a
   * node, `paint` may give a colour, the part of the box that has it and a mark before the name, and `say` what is told.
   */
  set(data) {
    if (data.tree !== this.data?.tree) [this.zoomed, this.at, this.top] = [boxOf(data, this.path()), null, 0]
    this.data = data
    this.draw()
  }

  /** The path of the box that is widened, outermost group first. */
  path() {
    const path = []
    if (!this.data) return path
    const { labels, parents } = this.data.tree
    for (let node = this.zoomed?.node ?? 0; node > 0; node = parents[node]) path.push(labels[node])
    return path.reverse()
  }

  /** Widens the box of a path, where there is one; of none, shows all. */
  widenPath(path) {
    if (!this.data) return
    Object.assign(this, { zoomed: boxOf(this.data, path), at: null, top: path.length ? this.top : 0 })
    this.draw()
  }

  /** From where, and how much, is drawn, in the tree's weights. */
  range() {
    const { tree, levels } = this.data
    if (!this.zoomed) return [0, tree.total[0]]
    const { from } = levels[this.zoomed.level]
    return [from[this.zoomed.index], tree.total[this.zoomed.node]]
  }

  draw() {
    if (!this.data) return
    const { levels, down } = this.data
    const seen = this.seen()
    this.top = Math.max(0, Math.min(this.top, levels.length - seen))
    const pen = this.surface.clear(Math.max(1, seen) * LINE)
    const isCut = levels.length > seen
    const which = `Levels ${this.top + 1} to ${this.top + seen} of ${levels.length}`
    this.note.textContent = isCut ? `${which}: the wheel, Page Up and Page Down go on` : ''
    if (!pen) return
    const colours = { found: ink('found'), rest: ink('raised'), soft: ink('soft'), ink: ink('ink') }
    for (let level = this.top; level < this.top + seen; level++) {
      const row = level - this.top
      this.drawLevel(pen, level, (down ? row : seen - 1 - row) * LINE, colours)
    }
  }

  drawLevel(pen, level, y, colours) {
    const { tree, levels } = this.data
    const { nodes, from } = levels[level]
    const [start, span] = this.range()
    const scale = this.surface.width / span
    const first = Math.max(0, boxAt({ from }, start))
    let drawn = -1
    for (let index = first; index < nodes.length && from[index] < start + span; index++) {
      const node = nodes[index]
      const left = Math.max(0, (from[index] - start) * scale)
      const right = Math.min(this.surface.width, (from[index] + tree.total[node] - start) * scale)
      // Of boxes narrower than a third of a pixel, one in each is drawn.
      if (right - left < 0.3 && right < drawn + 0.5) continue
      if (right <= left) continue
      drawn = right
      this.drawBox(pen, { node, level, y, left, right, start: (from[index] - start) * scale, scale }, colours)
      if (this.at?.node === node && document.activeElement === this.canvas) {
        pen.globalAlpha = 1
        pen.strokeStyle = colours.ink
        pen.lineWidth = 2
        pen.strokeRect(left + 1, y + 1, Math.max(1, right - left - 3), LINE - 3)
      }
    }
    pen.globalAlpha = 1
  }

  drawBox(pen, { node, level, y, left, right, start, scale }, colours) {
    const { tree, about, found, paint } = this.data
    const group = tree.labels[node]
    const one = about(group)
    const isFound = found?.(group)
    const { colour, part = 1, mark = '' } = paint?.(node) ?? { colour: isFound ? colours.found : this.colour(node, one) }
    const width = Math.max(0.5, right - left - 0.5)
    pen.globalAlpha = this.zoomed && level < this.zoomed.level ? 0.5 : 1
    let end = right
    if (part < 1) {
      pen.fillStyle = colours.rest
      pen.fillRect(left, y, width, LINE - 1)
      end = Math.min(right, start + tree.total[node] * scale * part)
    }
    pen.fillStyle = colour
    if (end > left) pen.fillRect(left, y, part < 1 ? end - left : width, LINE - 1)
    // Where what is filled has no room for letters, they stand behind it.
    const columns = space => Math.floor((space - 6) / this.surface.letter)
    const named = space => {
      const name = fitted(one.name, columns(space) - mark.length)
      return name && mark + name
    }
    const inside = named(end - left)
    const text = inside || (part < 1 && named(right - Math.max(left, end)))
    if (text) {
      pen.fillStyle = inside ? '#14171a' : colours.soft
      pen.fillText(text, (inside ? left : Math.max(left, end)) + 3, y + LINE / 2)
    }
    if (paint && isFound) {
      pen.strokeStyle = colours.found
      pen.lineWidth = 2
      pen.strokeRect(left + 1, y + 1, Math.max(1, width - 2), LINE - 3)
    }
  }

  colour(node, one) {
    const { tree, colouring } = this.data
    return colouring === 'found' ? wayOf(tree.found[node])[1] : colourOf(colouring, one)
  }

  /** The box at a place of the canvas. */
  boxAt(event) {
    if (!this.data?.levels.length) return null
    const { x, y } = this.surface.at(event)
    const seen = this.seen()
    const row = Math.floor(y / LINE)
    const level = this.top + (this.data.down ? row : seen - 1 - row)
    const [start, span] = this.range()
    return this.boxIn(level, start + (x / this.surface.width) * span)
  }

  boxIn(level, place) {
    const { tree, levels } = this.data
    if (!levels[level]) return null
    const index = boxAt(levels[level], place)
    const node = levels[level].nodes[index]
    if (index < 0 || place >= levels[level].from[index] + tree.total[node]) return null
    return { level, index, node }
  }

  tell(box) {
    if (!box) return this.told('')
    const { tree, about, unit, all, say } = this.data
    if (say) return this.told(say(box.node))
    const { name, module } = about(tree.labels[box.node])
    const weight = tree.total[box.node]
    const where = module ? ` [${module}]` : ''
    const own = tree.own[box.node]
    const ownText = own && own !== weight ? `, ${share(own, all)} in itself` : ''
    const way = foundBy(tree.found[box.node])
    const found = way ? `; found by ${way}` : ''
    return this.told(`${name}${where}: ${phrase(weight, unit)}, ${share(weight, all)}${ownText}${found}`)
  }

  hover(event) {
    this.tell(this.boxAt(event))
  }

  click(event) {
    this.zoom(this.boxAt(event))
  }

  /** Widens a box; the same again, or none, shows all. */
  zoom(box) {
    if (!this.data) return
    this.zoomed = box && box.node !== this.zoomed?.node ? box : null
    this.at = box
    if (box) this.picked(this.data.tree.labels[box.node])
    this.draw()
    this.moved()
    this.widened(this.path())
  }

  /** Widens the box of a node, and goes to it. */
  widen(node) {
    const level = this.data.levels.findIndex(({ nodes }) => nodes.includes(node))
    if (level < 0) return
    const index = this.data.levels[level].nodes.indexOf(node)
    this.zoomed = this.at = { level, index, node }
    this.top = Math.max(0, level - Math.floor(this.seen() / 2))
    this.draw()
    this.moved()
  }

  /** Shows what another picture of the same tree shows. */
  follow({ zoomed, at, top }) {
    Object.assign(this, { zoomed, at, top })
    this.draw()
  }

  wheel(event) {
    const before = this.top
    this.scroll(Math.sign(event.deltaY || event.deltaX) * 3)
    // At the end the page goes on.
    if (this.top !== before) event.preventDefault()
  }

  scroll(levels) {
    this.top += this.data?.down ? levels : -levels
    this.draw()
    this.moved()
  }

  key(event) {
    if (!this.data?.levels.length) return
    const { levels, down, tree } = this.data
    const [start, span] = this.range()
    const here = this.at ?? this.zoomed ?? this.boxIn(0, start)
    const from = levels[here.level].from[here.index]
    const inner = down ? 'ArrowDown' : 'ArrowUp'
    const outer = down ? 'ArrowUp' : 'ArrowDown'
    const beside = step => {
      const index = here.index + step
      const node = levels[here.level].nodes[index]
      return node === undefined ? here : { level: here.level, index, node }
    }
    const moves = {
      [inner]: () => this.boxIn(here.level + 1, from) ?? here,
      [outer]: () => this.boxIn(here.level - 1, from) ?? here,
      ArrowLeft: () => beside(-1),
      ArrowRight: () => beside(1),
    }
    const acts = {
      Enter: () => this.zoom(here),
      Escape: () => this.zoom(null),
      PageUp: () => this.scroll(down ? -20 : 20),
      PageDown: () => this.scroll(down ? 20 : -20),
    }
    const act = acts[event.key]
    if (!act && !moves[event.key]) return
    event.preventDefault()
    if (act) return act()
    const next = this.at ? moves[event.key]() : here
    const left = levels[next.level].from[next.index]
    if (left >= start && left < start + Math.max(span, tree.total[next.node])) this.at = next
    const seen = this.seen()
    this.top = Math.max(Math.min(this.top, this.at.level), this.at.level - seen + 1)
    this.tell(this.at)
    this.draw()
    this.moved()
  }
}

/** The box of a path, outermost group first; null where the tree has none. */
function boxOf({ tree, levels }, path) {
  const node = path.length ? nodeAt(tree, path) : null
  const level = path.length - 1
  const index = levels[level]?.nodes.indexOf(node) ?? -1
  return index < 0 ? null : { node, level, index }
}
