// The page of `report --cpus`, of real dumps of Nanos, opened from its file in a browser that runs no script: a bar for each
// vCPU, as long as what it spent; what is switched off leaves every bar, and what is left moves together.

import { deepStrictEqual, ok, strictEqual } from 'node:assert'
import { spawnSync } from 'node:child_process'
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { after, before, describe, test } from 'node:test'
import { pathToFileURL } from 'node:url'
import { MISSING, launch } from './browser.mjs'
import { OUT, ROOT, uniprof } from './uniprof.mjs'

const DUMPS = [
  ['nanos-ftrace-1cpu', 1],
  ['nanos-ftrace-2cpu', 2],
]
const file = (name, ending) => join(OUT, `${name}.${ending}`)

/** Draws the page of a dump. */
function draw(name) {
  const unpacked = spawnSync('zstd', ['-dcq', join(ROOT, 'corpus/traces', `${name}.txt.zst`)], {
    maxBuffer: 1 << 28,
  })
  strictEqual(unpacked.status, 0, String(unpacked.stderr))
  writeFileSync(file(name, 'txt'), unpacked.stdout)
  const recording = file(name, 'uprof')
  uniprof('import', '--format', 'nanos-ftrace', '--output', recording, file(name, 'txt'))
  uniprof('report', `--cpus=${file(name, 'cpus.html')}`, recording)
}

/** Of each bar, what is seen of it: class and width of its parts, in pixels. */
function bars(page) {
  return page.evaluate(() =>
    [...document.querySelectorAll('.bar')].map(bar =>
      [...bar.children]
        .map(part => [part.getAttribute('class'), part.getBoundingClientRect().width])
        .filter(([, width]) => width > 0),
    ),
  )
}

const length = bar => bar.reduce((sum, [, width]) => sum + width, 0)

describe('bars', { skip: MISSING }, () => {
  let browser
  before(async () => {
    for (const [name] of DUMPS) draw(name)
    browser = await launch()
  })
  after(() => browser?.close())

  for (const [name, cpus] of DUMPS) {
    test(`${name}: functions are switched off and on`, async () => {
      const page = await browser.still.newPage()
      const errors = []
      page.on('console', said => said.type() === 'error' && errors.push(said.text()))
      await page.goto(pathToFileURL(file(name, 'cpus.html')).href)
      const all = await bars(page)
      strictEqual(all.length, cpus)
      const room = await page.evaluate(() => document.querySelector('.bar').getBoundingClientRect().width)
      // The busiest fills the room, but for what is too short to be a part of a pixel.
      const longest = Math.max(...all.map(length))
      ok(Math.abs(longest - room) < 2, `${longest} of ${room} pixels`)
      await page.screenshot({ path: file(name, 'cpus.png'), fullPage: true })
      await page.click('label[for=f0]')
      const without = await bars(page)
      for (const [index, bar] of without.entries()) {
        ok(!bar.some(([part]) => part === 'f0'))
        deepStrictEqual(bar, all[index].filter(([part]) => part !== 'f0'))
      }
      ok(Math.max(...without.map(length)) < longest - 1)
      await page.screenshot({ path: file(name, 'cpus-without-one.png'), fullPage: true })
      await page.click('label[for=f0]')
      deepStrictEqual(await bars(page), all)
      deepStrictEqual(errors, [])
      await page.close()
    })
  }
})
