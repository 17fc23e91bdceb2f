// What the page of `report --html` counts, asked of its modules without a browser: for selections of time, vCPU or
// thread and filter, each function has what `uniprof export --format json` says with the same flags, and percentages
// are those of the terminal.

import { deepStrictEqual, ok, strictEqual, throws } from 'node:assert'
import { readdirSync } from 'node:fs'
import { join } from 'node:path'
import { describe, test } from 'node:test'
import { ROOT, hostile, uniprof } from './uniprof.mjs'

const MODULES = join(ROOT, 'report/src/views/html/script')
const { amount, share } = await import(join(MODULES, 'amounts.mjs'))
const { boxes, ranked } = await import(join(MODULES, 'boxes.mjs'))
const { calleesOf, callersOf, calls, folded, inverted, preorder } = await import(join(MODULES, 'calls.mjs'))
const { functions } = await import(join(MODULES, 'functions.mjs'))
const { HIDDEN, MADE, decode, length, moduleOf, nameOf } = await import(join(MODULES, 'profile.mjs'))
const { ALL, expression, filtered, weigh } = await import(join(MODULES, 'selection.mjs'))

const SELECTIONS = 50
const images = readdirSync(join(ROOT, 'corpus/images'))
const elf = images.flatMap(image => ['--elf', join('corpus/images', image)]).concat('--no-search')
const corpus = readdirSync(join(ROOT, 'corpus')).filter(name => name.endsWith('.uprof'))
const RECORDINGS = [
  ...corpus.map(name => ({ name, args: [...elf, join('corpus', name)] })),
  { name: 'hostile', args: [hostile(1)] },
]

/** The parts of a page, decoded. */
function decoded(page) {
  const part = id => new RegExp(`<template id="${id}">([^<]*)</template>`).exec(page)[1]
  return decode(part('tables'), part('samples'))
}

/** Numbers that look random and are the same in each run. */
function dice(seed) {
  let state = seed
  return below => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0
    return Math.floor((state / 2 ** 32) * below)
  }
}

/** A selection, and the flags that say the same. */
function chosen(profile, random) {
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
    const number = about.tasks[random(about.tasks.length)][2]
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

/** What the engine has of each function: `[name, module, own, total]`. */
function counted(profile, selection) {
  const { seen, counts } = filtered(profile, selection)
  const { own, all } = weigh(profile, selection, counts)
  const groups = Int32Array.from({ length: profile.labels.count }, (_, label) => label)
  const hidden = profile.labels.count
  const tree = calls(profile, seen, own, { groups, joined: false, hidden })
  const rows = functions(tree, label => nameOf(profile, label))
  const modules = label => (label === hidden ? '' : profile.texts[profile.labels.modules[label]])
  const found = rows.map(row => `${row.name}\n${modules(row.label)}\n${row.own} ${row.total}`)
  return { found: found.sort(), tree, rows, all }
}

/** The same from the program's own export. */
function exported(flags, args) {
  const told = uniprof('export', '--format', 'json', '--processes', 'apart', ...flags, ...args)
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

for (const { name, args } of RECORDINGS) {
  describe(`engine: ${name}`, () => {
    const page = uniprof('report', '--html=-', ...args)

    test(`${SELECTIONS} selections have the counts of the export`, async () => {
      const profile = await decoded(page)
      const random = dice(7)
      let some = 0
      for (let number = 0; number < SELECTIONS; number++) {
        const { selection, flags } = chosen(profile, random)
        const [ours, theirs] = [counted(profile, selection), exported(flags, args)]
        deepStrictEqual([ours.all, ours.found], [theirs.all, theirs.found], flags.join(' '))
        some += ours.all > 0
      }
      ok(some > SELECTIONS / 2, `only ${some} selections have samples`)
    })

    test('trees turned over, and around a function, have the same numbers', async () => {
      const profile = await decoded(page)
      const { tree, rows, all } = counted(profile, ALL)
      strictEqual(tree.total[0], all)
      strictEqual(inverted(tree).total[0], all)
      const own = new Map(rows.map(row => [row.label, row.own]))
      const turned = inverted(tree)
      turned.labels.forEach((label, node) => {
        if (node > 0 && turned.parents[node] === 0) strictEqual(turned.total[node], own.get(label))
      })
      for (const row of rows.slice(0, 20)) {
        strictEqual(callersOf(tree, row.label).total[0], row.total, row.name)
        strictEqual(calleesOf(tree, row.label).total[0], row.total, row.name)
      }
    })

    test('frames say how they were found, in all trees', async () => {
      const profile = await decoded(page)
      const { tree } = counted(profile, ALL)
      const all = found => found.reduce((bits, one) => bits | one, 0)
      const stacks = profile.stacks.filter(stack => stack > 0)
      const isTold = node => profile.found[node] > 0 || profile.labels.flags[profile.frames[node]] & MADE
      // Calls of a trace were told, not found.
      const isTrace = profile.about.unit === 'time in calls'
      ok(stacks.every(stack => isTrace !== !!isTold(stack)))
      for (const made of [tree, inverted(tree), folded(tree)]) {
        strictEqual(all(made.found), all(profile.found))
        strictEqual(made.found.length, made.labels.length)
      }
      const letters = new Set(uniprof('dump', args.at(-1)).match(/(?<=\b[0-9a-f]+:[er])[fcst]\b/g))
      const bits = [...letters].reduce((bits, letter) => bits | (1 << 'fcst'.indexOf(letter)), 0)
      // Unwinding by call frame information may find the recorded ones in its own way, and no others.
      strictEqual(all(profile.found) & ~2, bits & ~2)
    })

    test('boxes lie side by side within their callers', async () => {
      const profile = await decoded(page)
      const { tree } = counted(profile, ALL)
      const names = Array.from({ length: profile.labels.count }, (_, label) => nameOf(profile, label))
      const levels = boxes(tree, ranked([...names, HIDDEN]))
      const starts = new Map([[0, 0]])
      for (const { nodes, from } of levels) {
        nodes.forEach((node, index) => {
          const parent = tree.parents[node]
          const end = starts.get(parent) + tree.total[parent]
          ok(from[index] >= starts.get(parent) && from[index] + tree.total[node] <= end)
          ok(index === 0 || from[index] >= from[index - 1] + tree.total[nodes[index - 1]])
          starts.set(node, from[index])
        })
      }
      strictEqual(starts.size, tree.labels.length)
      strictEqual(new Set(preorder(tree.parents)).size, tree.labels.length)
    })

    test('shares are those of the terminal', async () => {
      const profile = await decoded(page)
      const { rows, all } = counted(profile, ALL)
      const top = uniprof('report', '--top', '--rows', '0', ...args).split('\n')
      const lines = top.map(line => /^ *(\S.*?) +([\d.]+%) +(\S.*?) +([\d.]+%)  (.*)$/.exec(line))
      const told = lines.filter(Boolean).map(line => line.slice(1, 5).join(' '))
      const { unit } = profile.about
      const pair = weight => `${amount(weight, unit)} ${share(weight, all)}`
      deepStrictEqual(rows.map(row => `${pair(row.own)} ${pair(row.total)}`).sort(), told.sort())
    })
  })
}

test('a share in the middle goes to the even digit, as in Rust', () => {
  deepStrictEqual([share(1, 800), share(3, 800), share(9, 20000), share(1, 3), share(0, 0)], [
    '0.1%',
    '0.4%',
    '0.0%',
    '33.3%',
    '-',
  ])
})

test('what is no regular expression is told, not run', () => {
  throws(() => expression('a['), /^Error: a\[ is no regular expression: /)
  strictEqual(expression(''), null)
})

test('modules have the last part of their path', () => {
  const labels = { modules: [0, 1, 2] }
  const texts = ['', '/usr/lib/libc.so.6', '[kernel]']
  const told = [0, 1, 2].map(label => moduleOf({ texts, labels }, label))
  deepStrictEqual(told, ['', 'libc.so.6', 'kernel'])
})
