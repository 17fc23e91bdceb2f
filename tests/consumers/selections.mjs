// Selections that look random, of a page's data: what the page's modules count of each is compared with what `uniprof
// export --format json` says with the same flags, function by function.

import { deepStrictEqual, ok } from 'node:assert'
import { join } from 'node:path'
import { ROOT, uniprof } from './uniprof.mjs'

export const MODULES = join(ROOT, 'report/src/views/html/script')
const { calls } = await import(join(MODULES, 'calls.mjs'))
const { functions } = await import(join(MODULES, 'functions.mjs'))
const { LOOK } = await import(join(MODULES, 'look.mjs'))
const { Model } = await import(join(MODULES, 'model.mjs'))
const { decode, length, nameOf } = await import(join(MODULES, 'profile.mjs'))
const { ALL, filtered, weigh } = await import(join(MODULES, 'selection.mjs'))

/** The parts of a page, decoded. */
export function decoded(page) {
  const part = id => new RegExp(`<template id="${id}">([^<]*)</template>`).exec(page)[1]
  return decode(part('tables'), part('samples'))
}

/** Numbers that look random and are the same in each run. */
export function dice(seed) {
  let state = seed
  return below => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0
    return Math.floor((state / 2 ** 32) * below)
  }
}

/** A selection, and the flags that say the same. */
export function chosen(profile, random) {
  const { about } = profile
  const [selection, flags] = [{ ...ALL }, []]
  // Around a sample: of a short recording, most of the time has none.
  const sample = profile.times[random(profile.times.length)]
  const seconds = ticks => `${((ticks * about.tick_ns) / 1e9).toFixed(9)}s`
  if (about.is_timed && random(4) > 0) {
    const [from, to] = [random(sample + 1), sample + 1 + random(length(profile) - sample)]
    Object.assign(selection, { from, to })
    flags.push('--from', seconds(from), '--to', seconds(to))
  }
  if (random(3) === 0) {
    // As above: of a guest with idle vCPUs, most have no sample that counts.
    const number = about.tasks[profile.tasks[random(profile.tasks.length)]][2]
    const alike = about.tasks.map((_, task) => task).filter(task => about.tasks[task][2] === number)
    selection.tasks = new Set(alike)
    flags.push('--vcpu', `${number}`)
  }
  for (const filter of ['focus', 'ignore', 'hide']) {
    if (random(3) > 0) continue
    const name = nameOf(profile, random(profile.labels.count))
    const from = random(Math.max(1, name.length - 3))
    const letters = name.slice(from, from + 1 + random(6)).replace(/[^\w]/gu, '.')
    selection[filter] = letters
    flags.push(`--${filter}=${letters}`)
  }
  if (random(4) === 0) {
    selection.inlines = false
    flags.push('--no-inlines')
  }
  return { selection, flags }
}

/** A model of a profile that looks at a selection. */
export function modelOf(profile, selection = ALL) {
  const model = new Model(profile)
  model.look = { ...LOOK, ...selection }
  return model
}

/** What the engine has of each function: name, module, own and total samples. */
export function counted(profile, selection) {
  const { seen, counts } = filtered(profile, selection)
  const { own, all } = weigh(profile, selection, counts)
  const { groups, first, names, hidden } = modelOf(profile).groups()
  const tree = calls(profile, seen, own, { groups, joined: false, hidden })
  const rows = functions(tree, group => names[group])
  const modules = group => (group === hidden ? '' : profile.texts[profile.labels.modules[first[group]]])
  const found = rows.map(row => `${row.name}\n${modules(row.label)}\n${row.own} ${row.total}`)
  return { found: found.sort(), tree, rows, all }
}

/** The same from the program's own export. */
async function exported(program, flags, args) {
  const told = await program('export', '--format', 'json', '--processes', 'apart', ...flags, ...args)
  const { labels, stacks, account } = JSON.parse(told)
  const pairs = labels.map(() => [0, 0])
  for (const { frames, count } of stacks) {
    for (const label of new Set(frames)) pairs[label][1] += count
    pairs[frames.at(-1)][0] += count
  }
  const found = pairs.map(([own, total], label) => [labels[label], own, total])
  const rows = found.filter(([, , total]) => total > 0)
  const told_as = ([{ name, module }, own, total]) => `${name}\n${module}\n${own} ${total}`
  return { found: rows.map(told_as).sort(), all: account.counted }
}

/** Compares so many selections; `program` prints what uniprof does. */
export async function same(profile, args, count, program = uniprof) {
  const random = dice(7)
  const selections = Array.from({ length: count }, () => chosen(profile, random))
  let some = 0
  const compare = async () => {
    for (let next = selections.pop(); next; next = selections.pop()) {
      const theirs = await exported(program, next.flags, args)
      const ours = counted(profile, next.selection)
      deepStrictEqual([ours.all, ours.found], [theirs.all, theirs.found], next.flags.join(' '))
      some += ours.all > 0
    }
  }
  // While one export is made, the other's functions are counted.
  await Promise.all([compare(), compare()])
  ok(some > count / 2, `only ${some} selections have samples`)
}
