// The flame graphs of both sides, one above the other: the same stacks stand at the same place, and what is done to one
// is done to both. Of a place, as much is filled as the side's share takes.

import { phrase, share } from './amounts.mjs'
import { element } from './element.mjs'
import { Flame } from './flame.mjs'

export class FlamePair {
  constructor({ label, told, picked }) {
    this.flames = ['A', 'B'].map(side => {
      const flame = new Flame({ label: `${label} of ${side}`, told, picked })
      flame.moved = () => this.flames.filter(one => one !== flame).forEach(one => one.follow(flame))
      return flame
    })
    this.titles = this.flames.map(() => element('h3', { class: 'side' }))
    const both = this.flames.flatMap((flame, side) => [this.titles[side], flame.element])
    this.element = element('div', { class: 'pair' }, ...both)
  }

  /** Draws a tree of both; `painted(node)` gives a colour and a mark, `verdict(node)` what is found of it, in words. */
  set({ tree, titles, painted, verdict, ...common }) {
    this.flames.forEach((flame, side) => {
      const { total, own, all } = tree.sides[side]
      this.titles[side].textContent = titles[side]
      flame.set({
        tree,
        ...common,
        all,
        paint: node => ({ ...painted(node), part: all ? total[node] / all / tree.total[node] : 0 }),
        say: node => {
          const { name, module } = common.about(tree.labels[node])
          const [a, b] = tree.sides.map(one => share(one.total[node], one.all))
          const where = module ? ` [${module}]` : ''
          const mine = `${phrase(total[node], common.unit)}, ${share(own[node], all)} in itself`
          return `${name}${where}: A ${a}, B ${b}; ${'AB'[side]} has ${mine}; ${verdict(node)}`
        },
      })
    })
  }

  /** Widens a node's box in both. */
  widen(node) {
    this.flames[0].widen(node)
  }
}
