// Runs uniprof, and holds its numbers: what the numbers of the consumers are compared with.

import { spawnSync } from 'node:child_process'
import { mkdirSync, mkdtempSync, readFileSync, readdirSync, writeFileSync } from 'node:fs'
import { basename, join } from 'node:path'
import { HOSTILE_NAME, NAMES, hostileText } from './hostile.mjs'

export const ROOT = join(import.meta.dirname, '../..')
/** What is left to look at: each test file's in a folder of its own, since they run beside each other. */
export const OUT = join(ROOT, 'tests/out/consumers', basename(process.argv[1], '.test.mjs'))
const PROGRAM = join(ROOT, 'target/debug/uniprof')

/** Both pages' first screens. */
export const SHOTS = join(ROOT, 'tests/out/screens')

for (const folder of [OUT, SHOTS]) mkdirSync(folder, { recursive: true })

/** What the program prints. Exit status 1 means that a recording is incomplete, which some are. */
export function uniprof(...args) {
  const ran = spawnSync(PROGRAM, args, { encoding: 'utf8', cwd: ROOT, maxBuffer: 1 << 28 })
  if (ran.error) throw ran.error
  if (ran.status > 1) throw new Error(`uniprof ${args.join(' ')}: ${ran.stderr}`)
  return ran.stdout
}

/** A recording of hostile names, from a text with some samples in time order. */
export function hostile(seed, name = HOSTILE_NAME) {
  const text = join(OUT, `${name}.txt`)
  const recording = join(OUT, `${name}.uprof`)
  writeFileSync(text, hostileText(seed))
  uniprof('import', '--format', 'perf-script', '--output', recording, text)
  return recording
}

/** Real recordings and their images, and one of hostile names: `{name, args}`. */
export function recordings() {
  const images = readdirSync(join(ROOT, 'corpus/images'))
  const real = images.flatMap(image => ['--elf', join('corpus/images', image)])
  const named = ['calls', 'pack-stack'].map(name => ({
    name,
    args: [...real, `corpus/${name}.uprof`],
  }))
  return [...named, { name: 'hostile', args: [hostile(1)] }]
}

/** The folder of calls.c that corpus/images/calls names. */
const BUILT_IN = '/root/wt/corpus/corpus'

/** The image of corpus/calls.uprof as if it had been built where its source is: `{image, source}`. */
export function sourced() {
  const folder = mkdtempSync('/tmp/uniprof-src')
  if (folder.length !== BUILT_IN.length) throw new Error(`${folder} is not as long as ${BUILT_IN}`)
  const bytes = readFileSync(join(ROOT, 'corpus/images/calls'))
  for (let at; (at = bytes.indexOf(`${BUILT_IN}\0`)) >= 0; ) bytes.write(folder, at)
  const [image, source] = ['calls', 'calls.c'].map(name => join(folder, name))
  writeFileSync(image, bytes)
  // A line that tries to leave its place, next to those with samples.
  const lines = readFileSync(join(ROOT, 'corpus/calls.c'), 'utf8').split('\n')
  lines[10] = `${NAMES.join(' ')} ${'x'.repeat(10_000)}`
  writeFileSync(source, lines.join('\n'))
  return { image, source, folder }
}

const written = new Set()

/** The recording's export, as a file to give to a consumer. */
export function exported(recording, format) {
  const path = join(OUT, `${recording.name}.${format}`)
  if (!written.has(path)) {
    uniprof('export', '--format', format, '--output', path, ...recording.args)
    written.add(path)
  }
  return path
}

/** Samples of each stack of ours, outermost frame first; `more` selects and marks. */
export function stacks(recording, ...more) {
  const text = more.length
    ? uniprof('export', '--format', 'folded', ...more, ...recording.args)
    : readFileSync(exported(recording, 'folded'), 'utf8')
  const found = new Map()
  for (const line of text.split('\n')) {
    const space = line.lastIndexOf(' ')
    if (space > 0) add(found, line.slice(0, space), Number(line.slice(space + 1)))
  }
  return found
}

/** A stack in the form in which `stacks` has it: folded text has no other place for a semicolon, or for a number at the
 * end of a frame. */
export function folded(frames) {
  return frames.map(frame => frame.replaceAll(';', ':').replace(/ ([\d.]*)$/u, '\u00a0$1')).join(';')
}

/** Own and total samples of each function: `[own, total]`. */
export function functions(stacks) {
  const found = new Map()
  const of = name => found.get(name) ?? found.set(name, [0, 0]).get(name)
  for (const [stack, samples] of stacks) {
    const frames = stack.split(';')
    for (const name of new Set(frames)) of(name)[1] += samples
    of(frames.at(-1))[0] += samples
  }
  return found
}

/** Names of functions of several images, such as the C library's and the kernel's `clock_gettime`: a stack may have
 * both, and names alone don't say so. */
export function ambiguous(recording) {
  const { frames } = JSON.parse(readFileSync(exported(recording, 'speedscope'))).shared
  const names = frames.map(({ name }) => folded([name]))
  return new Set(names.filter((name, index) => names.indexOf(name) !== index))
}

/** All samples of stacks, or those of the stacks that `which` picks. */
export function sum(stacks, which = () => true) {
  return [...stacks].reduce((sum, [stack, samples]) => sum + (which(stack) ? samples : 0), 0)
}

/** Adds to a number in a map. */
export function add(map, key, number) {
  map.set(key, (map.get(key) ?? 0) + number)
}

/** A map in an order of its own, so that two can be compared and their difference is readable. */
export function sorted(map) {
  return [...map].sort(([a], [b]) => (a < b ? -1 : a > b ? 1 : 0))
}
