#!/usr/bin/env node
// The page of `report --html` with a million samples, in headless Chromium: how long it takes to open, to select, and
// how much memory it has then; beside speedscope and the Firefox Profiler with exports of the same recording. Medians
// of nine, in milliseconds and MiB.
//
//     benches/page.mjs [SAMPLES [UNIPROF [FIREFOX_PROFILER]]]      1,000,000 takes some minutes
//
// Needs Debian's chromium and what tests/consumers/run installs; builds an example of the report package.
// FIREFOX_PROFILER is the folder `dist` of one that was built; without it, it is left out.
// Opening ends when the page can be used, after its first drawing; selecting is from the key or the pointer's move to
// the drawing of half of the recording, in the view that is named. Memory is V8's heap and the arrays beside it, after
// a collection. The page is opened from its file, the others from a server on this machine that has their data.

import { execFileSync, spawnSync } from 'node:child_process'
import { mkdtempSync, rmSync, statSync, readFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { basename, join } from 'node:path'
import { pathToFileURL } from 'node:url'

const ROOT = join(import.meta.dirname, '..')
const CONSUMERS = join(ROOT, 'tests/consumers')
const { launch, serve } = await import(join(CONSUMERS, 'browser.mjs'))
const SPEEDSCOPE = join(CONSUMERS, 'node_modules/speedscope')
const [samples = '1000000', program = join(ROOT, 'target/release/uniprof'), firefox] = process.argv.slice(2)
const ROUNDS = 9
const folder = mkdtempSync(join(tmpdir(), 'uniprof-page-'))
const [recording, html, forSpeedscope, forFirefox] = ['uprof', 'html', 'speedscope.json', 'firefox.json'].map(end =>
  join(folder, `run.${end}`),
)

/** Runs a command; status 1 is uniprof's way to say that samples were lost. */
function quiet(command, ...args) {
  const ran = spawnSync(command, args, { stdio: 'ignore' })
  if (ran.error || ran.status > 1) throw ran.error ?? new Error(`${command} ${args.join(' ')} failed`)
}

function median(numbers) {
  return [...numbers].sort((a, b) => a - b)[Math.floor(numbers.length / 2)]
}

/** What V8 has in its heap, and in arrays beside it. */
async function memory(page) {
  const session = await page.context().newCDPSession(page)
  await session.send('HeapProfiler.collectGarbage')
  const { usedSize, backingStorageSize = 0 } = await session.send('Runtime.getHeapUsage')
  return (usedSize + backingStorageSize) / 2 ** 20
}

/** From a key on the time line to the drawing of what it selects. */
function select(page) {
  return page.evaluate(async () => {
    const line = document.querySelector('canvas.tracks')
    const before = document.querySelector('.selected').textContent
    const began = performance.now()
    line.dispatchEvent(new KeyboardEvent('keydown', { key: 'ArrowRight' }))
    await new Promise(drawn => requestAnimationFrame(drawn))
    const spent = performance.now() - began
    if (document.querySelector('.selected').textContent === before) throw new Error('nothing was selected')
    return spent
  })
}

/** The same in the Firefox Profiler: from the pointer's move over the time line to another number in the call tree. */
function drag(page) {
  return page.evaluate(async () => {
    const line = document.querySelector('.timelineSelection')
    const { left, top, width } = line.getBoundingClientRect()
    const number = () => document.querySelector('.treeViewRow').textContent
    const event = (kind, part) =>
      new MouseEvent(kind, { bubbles: true, clientX: left + width * part, clientY: top + 40, buttons: 1 })
    const before = number()
    line.dispatchEvent(event('mousedown', 0.25))
    const began = performance.now()
    line.dispatchEvent(event('mousemove', 0.75))
    while (number() === before) {
      await new Promise(drawn => requestAnimationFrame(drawn))
      if (performance.now() - began > 60_000) throw new Error('nothing was selected')
    }
    return performance.now() - began
  })
}

/** Opens an address nine times; `ready` waits until it can be used. */
async function opened(context, address, ready, then = async () => ({}), prepare = async () => {}) {
  const found = []
  for (let round = 0; round < ROUNDS; round++) {
    const page = await context.newPage()
    await prepare(page)
    const began = performance.now()
    await page.goto(address)
    await ready(page)
    const open = performance.now() - began
    found.push({ open, memory: await memory(page), ...(await then(page)) })
    await page.close()
  }
  const kinds = Object.keys(found[0])
  return kinds.map(kind => `${kind} ${median(found.map(one => one[kind])).toFixed(0)}`).join(', ')
}

/** What others make of the same samples. */
async function others(browser) {
  for (const [format, path] of [['speedscope', forSpeedscope], ['firefox', forFirefox]]) {
    if (format !== 'firefox' || firefox) quiet(program, 'export', '-q', '-f', format, '-o', path, recording)
  }
  const server = await serve({ '/out': folder, '/speedscope': join(SPEEDSCOPE, 'dist/release'), '': firefox ?? folder })
  const data = path => encodeURIComponent(`${server.url}/out/${basename(path)}`)
  const drawn = page =>
    page.evaluate(() => new Promise(drawn => requestAnimationFrame(() => requestAnimationFrame(drawn))))
  const { version } = JSON.parse(readFileSync(join(SPEEDSCOPE, 'package.json'), 'utf8'))
  const shown = async page => {
    await page.getByText('Export').waitFor()
    await drawn(page)
  }
  const speedscope = `${server.url}/speedscope/index.html#profileURL=${data(forSpeedscope)}`
  // Its tab may run out of memory.
  const told = await opened(browser.context, speedscope, shown).catch(error => error.message.split('\n')[0])
  console.log(`speedscope ${version}, ${mib(forSpeedscope)} MiB: ${told}`)
  if (firefox) {
    const tree = async page => {
      await page.waitForSelector('.treeViewRow')
      await drawn(page)
    }
    const address = `${server.url}/from-url/${data(forFirefox)}/calltree/`
    const index = { path: join(firefox, 'index.html'), contentType: 'text/html' }
    const prepare = page => page.route('**/from-url/**', route => route.fulfill(index))
    const select = async page => ({ 'call tree': await drag(page) })
    const found = await opened(browser.context, address, tree, select, prepare)
    console.log(`Firefox Profiler, ${mib(forFirefox)} MiB: ${found}`)
  }
  server.close()
}

const mib = file => (statSync(file).size / 2 ** 20).toFixed(1)

try {
  execFileSync('cargo', ['build', '--quiet', '--locked', '-p', 'uniprof-report', '--example', 'synthetic'], { cwd: ROOT })
  quiet(join(ROOT, 'target/debug/examples/synthetic'), samples, recording)
  quiet(program, 'report', `--html=${html}`, recording)
  const part = id => new RegExp(`<template id="${id}">([^<]*)`).exec(readFileSync(html, 'utf8'))[1].length
  console.log(`${samples} samples: page ${mib(html)} MiB`)
  console.log(`a sample: ${(part('samples') / Number(samples)).toFixed(2)} bytes of the page`)
  const browser = await launch()
  // What others draw may take long.
  browser.context.setDefaultTimeout(300_000)
  const alive = page => page.waitForSelector(':root.alive', { state: 'attached' })
  const selected = async page => {
    await page.evaluate(() => document.querySelector('#tab-flame').click())
    const spent = { flame: await select(page) }
    await page.evaluate(() => document.querySelector('#tab-functions').click())
    return { ...spent, functions: await select(page) }
  }
  // Half of the recording: of steps of a microsecond, by the rate of the made-up one.
  const half = `#from=1&to=${Math.round((Number(samples) / 2 / 997 / 2) * 1e6)}`
  const address = pathToFileURL(html).href + half
  console.log(`page: ${await opened(browser.context, address, alive, selected)}`)
  await others(browser)
  await browser.close()
} finally {
  rmSync(folder, { recursive: true })
}
