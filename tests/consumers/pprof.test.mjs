// What the page saves for pprof, asked of its modules by node: `go tool pprof` reads the same from it as from `uniprof
// export --format pprof` with the same flags: each thread's stacks with images, functions and what each weighs, with lines
// where the page has them. Addresses, build-ids and the lines on which functions begin the page doesn't know.

import { deepStrictEqual, ok } from 'node:assert'
import { spawnSync } from 'node:child_process'
import { readdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, test } from 'node:test'
import { MODULES, decoded, dice, chosen } from './selections.mjs'
import { OUT, ROOT, add, hostile, sorted, uniprof } from './uniprof.mjs'

const { gzipped } = await import(join(MODULES, 'bytes.mjs'))
const { pprof } = await import(join(MODULES, 'pprof.mjs'))
const { ALL, filtered } = await import(join(MODULES, 'selection.mjs'))

const SELECTIONS = 4
const MISSING = !!spawnSync('go', ['version']).error && "there is no go (Debian's golang-go)"
const elf = readdirSync(join(ROOT, 'corpus/images'))
  .flatMap(image => ['--elf', join('corpus/images', image)]).concat('--no-search')
const corpus = readdirSync(join(ROOT, 'corpus')).filter(name => name.endsWith('.uprof'))
const RECORDINGS = [
  ...corpus.map(name => ({ name, args: [...elf, join('corpus', name)] })),
  { name: 'two recordings', args: [...elf, 'corpus/calls.uprof', 'corpus/calls-stack.uprof'] },
  { name: 'hostile', args: [hostile(1)] },
]

/** What `go tool pprof` reads from a file: of each thread and stack what it weighs; `hasLines` with lines. */
function read(file, hasLines) {
  const options = { encoding: 'utf8', maxBuffer: 1 << 28 }
  const ran = spawnSync('go', ['tool', 'pprof', '-symbolize=none', '-raw', file], options)
  ok(ran.status === 0, ran.stderr)
  const [samples, rest] = ran.stdout.split(/^Locations$/mu)
  const [locations, mappings] = rest.split(/^Mappings$/mu)
  const images = mappings.matchAll(/^(\d+): \S+ (.*?)(?: [0-9a-f]*)? \[FN\]/gmu)
  const paths = new Map([...images].map(([, number, path]) => [number, path]))
  const places = new Map()
  let functions
  for (const [, number, mapping, name, line] of locations.matchAll(
    /^ *(?:(\d+): 0x[0-9a-f]+ (?:M=(\d+) )?)?(\S.*) (\S*:\d+)(?::\d+)? s=\d+\(.*\)$/gmu,
  )) {
    if (number) places.set(number, (functions = [paths.get(mapping) ?? '']))
    functions.push(hasLines ? `${name} ${line}` : name)
  }
  const found = new Map()
  const [, unit, listed] = /^Samples:\n(.*)\n([^]*)$/mu.exec(samples)
  for (const [, weight, numbers, labels] of listed.matchAll(/^ +(\d+): ([\d ]*)\n((?: {16}\S.*\n)*)/gmu)) {
    const stack = numbers.trim().split(' ').map(number => places.get(number).join('\n'))
    add(found, [labels, ...stack].join('\n'), Number(weight))
  }
  return { unit, stacks: sorted(found) }
}

/** The same of the program's own export. */
function exported(flags, args, hasLines) {
  const file = join(OUT, 'exported.pb.gz')
  uniprof('export', '--format', 'pprof', '--output', file, ...flags, ...args)
  return read(file, hasLines)
}

async function saved(profile, selection, hasLines) {
  const file = join(OUT, 'saved.pb.gz')
  writeFileSync(file, Buffer.from(await gzipped(pprof(profile, selection, filtered(profile, selection)))))
  return read(file, hasLines)
}

describe('pprof', { skip: MISSING }, () => {
  for (const { name, args } of RECORDINGS) {
    test(`${name}: the page's file says what the export's does`, async () => {
      const profile = await decoded(uniprof('report', '--html=-', ...args))
      const random = dice(11)
      let some = 0
      for (let number = 0; number < SELECTIONS; number++) {
        const { selection, flags } = number ? chosen(profile, random) : { selection: ALL, flags: [] }
        const [ours, theirs] = [await saved(profile, selection), exported(flags, args)]
        deepStrictEqual(ours, theirs, flags.join(' '))
        some += ours.stacks.length > 0
      }
      ok(some > 1, `only ${some} selections have samples`)
    })
  }

  test('lines are those of the export, where the page has them', async () => {
    const args = [...elf, 'corpus/calls.uprof']
    const profile = await decoded(uniprof('report', '--html=-', '--by', 'line', ...args))
    const ours = await saved(profile, ALL, true)
    ok(ours.stacks.some(([stack]) => /calls\.c:[1-9]/u.test(stack)))
    deepStrictEqual(ours, exported([], args, true))
  })
})
