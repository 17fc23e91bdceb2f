// Every export is opened by a program that people will open it with, and that program's numbers are
// ours: own and total samples of each function, and the samples of each stack.

import { deepStrictEqual, ok, strictEqual } from 'node:assert'
import { spawn, spawnSync } from 'node:child_process'
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { connect } from 'node:net'
import { tmpdir } from 'node:os'
import { basename, join } from 'node:path'
import { after, afterEach, before, describe, test } from 'node:test'
import { setTimeout } from 'node:timers/promises'
import Ajv from 'ajv'
import { MISSING, launch, serve } from './browser.mjs'
import { OUT, add, ambiguous, exported, folded, functions } from './uniprof.mjs'
import { recordings, sorted, stacks, sum, uniprof } from './uniprof.mjs'

const MODULES = join(import.meta.dirname, 'node_modules')
const SPEEDSCOPE = join(MODULES, 'speedscope/dist/release')
const RECORDINGS = recordings()

/** `found`: functions and stacks as a consumer has them. */
function checkSame(recording, found) {
  const ours = stacks(recording)
  ok(sum(ours) > 100)
  deepStrictEqual(sorted(found.stacks), sorted(ours))
  const twice = ambiguous(recording)
  const own = map => sorted(map).filter(([name]) => !twice.has(name))
  ok(twice.size < 2)
  deepStrictEqual(own(found.functions), own(functions(ours)))
}

function addPair(map, name, [own, total]) {
  const [ownBefore, totalBefore] = map.get(name) ?? [0, 0]
  map.set(name, [ownBefore + own, totalBefore + total])
}

describe('speedscope', () => {
  let browser, server
  before(async () => {
    if (MISSING) return
    server = await serve({ '/speedscope': SPEEDSCOPE, '/out': OUT })
    browser = await launch()
  })
  after(async () => {
    await browser?.close()
    server?.close()
  })

  const schema = JSON.parse(readFileSync(join(SPEEDSCOPE, 'file-format-schema.json')))
  const validate = new Ajv({ strict: false }).compile(schema)

  for (const recording of RECORDINGS) {
    test(`its published schema allows ${recording.name}`, () => {
      const profile = JSON.parse(readFileSync(exported(recording, 'speedscope')))
      ok(validate(profile), JSON.stringify(validate.errors))
      delete profile.profiles[0].endValue
      ok(!validate(profile), 'the schema would allow anything')
    })

    test(`the application shows ${recording.name}`, { skip: MISSING }, () => {
      const threads = JSON.parse(readFileSync(exported(recording, 'speedscope'))).profiles.length
      return show('speedscope', recording, threads)
    })
  }
  test('the application shows folded stacks of calls', { skip: MISSING }, () =>
    show('folded', RECORDINGS[0], 1))

  async function show(format, recording, threads) {
    const file = exported(recording, format)
    const page = await browser.context.newPage()
    // Its table has only the rows that fit.
    await page.setViewportSize({ width: 1400, height: 8000 })
    const profile = encodeURIComponent(`${server.url}/out/${basename(file)}`)
    const hash = `profileURL=${profile}&view=sandwich`
    await page.goto(`${server.url}/speedscope/index.html#${hash}`)
    const found = { functions: new Map(), stacks: new Map() }
    for (let thread = 1; thread <= threads; thread++) {
      const place = threads === 1 ? 'Export' : `(${thread}/${threads})`
      await page.getByText(place).waitFor()
      for (const [name, pair] of await sandwich(page)) addPair(found.functions, name, pair)
      if (thread < threads) await page.keyboard.press('n')
    }
    const saving = page.waitForEvent('download')
    await page.getByText('Export').click()
    const saved = JSON.parse(readFileSync(await (await saving).path()))
    strictEqual(saved.exporter.split('@')[0], 'speedscope')
    for (const profile of saved.profiles) addEvents(found.stacks, saved.shared.frames, profile)
    strictEqual(await page.evaluate(() => window.pwned), undefined)
    await page.close()
    checkSame(recording, found)
  }
})

/** The rows of speedscope's table: total and own samples with their shares, and a name. */
async function sandwich(page) {
  await page.locator('tr', { hasText: '%)' }).first().waitFor()
  const rows = await page.evaluate(() =>
    [...document.querySelectorAll('tr')].map(row => [...row.cells].map(cell => cell.innerText)),
  )
  const number = text => Number(text.trim().split(' ')[0].replaceAll(',', ''))
  const found = new Map()
  for (const [total, own, name] of rows.filter(row => row.length === 3 && /%\)/.test(row[0]))) {
    addPair(found, folded([name]), [number(own), number(total)])
  }
  return found
}

/** Stacks of a profile as speedscope saves it: frames that open and close. */
function addEvents(stacks, frames, profile) {
  strictEqual(profile.type, 'evented')
  const open = []
  let since = profile.startValue
  for (const { type, frame, at } of profile.events) {
    if (at > since) add(stacks, folded(open.map(frame => frames[frame].name)), at - since)
    since = at
    if (type === 'O') open.push(frame)
    else strictEqual(open.pop(), frame)
  }
}

// The profiler's own code without its window: loading, upgrading, call trees.
describe('Firefox profiler', () => {
  // Its sessions are sockets, whose paths must be short.
  const sessions = mkdtempSync(join(tmpdir(), 'pq-'))
  afterEach(() => profiler('stop', '--all'))
  after(() => rmSync(sessions, { recursive: true, force: true }))

  const program = join(MODULES, '@firefox-devtools/profiler-cli/dist/profiler-cli.js')
  const env = { ...process.env, PROFILER_CLI_SESSION_DIR: sessions }
  const session = ['--session', 'ours']

  function profiler(...args) {
    const ran = spawnSync(process.execPath, [program, ...args], { encoding: 'utf8', maxBuffer: 1 << 28, env })
    return { text: ran.stdout, error: ran.status === 0 ? null : ran.stdout + ran.stderr }
  }

  /**
   * Starts its second process as its `load` does, which gives that half a second to answer: little on a busy machine.
   * Whoever asks before it listens takes its session away.
   */
  async function load(file) {
    const daemon = spawn(process.execPath, [program, '--daemon', file, ...session], { env, stdio: 'ignore' })
    const socket = join(sessions, 'ours.sock')
    let error = 'it does not listen'
    for (const until = Date.now() + 120_000; Date.now() < until && daemon.exitCode === null; await setTimeout(50)) {
      if (await listens(socket)) error = profiler('thread', 'list', ...session).error
      if (!error) return
    }
    throw new Error(`${file} was not loaded (exit ${daemon.exitCode}): ${error}`)
  }

  function ask(...args) {
    const { text, error } = profiler(...args, ...session, '--json')
    strictEqual(error, null)
    return JSON.parse(text)
  }

  async function check(format, recording) {
    await load(exported(recording, format))
    const found = { functions: new Map(), stacks: new Map() }
    for (const { threadHandle, cpuMs } of ask('thread', 'list', '--limit', '0').threads) {
      const of = ['--thread', threadHandle, '--include-idle']
      const tree = ask('thread', 'samples-top-down', ...of, '--max-lines', '1000000')
      const names = new Map()
      addTree(found.stacks, names, tree.regularCallTree, [])
      // Its list shortens what looks like a template; its tree doesn't.
      for (const one of ask('thread', 'functions', ...of, '--limit', '0').functions) {
        const name = names.get(one.functionIndex)
        if (name) addPair(found.functions, name, [one.selfSamples, one.totalSamples])
        else strictEqual(one.totalSamples, 0)
      }
      ok(cpuMs > 0 || format !== 'firefox', `${threadHandle} would be drawn as idle`)
    }
    checkSame(recording, found)
  }

  for (const recording of RECORDINGS) {
    test(`our profile of ${recording.name}`, () => check('firefox', recording))
  }
  test('times, threads and categories of calls', async () => {
    const [calls] = RECORDINGS
    await load(exported(calls, 'firefox'))
    const { threads, context } = ask('thread', 'list', '--limit', '0')
    const samples = () =>
      threads.map(({ threadHandle: thread }) => ask('thread', 'samples', '--thread', thread))
    const all = one => one.categoryBreakdown.totalSamples
    const byThread = stacks(calls, '--by-thread')
    for (const [index, one] of samples().entries()) {
      const { name, tid } = threads[index]
      strictEqual(all(one), sum(stacks(calls, '--vcpu', tid)))
      ok(sum(byThread, stack => stack.startsWith(`${name};`)) >= all(one))
    }
    const kernel = one => one.categoryBreakdown.categories.find(({ name }) => name === 'Kernel')
    const ofKernel = sum(stacks(calls, '--marks'), stack => stack.endsWith('_[k]'))
    ok(ofKernel > 0)
    strictEqual(samples().reduce((sum, one) => sum + (kernel(one)?.samples ?? 0), 0), ofKernel)
    // A range is counted from its first sample, ours from the start of the recording.
    const from = context.rootRange.start + 500
    ask('zoom', 'push', '500ms,750ms')
    const between = stacks(calls, '--from', `${from}ms`, '--to', `${from + 250}ms`)
    ok(sum(between) > 50)
    strictEqual(samples().reduce((sum, one) => sum + all(one), 0), sum(between))
  })
  for (const name of ['trace-graph', 'trace-order', 'trace-slices', 'trace-syscalls']) {
    test(`markers of ${name} are its calls`, async () => {
      const args = [`corpus/${name}.uprof`]
      await load(exported({ name, args }, 'firefox'))
      const found = ask('thread', 'list', '--limit', '0').threads.flatMap(({ threadHandle: thread }) => {
        const { byType } = ask('thread', 'markers', '--thread', thread, '--top-n', '1000')
        const all = byType.flatMap(({ markerName, topMarkers }) => topMarkers.map(one => [markerName, one]))
        return all.map(([name, { label, duration }]) =>
          label.includes('its end is not') ? `${name} without an end` : `${name} ${Math.round(duration * 1e6)}`,
        )
      })
      const spans = uniprof('dump', ...args).matchAll(/^span .* length=(\S+) .* name="(.*)"$/gm)
      const expected = [...spans].map(([, length, name]) => `${name} ${length === '-' ? 'without an end' : length}`)
      ok(expected.length > 7)
      deepStrictEqual(found.sort(), expected.sort())
    })
  }
  // It reads these too.
  for (const format of ['folded', 'perf-script']) {
    test(`${format} of calls`, () => check(format, RECORDINGS[0]))
  }
})

/** Whether somebody accepts connections there. */
function listens(path) {
  return new Promise(resolve => {
    const socket = connect(path)
    socket.on('connect', () => resolve(true) || socket.destroy())
    socket.on('error', () => resolve(false))
  })
}

/** Stacks and function names of a call tree: what is a node's own ended there. */
function addTree(stacks, names, node, path) {
  if (node.selfSamples > 0) add(stacks, folded(path), node.selfSamples)
  for (const child of node.children ?? []) {
    names.set(child.functionIndex, folded([child.name]))
    addTree(stacks, names, child, [...path, child.name])
  }
}

// The first flame graph program. Debian has it in libdevel-nytprof-perl.
const FLAMEGRAPH = '/usr/share/perl5/Devel/NYTProf/flamegraph.pl'
const noFlamegraph = !existsSync(FLAMEGRAPH) && `there is no ${FLAMEGRAPH}`

describe('flamegraph.pl', { skip: noFlamegraph }, () => {
  for (const recording of RECORDINGS) {
    test(`folded stacks of ${recording.name}`, () => {
      const file = exported(recording, 'folded')
      const ran = spawnSync('perl', [FLAMEGRAPH, '--minwidth=0', file], { encoding: 'utf8' })
      strictEqual(ran.status, 0, ran.stderr)
      strictEqual(ran.stderr, '')
      const titles = [...ran.stdout.matchAll(/<title>(.*) \(([\d,]+) samples, /g)]
      const boxes = titles.map(([, name, samples]) => `${name} ${samples.replaceAll(',', '')}`)
      deepStrictEqual(boxes.sort(), expectedBoxes(recording).sort())
    })
  }
})

/** A box for everything that stacks have in common, from the bottom. This version of the program
 * draws angles as round brackets. */
function expectedBoxes(recording) {
  const prefixes = new Map()
  for (const [stack, samples] of stacks(recording)) {
    const frames = stack.split(';')
    frames.forEach((_, depth) => add(prefixes, frames.slice(0, depth + 1).join(';'), samples))
    add(prefixes, 'all', samples)
  }
  const escape = name =>
    name.replace(/</g, '(').replace(/>/g, ')').replace(/&/g, '&amp;').replace(/"/g, '&quot;')
  return [...prefixes].map(([path, samples]) => `${escape(path.split(';').at(-1))} ${samples}`)
}
