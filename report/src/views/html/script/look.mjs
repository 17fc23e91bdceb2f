// What a reader of the page looks at, and the same as the end of an address, so that a link shows the same.

import { ALL } from './selection.mjs'

/** The page as it opens. */
export const LOOK = {
  ...ALL,
  tab: 'flame',
  by: 'function',
  sort: 'self',
  order: 'descending',
  invert: false,
  fold: false,
  icicle: true,
  colour: 'kind',
  code: '',
  search: '',
  zoom: '',
  function: null,
}

/** The page of a comparison as it opens: time and tasks of B are its own, and a change or one side may be looked at. */
export const LOOK_AT_BOTH = {
  ...LOOK,
  tab: 'changes',
  side: 'B',
  from_b: 0,
  to_b: Infinity,
  tasks_b: null,
  change: null,
}

const WORDS = ['focus', 'ignore', 'hide', 'tab', 'by', 'sort', 'order', 'colour', 'code', 'side', 'search', 'zoom']
const SWITCHES = ['invert', 'fold', 'icicle', 'inlines']

/** The part of an address behind `#`; empty where nothing differs from how the page opens. */
export function addressOf(look, opening = LOOK) {
  const told = []
  const tell = (name, value) => told.push(`${name}=${encodeURIComponent(value)}`)
  for (const side of ['', '_b']) {
    const [from, to, tasks] = ['from', 'to', 'tasks'].map(name => look[name + side])
    if (from > 0) tell(`from${side}`, from)
    if (to < Infinity) tell(`to${side}`, to)
    if (tasks) tell(`tasks${side}`, [...tasks].sort((a, b) => a - b).join(','))
  }
  for (const name of WORDS) if (look[name] !== opening[name]) tell(name, look[name])
  for (const name of SWITCHES) if (look[name] !== opening[name]) tell(name, look[name] ? 1 : 0)
  for (const name of ['function', 'change']) if ((look[name] ?? null) !== null) tell(name, look[name])
  return told.join('&')
}

const NUMBERS = ['from', 'to', 'from_b', 'to_b', 'function', 'change']

/** What an address says; what it doesn't say, or says wrongly, is as the page opens. `tasks` are how many A and B have. */
export function lookOf(address, opening = LOOK, tasks = [Infinity, Infinity]) {
  const look = { ...opening }
  const number = text => (/^\d{1,15}$/.test(text) ? Number(text) : null)
  for (const part of address.replace(/^#/, '').split('&')) {
    const [name, value] = [part.split('=', 1)[0], decoded(part.slice(part.indexOf('=') + 1))]
    if (value === null) continue
    if (!(name in opening)) continue
    if (NUMBERS.includes(name)) look[name] = number(value) ?? opening[name]
    else if (name === 'tasks' || name === 'tasks_b') {
      const numbers = value.split(',').map(number)
      look[name] = new Set(numbers.filter(task => task !== null && task < tasks[name === 'tasks' ? 0 : 1]))
    } else if (WORDS.includes(name)) look[name] = value
    else if (SWITCHES.includes(name)) look[name] = value === '1'
  }
  if (look.from >= look.to) Object.assign(look, { from: 0, to: Infinity })
  if (look.from_b >= look.to_b) Object.assign(look, { from_b: 0, to_b: Infinity })
  return look
}

function decoded(text) {
  try {
    return decodeURIComponent(text)
  } catch {
    return null
  }
}
