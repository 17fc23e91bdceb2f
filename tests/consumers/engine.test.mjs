// What the page of `report --html` counts, asked of its modules without a browser: for selections of time, vCPU or
// thread and filter, each function has what `uniprof export --format json` says with the same flags, and percentages
// are those of the terminal.

import { deepStrictEqual, ok, strictEqual, throws } from 'node:assert'
import { readdirSync } from 'node:fs'
import { join } from 'node:path'
import { describe, test } from 'node:test'
import { MODULES, counted, decoded, modelOf, same } from './selections.mjs'
import { ROOT, hostile, uniprof } from './uniprof.mjs'

const { amount, duration, share } = await import(join(MODULES, 'amounts.mjs'))
const { activity, heat } = await import(join(MODULES, 'activity.mjs'))
const { bands, rowsOf } = await import(join(MODULES, 'bands.mjs'))
const { boxes } = await import(join(MODULES, 'boxes.mjs'))
const { chart } = await import(join(MODULES, 'moments.mjs'))
const { calleesOf, callersOf, folded, inverted, preorder } = await import(join(MODULES, 'calls.mjs'))
const { MADE, functionOf, moduleOf } = await import(join(MODULES, 'profile.mjs'))
const { ALL, expression } = await import(join(MODULES, 'selection.mjs'))
const { flagsOf } = await import(join(MODULES, 'summary.mjs'))
const { leadOf } = await import(join(MODULES, 'tracks.mjs'))

const SELECTIONS = 50
const images = readdirSync(join(ROOT, 'corpus/images'))
const elf = images.flatMap(image => ['--elf', join('corpus/images', image)]).concat('--no-search')
const corpus = readdirSync(join(ROOT, 'corpus')).filter(name => name.endsWith('.uprof'))
const RECORDINGS = [
  ...corpus.map(name => ({ name, args: [...elf, join('corpus', name)] })),
  { name: 'hostile', args: [hostile(1)] },
]

for (const { name, args } of RECORDINGS) {
  describe(`engine: ${name}`, () => {
    const page = uniprof('report', '--html=-', ...args)

    test(`${SELECTIONS} selections have the counts of the export`, async () => {
      await same(await decoded(page), args, SELECTIONS)
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
      const levels = boxes(tree, modelOf(profile).groups().ranks)
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

    test('the filter of a function finds it, however frames are shown and were gathered', async () => {
      const byLine = uniprof('report', '--html=-', '--by', 'line', '--no-source', ...args)
      for (const profile of await Promise.all([page, byLine].map(decoded))) {
        const model = modelOf(profile)
        const look = changed => (model.look = { ...model.look, focus: '', ignore: '', hide: '', ...changed })
        const { all } = model.weights()
        const totals = new Map()
        for (const { name, total } of model.rows()) totals.set(name, totals.has(name) ? null : total)
        for (const by of ['function', 'line', 'module']) {
          look({ by })
          for (const { label: group } of model.rows().slice(0, 20)) {
            look({})
            const [label, filter] = [model.labelOf(group), model.filterOf(group)]
            const isCode = label >= 0 && !(profile.labels.flags[label] & MADE)
            strictEqual(filter !== null, isCode && by !== 'module', `${by} ${model.about(group).name}`)
            const name = filter && functionOf(profile, label)
            const total = totals.get(name)
            if (!total) continue
            const left = what => (look({ [what]: filter }), model.weights().all)
            deepStrictEqual([left('focus'), left('ignore')], [total, all - total], filter)
            strictEqual(left('hide'), all)
            look({ by: 'function', hide: filter })
            ok(model.rows().every(row => row.name !== name), filter)
            look({ by })
          }
        }
      }
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

test('a duration has the unit in which it is less than a thousand, as in Rust', () => {
  const edges = [999, 999_949, 999_950, 999_949_999, 999_950_000].map(duration)
  deepStrictEqual(edges, ['999 ns', '999.9 us', '1.0 ms', '999.9 ms', '1.00 s'])
})

test('a cell of the heat map has the time that threads waited in it', () => {
  const waits = {
    about: { unit: 'time off CPU', tick_ns: 1000 },
    times: [0, 10_000],
    tasks: [0, 1],
    stacks: [1, 1],
    weights: [40_000, 10_000],
  }
  const ms = Array.from(heat(waits, [0, 2], null, 1_000_000).cells.slice(0, 3), ns => Math.round(ns / 1e6))
  deepStrictEqual(ms, [30, 20, 0])
})

test('a call of the flame chart lasts as long as what it took itself and what it calls', () => {
  // `a` from 0 to 1000 calls `b` from 300 to 700; `a` again from 1000 to 1050, and a `b` of its own in that.
  const calls = {
    about: { unit: 'time in calls', tick_ns: 1 },
    times: [0, 300, 1000, 1020],
    tasks: [0, 0, 0, 0],
    stacks: [1, 2, 1, 2],
    weights: [600, 400, 40, 10],
    parents: [0, 0, 1],
    frames: [-1, 0, 1],
    found: [0, 0, 0],
  }
  const filter = { seen: [1, 1], counts: [0, 1, 1], groups: [0, 1] }
  const told = slots => {
    const { boxes } = chart(calls, filter, 0, { range: [0, 2000], slots, period: 1 })
    return boxes.map(({ group, from, to }) => [group, from, to])
  }
  deepStrictEqual(told(2000), [
    [0, 0, 1000],
    [1, 300, 700],
    [0, 1000, 1050],
    [1, 1020, 1030],
  ])
  // The second `b` is shorter than a slot, but the first in it.
  deepStrictEqual(told(4), told(2000))
})

test('a caller that ends with its last call, or whose end is unknown, is one box of the flame chart', () => {
  const told = (times, stacks, weights) => {
    const calls = {
      about: { unit: 'time in calls', tick_ns: 1 },
      ...{ times, stacks, weights, tasks: times.map(() => 0) },
      ...{ parents: [0, 0, 1], frames: [-1, 0, 1], found: [0, 0, 0] },
    }
    const filter = { seen: [1, 1], counts: [0, 1, 1], groups: [0, 1] }
    const { boxes } = chart(calls, filter, 0, { range: [0, 2000], slots: 2000, period: 1 })
    return boxes.filter(({ group }) => group === 0).map(({ from, to }) => [from, to])
  }
  deepStrictEqual(told([0, 100], [1, 2], [100, 900]), [[0, 1000]])
  deepStrictEqual(told([0, 100, 500, 900], [1, 2, 2, 2], [0, 100, 100, 100]), [[0, 1000]])
})

test('what a call does itself is where no call that it makes goes on', () => {
  const calls = {
    about: { unit: 'time in calls', tick_ns: 1, states: ['running'] },
    ...{ times: [0, 10], tasks: [0, 0], states: [0, 0], stacks: [1, 2], weights: [60, 40] },
  }
  const found = activity(calls, [0, 1, 1], { rows: [0], height: 1, range: [0, 100], bins: 10 })
  deepStrictEqual([...found.at(0, 0)].map(sum => Math.round(sum * 1000) / 1000), Array(10).fill(1))
  const callee = activity(calls, [0, 0, 1], { rows: [0], height: 1, range: [0, 100], bins: 10 })
  deepStrictEqual([...callee.at(0, 0)], [0, 1, 1, 1, 1, 0, 0, 0, 0, 0])
})

test('the lines of tracks are of what runs, and of waits where nothing does', () => {
  const lead = (states, stacks) => leadOf({ states, stacks })
  deepStrictEqual(lead([0, 2, 0], [1, 0, 2]), [0])
  deepStrictEqual(lead([3, 2, 0], [1, 1, 0]), [2, 3])
  deepStrictEqual(lead([], []), [0])
})

test('flags select tracks where no other has their number', () => {
  const tasks = [[0, 0, 0, 'vCPU 0'], [0, 0, 1, 'vCPU 1'], [1, 0, 0, 'vCPU 0'], [1, 7, 1, 'vCPU 1'], [1, 0, 2, 'vCPU 2']]
  const flags = (...some) =>
    flagsOf({ look: { ...ALL, from: 1000, tasks: new Set(some) }, profile: { about: { tick_ns: 1000, tasks } } })
  deepStrictEqual(flags(4), ['--from 0.001000s', '--vcpu 2'])
  deepStrictEqual(flags(0, 2, 4), ['--from 0.001000s', '--vcpu 0', '--vcpu 2'])
  for (const some of [[0], [1], [3, 4]]) {
    deepStrictEqual(flags(...some), ['--from 0.001000s', '# --vcpu would select more tracks'])
  }
})

test('phases for which there is no row are listed all the same', () => {
  const all = bands({ about: { bands: Array.from({ length: 6 }, (_, at) => [0, at, 100, `phase ${at}`]) } })
  deepStrictEqual(all.map(({ name, row }) => `${name}: ${row}`), [0, 1, 2, 3, -1, -1].map((row, at) => `phase ${at}: ${row}`))
  strictEqual(rowsOf(all), 4)
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
