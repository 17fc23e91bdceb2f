// The tree of calls as lines that unfold, made as they are asked for. Keys are those of trees: arrows, Home and End.

import { amount, share } from './amounts.mjs'
import { childrenOf } from './boxes.mjs'
import { element } from './element.mjs'
import { shortened } from './names.mjs'

/** Lines below one that are shown at first; the rest follow when asked for. */
const LINES = 100
/** What has this share is unfolded at first, down to so many levels. */
const OPEN_SHARE = 0.1
const OPEN_LEVELS = 40
/** Deeper lines are not indented further. */
const INDENT_MAX = 24

export class CallTree {
  constructor({ picked }) {
    this.picked = picked
    this.tree = element('div', {
      role: 'tree',
      'aria-label': 'Calls: arrows go and unfold, Enter picks a function',
      class: 'tree',
      onkeydown: event => this.key(event),
      onclick: event => this.click(event),
    })
    const heads = ['function', 'total', 'self'].map((text, at) => element(at ? 'span' : 'b', {}, text))
    const head = element('p', { class: 'line head' }, ...heads)
    this.element = element('div', { class: 'calltree' }, head, this.tree)
  }

  draw({ tree, all, unit, about }) {
    if (this.data?.tree === tree) return
    this.data = { tree, all, unit, about, children: childrenOf(tree.parents) }
    this.nodes = new WeakMap()
    this.tree.replaceChildren(...this.lines(0, 1))
    this.tree.firstElementChild?.setAttribute('tabindex', 0)
    for (const item of [...this.tree.children].slice(0, 3)) this.unfoldLarge(item)
  }

  /** Unfolds what most is in. */
  unfoldLarge(item) {
    const least = OPEN_SHARE * this.data.all
    const open = [item]
    while (open.length) {
      const one = open.pop()
      const { node, level, more } = this.nodes.get(one)
      if (more || this.data.tree.total[node] < least || level > OPEN_LEVELS) continue
      this.unfold(one, true)
      const group = one.lastElementChild
      if (group?.getAttribute('role') === 'group') open.push(...group.children)
    }
  }

  /** The lines of what a node called, most first. */
  lines(node, level, from = 0) {
    const { tree, children, about } = this.data
    const below = [...children(node)].filter(child => tree.total[child] > 0)
    const name = child => about(tree.labels[child]).name
    below.sort((a, b) => tree.total[b] - tree.total[a] || (name(a) < name(b) ? -1 : 1))
    const items = below.slice(from, from + LINES).map(child => this.line(child, level))
    if (below.length > from + LINES) items.push(this.more(node, level, from + LINES, below.length))
    return items
  }

  line(node, level) {
    const { tree, all, unit, about, children } = this.data
    const { name, module } = about(tree.labels[node])
    const isLeaf = children(node).length === 0
    const title = element('b', {}, element('bdi', { title: shortened(name) === name ? null : name }, shortened(name)), ...(module ? [' ', element('i', {}, module)] : []))
    const numbers = [tree.total[node], tree.own[node]].map(weight =>
      element('span', { title: amount(weight, unit) }, share(weight, all)),
    )
    const item = element(
      'div',
      {
        role: 'treeitem',
        'aria-level': level,
        'aria-expanded': isLeaf ? null : 'false',
        'aria-label': `${name}, ${share(tree.total[node], all)}`,
        tabindex: -1,
        class: level > INDENT_MAX ? 'deep' : 'indented',
      },
      element('p', { class: 'line' }, title, ...numbers),
    )
    this.nodes.set(item, { node, level })
    return item
  }

  more(node, level, from, count) {
    const text = `${count - from} more`
    const item = element('div', { role: 'treeitem', tabindex: -1, class: 'more' }, element('p', { class: 'line' }, text))
    const more = () => {
      const lines = this.lines(node, level, from)
      item.replaceWith(...lines)
      this.go(lines[0])
    }
    this.nodes.set(item, { more })
    return item
  }

  unfold(item, isOpen) {
    const known = this.nodes.get(item)
    if (known?.more) return known.more()
    if (!known || !item.hasAttribute('aria-expanded')) return
    item.setAttribute('aria-expanded', isOpen)
    const group = item.lastElementChild
    if (group.getAttribute('role') === 'group') group.hidden = !isOpen
    else if (isOpen) item.append(element('div', { role: 'group' }, ...this.lines(known.node, known.level + 1)))
  }

  click(event) {
    const item = event.target.closest('[role=treeitem]')
    if (!item) return
    this.unfold(item, item.getAttribute('aria-expanded') !== 'true')
    this.go(item)
    this.pick(item)
  }

  pick(item) {
    const known = item && this.nodes.get(item)
    if (known?.node) this.picked(this.data.tree.labels[known.node])
  }

  go(item) {
    if (!item?.isConnected) return
    this.tree.querySelector('[tabindex="0"]')?.setAttribute('tabindex', -1)
    item.setAttribute('tabindex', 0)
    item.focus()
  }

  key(event) {
    const item = event.target.closest('[role=treeitem]')
    if (!item) return
    const seen = [...this.tree.querySelectorAll('[role=treeitem]')].filter(one => one.offsetParent)
    const at = seen.indexOf(item)
    const isOpen = item.getAttribute('aria-expanded')
    const acts = {
      ArrowDown: () => this.go(seen[at + 1]),
      ArrowUp: () => this.go(seen[at - 1]),
      Home: () => this.go(seen[0]),
      End: () => this.go(seen.at(-1)),
      ArrowRight: () => (isOpen === 'false' ? this.unfold(item, true) : this.go(seen[at + 1])),
      ArrowLeft: () =>
        isOpen === 'true' ? this.unfold(item, false) : this.go(item.parentElement.closest('[role=treeitem]')),
      Enter: () => (this.nodes.get(item)?.more ? this.unfold(item, true) : this.pick(item)),
    }
    if (!acts[event.key]) return
    event.preventDefault()
    acts[event.key]()
  }
}
