// Pictures of hostile names, in a browser as anybody would open them: nothing of a name is executed
// or loaded, nothing overlaps, and a click and a search do what they say.

import { deepStrictEqual, match, ok, strictEqual } from 'node:assert'
import { readFileSync, writeFileSync } from 'node:fs'
import { basename, join } from 'node:path'
import { after, before, describe, test } from 'node:test'
import { MISSING, launch, serve } from './browser.mjs'
import { picture } from './terminal.mjs'
import { OUT, ROOT, hostile, recordings, uniprof } from './uniprof.mjs'

/** Everything that a picture may consist of; there are two scripts, inferno's and one that cuts names. */
const ELEMENTS = ['defs', 'g', 'linearGradient', 'rect', 'stop', 'style', 'svg', 'text', 'title']

const drawn = name => join(OUT, `${name}.svg`)

/** Draws everything once: `[name, whether a click and a search do something]`. */
function draw() {
  const [before, after] = [hostile(1), hostile(4, 'hostile-after')]
  const [real] = recordings()
  const report = (flag, ...more) => uniprof('report', flag, ...more)
  report(`--flame=${drawn('hostile-flame')}`, before)
  report(`--flame=${drawn('hostile-callers')}`, '--reverse', before)
  report(`--chart=${drawn('hostile-chart')}`, before)
  report(`--flame=${drawn('hostile-nothing')}`, '--focus', 'no such function', before)
  uniprof('diff', `--flame=${drawn('hostile-diff')}`, before, after)
  report(`--flame=${drawn('calls-flame')}`, ...real.args)
  report(`--chart=${drawn('calls-chart')}`, ...real.args)
}

const PICTURES = [
  ['hostile-flame', true],
  ['hostile-callers', true],
  ['hostile-chart', true],
  ['hostile-diff', true],
  ['hostile-diff-widths-of-A', true],
  ['hostile-nothing', false],
  ['calls-flame', true],
  ['calls-chart', true],
]

test('the terminal of the README shows what a terminal does', () => {
  const [columns, path] = [96, join(ROOT, 'docs/pictures/terminal.svg')]
  const recording = ['--no-search', '--elf', 'corpus/images/calls', 'corpus/calls-stack.uprof']
  const shown = uniprof('report', '--tree', '--color', 'always', '--width', `${columns}`, ...recording)
  const drawing = picture(`$ uniprof report --tree\n${shown}`, columns)
  if (process.env.UNIPROF_BLESS) writeFileSync(path, drawing)
  strictEqual(drawing, readFileSync(path, 'utf8'), 'UNIPROF_BLESS=1 tests/consumers/run makes it anew')
})

describe('pictures', { skip: MISSING }, () => {
  let browser, server
  before(async () => {
    draw()
    server = await serve({ '/out': OUT })
    browser = await launch()
  })
  after(async () => {
    await browser?.close()
    server?.close()
  })

  for (const [name] of PICTURES) {
    // As part of another page, or in a viewer.
    test(`${name} without its script`, async () => {
      const page = await browser.still.newPage()
      await page.goto(`${server.url}/out/${name}.svg`)
      deepStrictEqual(await overlaps(page), [])
      await page.close()
    })
  }

  for (const [name, moves] of PICTURES) {
    test(name, async () => {
      const page = await browser.context.newPage()
      const events = { requests: [], errors: [] }
      page.on('request', request => events.requests.push(new URL(request.url()).pathname))
      page.on('pageerror', error => events.errors.push(error.message))
      await page.goto(`${server.url}/out/${name}.svg`)
      // Its script fits it to the window a moment later.
      if (moves) await page.waitForFunction(() => !document.documentElement.hasAttribute('width'))
      await look(page, name)
      deepStrictEqual(await overlaps(page), [])
      if (moves) {
        await clickAndBack(page)
        await searchAndBack(page)
      }
      const found = await page.evaluate(() => ({
        pwned: window.pwned,
        scripts: document.querySelectorAll('script').length,
        elements: [...new Set([...document.querySelectorAll('*')].map(one => one.tagName))],
        handlers: [...document.querySelectorAll('*')].flatMap(one =>
          [...one.attributes].filter(({ name }) => /^on/i.test(name)).map(({ value }) => value),
        ),
      }))
      strictEqual(found.pwned, undefined)
      strictEqual(found.scripts, moves ? 2 : 0)
      deepStrictEqual(found.elements.filter(one => ![...ELEMENTS, 'script'].includes(one)), [])
      deepStrictEqual(found.handlers, moves ? ['init(evt)'] : [])
      const foreign = events.requests.filter(path => path !== `/out/${name}.svg`)
      deepStrictEqual(foreign.filter(path => path !== '/favicon.ico'), [])
      deepStrictEqual(events.errors, [])
      await page.close()
    })
  }
})

describe('a flame graph of long names', { skip: MISSING }, () => {
  let browser, server
  const NAME =
    'std::_Hashtable<std::string, std::pair<std::string const, Order>>::_M_find_node(unsigned long) const'
  before(async () => {
    const stacks = join(OUT, 'long.folded')
    const run = join(OUT, 'long.uprof')
    writeFileSync(stacks, `main;f;${NAME} 4\nmain;g;${NAME} 30\nmain;h;${NAME} 90\nmain;i;${NAME} 900\n`)
    uniprof('import', '-f', 'folded', '-o', run, stacks)
    uniprof('report', `--flame=${drawn('long')}`, run)
    server = await serve({ '/out': OUT })
    browser = await launch()
  })
  after(async () => {
    await browser?.close()
    server?.close()
  })

  /** Texts in the boxes of the long name, the narrowest one first. */
  const labels = page =>
    page.evaluate(name => {
      const boxes = [...document.querySelectorAll('#frames > *')]
      const named = boxes.filter(one => one.querySelector('title').textContent.startsWith(name))
      const width = one => one.querySelector('rect').width.baseVal.value
      named.sort((a, b) => width(a) - width(b))
      return named.map(one => one.querySelector('text').textContent)
    }, NAME)

  test('keeps what tells most, with its script and without', async () => {
    for (const context of [browser.still, browser.context]) {
      const page = await context.newPage()
      await page.goto(`${server.url}/out/long.svg`)
      if (context === browser.context)
        await page.waitForFunction(() => !document.documentElement.hasAttribute('width'))
      const found = await labels(page)
      strictEqual(found.length, 4)
      strictEqual(found[0], '')
      match(found[1], /^_M.*…$/)
      strictEqual(found[2], '_M_find_node')
      strictEqual(found[3], NAME)
      await page.close()
    }
  })

  test('can be read on a dark screen', async () => {
    for (const [context, isDark] of [[browser.context, false], [browser.dark, true]]) {
      const page = await context.newPage()
      await page.goto(`${server.url}/out/long.svg`)
      await page.waitForFunction(() => !document.documentElement.hasAttribute('width'))
      const colors = await page.evaluate(() => {
        const of = (query, what) => getComputedStyle(document.querySelector(query))[what]
        const free = ['#title', '#subtitle', '#details', '#unzoom', '#search', '#matched']
        return { behind: of('#background stop', 'stopColor'), free: free.map(one => of(one, 'fill')) }
      })
      const light = color => color.match(/\d+/g).slice(0, 3).every(part => Number(part) > 150)
      strictEqual(light(colors.behind), !isDark)
      deepStrictEqual(colors.free.map(light), colors.free.map(() => isDark))
      await look(page, isDark ? 'long-dark' : 'long-light')
      await page.close()
    }
  })
})

/** Keeps the picture, for people to look at. */
async function look(page, name) {
  const height = await page.evaluate(() => document.documentElement.getBoundingClientRect().height)
  await page.setViewportSize({ width: 1300, height: Math.ceil(height) })
  // Playwright's own way waits for something that a page that is no HTML doesn't do.
  const client = await page.context().newCDPSession(page)
  const { data } = await client.send('Page.captureScreenshot', { format: 'png' })
  writeFileSync(join(OUT, `${name}.png`), Buffer.from(data, 'base64'))
}

/** Texts that leave the picture or their box, or touch another text. */
function overlaps(page) {
  return page.evaluate(() => {
    const box = one => one.getBoundingClientRect()
    const texts = [...document.querySelectorAll('text')].filter(
      one => one.textContent.trim() && box(one).width > 0,
    )
    const show = one => one.textContent.slice(0, 60)
    const whole = box(document.documentElement)
    const inside = (inner, outer, slack) =>
      inner.left >= outer.left - slack && inner.right <= outer.right + slack
    const found = []
    for (const text of texts) {
      const frame = text.closest('#frames > *')?.querySelector('rect')
      if (!inside(box(text), whole, 0)) found.push(`leaves the picture: ${show(text)}`)
      if (frame && !inside(box(text), box(frame), 1)) found.push(`leaves its box: ${show(text)}`)
    }
    // Those in boxes keep apart if they keep inside.
    const free = texts.filter(text => !text.closest('#frames'))
    free.forEach((one, index) => {
      for (const other of free.slice(index + 1)) {
        const [a, b] = [box(one), box(other)]
        // Lines of text may touch where no letter reaches.
        const apart =
          a.right <= b.left || b.right <= a.left || a.bottom <= b.top + 3 || b.bottom <= a.top + 3
        if (!apart) found.push(`overlap: ${show(one)} / ${show(other)}`)
      }
    })
    return found
  })
}

/** A click on a box makes it as wide as the picture, and `Reset Zoom` all as before. */
async function clickAndBack(page) {
  const boxes = page.locator('#frames > *')
  const width = index => boxes.nth(index).locator('rect').evaluate(one => one.width.baseVal.value)
  const all = await page.evaluate(() =>
    [...document.querySelectorAll('#frames > * > rect')].map(one => one.width.baseVal.value),
  )
  const widest = Math.max(...all)
  const narrower = all.findIndex(one => one < widest * 0.9 && one > widest * 0.02)
  ok(narrower >= 0, 'no box to click on')
  await boxes.nth(narrower).locator('rect').click({ position: { x: 2, y: 8 } })
  ok(Math.abs((await width(narrower)) - widest) < 1, 'the click did nothing')
  deepStrictEqual(await overlaps(page), [])
  await page.locator('#unzoom').click()
  ok(Math.abs((await width(narrower)) - all[narrower]) < 1, 'Reset Zoom did nothing')
}

/** A search marks what matches, and says how much of all it is. */
async function searchAndBack(page) {
  page.once('dialog', dialog => dialog.accept('main'))
  await page.locator('#search').click()
  const matched = page.locator('#matched')
  match(await matched.textContent(), /^Matched: [1-9][\d.]*%$/)
  deepStrictEqual(await overlaps(page), [])
  await page.locator('#search').click()
  strictEqual((await matched.textContent()).trim(), '')
}
