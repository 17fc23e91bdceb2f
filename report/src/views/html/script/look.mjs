// What a reader of the page looks at, and the same as the end of an address, so that a link shows the same.

import { ALL } from './selection.mjs'

/** The page as it opens. */
export const LOOK = {
  ...ALL,
  tab: 'functions',
  by: 'function',
  sort: 'self',
  order: 'descending',
  invert: false,
  fold: false,
  icicle: true,
  colour: 'kind',
  search: '',
  function: null,
}

const WORDS = ['focus', 'ignore', 'hide', 'tab', 'by', 'sort', 'order', 'colour', 'search']
const SWITCHES = ['invert', 'fold', 'icicle', 'inlines']

/** The part of an address behind `#`; empty where nothing differs from how the page opens. */
export function addressOf(look, opening = LOOK) {
  const told = []
  const tell = (name, value) => told.push(`${name}=${encodeURIComponent(value)}`)
  if (look.from > 0) tell('from', look.from)
  if (look.to < Infinity) tell('to', look.to)
  if (look.tasks) tell('tasks', [...look.tasks].sort((a, b) => a - b).join(','))
  for (const name of WORDS) if (look[name] !== opening[name]) tell(name, look[name])
  for (const name of SWITCHES) if (look[name] !== opening[name]) tell(name, look[name] ? 1 : 0)
  if (look.function !== null) tell('function', look.function)
  return told.join('&')
}

/** What an address says; what it doesn't say, or says wrongly, is as the page opens. */
export function lookOf(address, opening = LOOK, tasks = Infinity) {
  const look = { ...opening }
  const number = text => (/^\d{1,15}$/.test(text) ? Number(text) : null)
  for (const part of address.replace(/^#/, '').split('&')) {
    const [name, value] = [part.split('=', 1)[0], decoded(part.slice(part.indexOf('=') + 1))]
    if (value === null) continue
    if (name === 'from' || name === 'to' || name === 'function') look[name] = number(value) ?? opening[name]
    else if (name === 'tasks') {
      const numbers = value.split(',').map(number)
      look.tasks = new Set(numbers.filter(task => task !== null && task < tasks))
    } else if (WORDS.includes(name)) look[name] = value
    else if (SWITCHES.includes(name)) look[name] = value === '1'
  }
  if (look.from >= look.to) Object.assign(look, { from: opening.from, to: opening.to })
  return look
}

function decoded(text) {
  try {
    return decodeURIComponent(text)
  } catch {
    return null
  }
}
