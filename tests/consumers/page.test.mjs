// The page of `report --html`, opened from its file in a browser as whoever gets it does: its
// numbers are those of the other reports, for what is selected, too; nothing of a hostile name is executed or loaded,
// and its views do what they say, with keys alone. It reads without a script, and on a phone.

import { deepStrictEqual, ok, strictEqual } from 'node:assert'
import { readFileSync, rmSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:http'
import { join } from 'node:path'
import { after, before, describe, test } from 'node:test'
import { pathToFileURL } from 'node:url'
import { gunzipSync } from 'node:zlib'
import { MISSING, launch, opened as open } from './browser.mjs'
import { example } from './example.mjs'
import { MODULES, decoded } from './selections.mjs'
import { OUT, ROOT, SHOTS, folded, recordings, sorted, sourced, stacks, sum, uniprof } from './uniprof.mjs'

const { lookOf } = await import(join(MODULES, 'look.mjs'))
const { pprof } = await import(join(MODULES, 'pprof.mjs'))
const { filtered } = await import(join(MODULES, 'selection.mjs'))

const TABS = ['flame', 'functions', 'sandwich', 'calls', 'code', 'chart', 'heat']
/** Sizes of screens: a desk's, a small one, a phone's. */
const SCREENS = [
  [1400, 900],
  [1024, 700],
  [390, 844],
]

const RECORDINGS = recordings()
/** Source of the first one, which tries to leave its place. */
const { image, source, folder } = sourced()
RECORDINGS[0].args.unshift('--elf', image)
const PICTURES = join(ROOT, 'docs/pictures')
const file = name => join(OUT, `${name}-page.html`)

/** The flags that the page says select the same, as a list. */
async function flagsOf(page) {
  const told = await page.locator('.selected code').textContent()
  return told.split(' ').filter(Boolean)
}

/** Waits until all that was pressed is drawn: a page draws once a frame. */
function drawn(page) {
  return page.evaluate(() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done))))
}

/** The rows of the table as they stand: own and total samples with shares, name, whole name. */
function rows(page) {
  return page.evaluate(() =>
    [...document.querySelectorAll('#top tbody tr')]
      .filter(row => !row.hidden)
      .map(({ cells }) => ({
        numbers: [0, 1, 2, 3].map(index => cells[index].textContent),
        name: cells[5].querySelector('bdi').textContent,
        whole: cells[5].title,
      })),
  )
}

/** A sample in the form of `perf script`. */
const one = (thread, seconds, frames) =>
  `t${thread} ${thread} ${seconds.toFixed(9)}: cycles:\n` +
  frames.map((name, at) => `\t${(0x1000 + at).toString(16)} ${name}+0x10 (/x)\n`).join('') +
  '\n'
const many = (count, of) => Array.from({ length: count }, (_, number) => of(number)).join('')

/** Names that are markup, have control characters, turn the direction of writing, or are very long. */
const BAD_NAMES = [
  '<img src=x onerror=window.pwned=1>',
  `<b title="${'&quot;'.repeat(20)}">`,
  'red\u001b[31m bell\u0007 del\u007f csi\u009b31m',
  'mark\u200f\u200e override\u202e isolate\u2067 end\u2066\u2069',
  'line\u2028paragraph\u2029zero\u200bwidth\ufeff',
  `long_${'n'.repeat(10_000)}`,
  `deep<${'Box<'.repeat(2_500)}u8${'>'.repeat(2_500)}>::drop`,
]

/** Recordings at the edge of what there is. */
const ODD = {
  names: {
    text: many(20, number => one(1, number / 1e3, [...BAD_NAMES.slice(number % 7), 'main'])),
    says: '20 samples',
  },
  damaged: { recording: 'corpus/bad/flipped-payload.uprof', says: 'damaged' },
  cut: { recording: 'corpus/bad/cut-in-block.uprof', says: 'no sample to show' },
  hole: { recording: 'corpus/bad/hole-of-zeros.uprof', says: 'damaged' },
  overflow: { recording: 'corpus/bad/found-lost-samples-overflow.uprof', says: 'no sample to show' },
  late: { recording: 'corpus/bad/found-sample-long-after-the-end.uprof', says: 'Samples are missing' },
  none: { text: one(1, 1, ['main']), args: ['--focus', 'nowhere'], says: 'no sample to show' },
  single: { text: one(1, 1, ['leaf', 'main']), says: '1 samples, 100.0% of all' },
  threads: { text: many(4000, number => one(number + 1, number / 1e3, ['leaf', 'main'])), says: '3988 more tracks', more: '3600 have no track' },
  deep: {
    text: many(3, number => one(1, number / 1e3, Array.from({ length: 1024 }, (_, at) => `f${at}`))),
    says: '3 samples, 100.0% of all',
  },
}

describe('page', { skip: MISSING }, () => {
  let browser
  before(async () => {
    for (const { name, args } of RECORDINGS) uniprof('report', `--html=${file(name)}`, ...args)
    browser = await launch()
  })
  after(() => {
    rmSync(folder, { recursive: true })
    return browser?.close()
  })

  for (const recording of RECORDINGS) {
    const { name, args } = recording

    test(`${name}: its numbers are those of --top and of JSON`, async () => {
      const { page } = await open(browser.context, file(name), '#tab=functions')
      const found = await rows(page)
      const lines = uniprof('report', '--top', '--rows', '0', ...args).split('\n')
      const split = line => /^ *(\d+) +(\S+) +(\d+) +(\S+)  (.*)$/.exec(line)
      const top = lines.map(split).filter(Boolean)
      ok(top.length > 5)
      const numbers = found.map(one => one.numbers)
      deepStrictEqual(numbers, top.map(one => one.slice(1, 5)))
      found.forEach((one, index) =>
        // The page shortens long names in their middle.
        ok(top[index][5].startsWith(one.name.split('…')[0]), `${one.name}: ${top[index][5]}`),
      )
      const apart = ['--processes', 'apart']
      const json = JSON.parse(uniprof('export', '--format', 'json', ...apart, ...args))
      const pairs = json.labels.map(() => [0, 0])
      for (const { frames, count } of json.stacks) {
        for (const label of new Set(frames)) pairs[label][1] += count
        pairs[frames.at(-1)][0] += count
      }
      const shown = numbers.map(([own, , total]) => `${own} ${total}`).sort()
      const counted = pairs.filter(([, total]) => total > 0)
      deepStrictEqual(shown, counted.map(pair => pair.join(' ')).sort())
      const account = await page.locator('.account').textContent()
      ok(account.includes(`${json.account.counted} samples in `), account)
      const selected = await page.locator('.selected b').textContent()
      strictEqual(selected, `${sum(stacks(recording))} samples`)
      await page.close()
    })

    test(`${name}: nothing is executed or loaded but its own`, async () => {
      const { page, events } = await open(browser.context, file(name))
      const found = await page.evaluate(() => ({
        pwned: window.pwned,
        scripts: document.scripts.length,
        asking: document.querySelectorAll('iframe, object, embed, img, image, link, base').length,
        attributes: [...document.querySelectorAll('*')].flatMap(one =>
          [...one.attributes].map(({ name }) => name).filter(name => /^(on|style|src)/i.test(name)),
        ),
      }))
      deepStrictEqual(found, { pwned: undefined, scripts: 1, asking: 0, attributes: [] })
      deepStrictEqual(events, { requests: [pathToFileURL(file(name)).href], errors: [] })
      await page.close()
    })

    test(`${name}: a click on a heading sorts`, async () => {
      const { page } = await open(browser.context, file(name), '#tab=functions')
      const column = async index => (await rows(page)).map(one => Number(one.numbers[index]))
      const falling = [...(await column(2))].sort((a, b) => b - a)
      const sort = async (key, order) => {
        const heading = page.locator(`#top th[data-key=${key}]`)
        await heading.getByRole('button').click()
        await page.locator(`#top th[data-key=${key}][aria-sort=${order}]`).waitFor()
      }
      await sort('total', 'descending')
      deepStrictEqual(await column(2), falling)
      await sort('total', 'ascending')
      deepStrictEqual(await column(2), falling.toReversed())
      strictEqual(await page.locator('th[aria-sort]').count(), 1)
      await sort('function', 'ascending')
      const names = (await rows(page)).map(one => one.name)
      ok(names.every((name, index) => index === 0 || names[index - 1] <= name), names)
      await page.close()
    })

    test(`${name}: the search leaves what has it, and says in how much that is`, async () => {
      const { page, events } = await open(browser.context, file(name), '#tab=functions')
      const all = await rows(page)
      const sought = all[1].whole || all[1].name
      const pattern = sought.slice(0, 60).replace(/[^\w]/gu, '.')
      await page.locator('#find').fill(pattern.toUpperCase())
      await page.waitForFunction(() => document.querySelector('#matches').textContent)
      const left = await rows(page)
      ok(left.length > 0 && left.length < all.length)
      ok(left.every(one => new RegExp(pattern, 'iu').test(one.whole || one.name)))
      const matches = await page.locator('#matches').textContent()
      const [, count, percent] = /^(\d+) of .* in ([\d.]+)% of the selection$/.exec(matches)
      strictEqual(Number(count), left.length)
      const own = left.length === 1 ? left[0].numbers[3] : `${percent}%`
      strictEqual(`${percent}%`, own)
      await page.locator('#find').fill('')
      await page.waitForFunction(() => !document.querySelector('#matches').textContent)
      deepStrictEqual(await rows(page), all)
      // What is no expression is sought as it stands.
      await page.locator('#find').fill('(no such')
      await page.waitForFunction(() => /^0 of/.test(document.querySelector('#matches').textContent))
      deepStrictEqual(events.errors, [])
      await page.close()
    })

    test(`${name}: what is dragged over is selected, as the flags that it tells select it`, async () => {
      const { page, events } = await open(browser.context, file(name), '#tab=functions')
      const line = await page.locator('canvas.tracks').boundingBox()
      const [left, right] = [line.x + line.width * 0.3, line.x + line.width * 0.62]
      await page.mouse.move(left, line.y + 30)
      await page.mouse.down()
      await page.mouse.move((left + right) / 2, line.y + 30)
      await page.mouse.move(right, line.y + 30)
      await page.mouse.up()
      await page.locator('.track').nth(1).click()
      await page.waitForFunction(() => /--to .*--vcpu/.test(document.querySelector('.selected code').textContent))
      const flags = await flagsOf(page)
      const json = JSON.parse(uniprof('export', '--format', 'json', ...flags, ...args))
      ok(json.account.counted > 0, flags.join(' '))
      strictEqual(await page.locator('.selected b').textContent(), `${json.account.counted} samples`)
      const top = uniprof('report', '--top', '--rows', '0', ...flags, ...args).split('\n')
      const split = lines => lines.map(one => /^ *(\d+) +(\S+) +(\d+) +(\S+)  /.exec(one)).filter(Boolean)
      const told = split(top).map(one => one.slice(1, 5))
      deepStrictEqual((await rows(page)).map(one => one.numbers), told)
      // A link to it shows the same, and Escape shows all.
      await page.waitForFunction(() => location.hash.includes('tasks='))
      const again = await open(browser.context, file(name), await page.evaluate(() => location.hash))
      deepStrictEqual((await rows(again.page)).map(one => one.numbers), told)
      await page.locator('canvas.tracks').press('Escape')
      await page.waitForFunction(() => !/--from/.test(document.querySelector('.selected code').textContent))
      deepStrictEqual([...events.errors, ...again.events.errors], [])
      await again.page.close()
      await page.close()
    })

    test(`${name}: a box of the flame graph widens, by pointer and by keys`, async () => {
      const { page, events } = await open(browser.context, file(name), '#tab=flame')
      const canvas = page.locator('canvas.flame').first()
      await canvas.waitFor()
      const { width } = await canvas.boundingBox()
      const at = async x => {
        await canvas.hover({ position: { x, y: 18 * 2 + 9 } })
        return page.locator('#detail').textContent()
      }
      await canvas.focus()
      for (const key of ['ArrowDown', 'ArrowDown', 'ArrowDown', 'ArrowRight', 'Enter']) await canvas.press(key)
      const [first, last] = [await at(3), await at(width - 3)]
      ok(first.includes(' samples, '), first)
      strictEqual(last, first)
      await drawn(page)
      ok(await page.locator('.picked h3 bdi').isVisible())
      ok(first.startsWith(await page.locator('.picked h3 bdi').textContent()), first)
      // A link to it shows the same box as wide.
      await page.waitForFunction(() => location.hash.includes('zoom='))
      const again = await open(browser.context, file(name), await page.evaluate(() => location.hash))
      const same = again.page.locator('canvas.flame').first()
      for (const x of [3, width - 3]) {
        await same.hover({ position: { x, y: 18 * 2 + 9 } })
        strictEqual(await again.page.locator('#detail').textContent(), first)
      }
      // Keys begin at the widened box, and on it Enter shows all.
      await again.page.mouse.move(0, 0)
      await same.press('ArrowRight')
      strictEqual(await again.page.locator('#detail').textContent(), first)
      await same.press('Enter')
      await again.page.waitForFunction(() => !location.hash.includes('zoom='))
      deepStrictEqual(again.events.errors, [])
      await again.page.close()
      await canvas.press('Escape')
      await page.waitForFunction(() => !location.hash.includes('zoom='))
      // Turned over, its numbers are the same.
      await page.getByRole('button', { name: 'Callers and callees' }).click()
      const title = page.locator('#panel-sandwich .around')
      await title.waitFor()
      const numbers = /([\d,]+ samples), ([\d.]+%)/.exec(first)
      await page.waitForFunction(text => document.querySelector('#panel-sandwich .around').textContent.includes(text), '; callers')
      ok((await title.textContent()).includes(first.split(': ').at(0).slice(0, 30)), await title.textContent())
      ok(numbers)
      deepStrictEqual(events.errors, [])
      await page.close()
    })

    test(`${name}: what is selected can be saved for speedscope and pprof`, async () => {
      const { page, events } = await open(browser.context, file(name))
      await page.locator('.track').nth(1).click()
      await page.waitForFunction(() => /--vcpu/.test(document.querySelector('.selected code').textContent))
      const flags = await flagsOf(page)
      const waiting = page.waitForEvent('download')
      await page.locator('.menu summary', { hasText: 'Save' }).click()
      await page.getByRole('button', { name: 'Save for speedscope' }).click()
      const saved = await waiting
      strictEqual(saved.suggestedFilename(), 'selection.speedscope.json')
      const { shared, profiles } = JSON.parse(readFileSync(await saved.path(), 'utf8'))
      const found = new Map()
      profiles[0].samples.forEach((frames, at) => {
        const stack = folded(frames.map(frame => shared.frames[frame].name))
        found.set(stack, (found.get(stack) ?? 0) + profiles[0].weights[at])
      })
      deepStrictEqual(sorted(found), sorted(stacks(recording, '--processes', 'apart', ...flags)))
      // What is in the one for pprof is asked in pprof.test.mjs.
      const another = page.waitForEvent('download')
      await page.getByRole('button', { name: 'Save for pprof' }).click()
      const packed = await another
      strictEqual(packed.suggestedFilename(), 'selection.pb.gz')
      const profile = await decoded(readFileSync(file(name), 'utf8'))
      const look = lookOf(await page.evaluate(() => location.hash))
      const made = pprof(profile, look, filtered(profile, look))
      ok(gunzipSync(readFileSync(await packed.path())).equals(Buffer.from(made)))
      deepStrictEqual(events.errors, [])
      await page.close()
    })

    test(`${name}: keys alone go through tabs and the tree of calls`, async () => {
      const { page, events } = await open(browser.context, file(name))
      await page.locator('#tab-functions').focus()
      for (const key of ['ArrowRight', 'ArrowRight']) await page.keyboard.press(key)
      strictEqual(await page.evaluate(() => document.activeElement.id), 'tab-calls')
      await page.locator('[role=treeitem]').first().waitFor()
      const item = page.locator('[role=tree] > [role=treeitem]').first()
      strictEqual(await item.getAttribute('tabindex'), '0')
      await item.focus()
      const isOpen = () => item.getAttribute('aria-expanded')
      const before = await isOpen()
      await page.keyboard.press(before === 'true' ? 'ArrowLeft' : 'ArrowRight')
      ok(before !== (await isOpen()))
      await page.keyboard.press('End')
      ok(await page.evaluate(() => document.activeElement.getAttribute('role') === 'treeitem'))
      deepStrictEqual(events.errors, [])
      await page.close()
    })

    test(`${name}: keys alone go through flame chart and heat map`, async () => {
      const { page, events } = await open(browser.context, file(name), '#tab=chart')
      const detail = () => page.locator('#detail').textContent()
      const chart = page.locator('canvas.chart')
      await chart.focus()
      await chart.press('Home')
      const told = new Set()
      for (const key of ['ArrowDown', 'ArrowDown', 'ArrowRight', 'ArrowLeft', 'ArrowUp', 'ArrowDown']) {
        told.add(await detail())
        await chart.press(key)
      }
      ok(told.size > 2, [...told].join('\n'))
      const [box] = (await detail()).split(': about ')
      await chart.press('Enter')
      await drawn(page)
      const picked = await page.locator('.picked h3 bdi').textContent()
      ok(box.startsWith(picked), `${box}: ${picked}`)
      await page.locator('#tab-heat').click()
      const heat = page.locator('canvas.heatmap')
      await heat.focus()
      for (const key of ['ArrowUp', 'ArrowRight', 'ArrowLeft', 'Shift+ArrowUp', 'Shift+ArrowUp']) await heat.press(key)
      await page.waitForFunction(() => /--to/.test(document.querySelector('.selected code').textContent))
      await drawn(page)
      const json = JSON.parse(uniprof('export', '--format', 'json', ...(await flagsOf(page)), ...args))
      strictEqual(await page.locator('.selected b').textContent(), `${json.account.counted} samples`)
      await heat.press('Escape')
      await page.waitForFunction(() => !/--to/.test(document.querySelector('.selected code').textContent))
      deepStrictEqual(events.errors, [])
      await page.close()
    })

    test(`${name}: it reads without a script`, async () => {
      const { page } = await open(browser.still, file(name))
      for (const part of ['#top tbody tr', '#threads td', '.account li', 'dd', 'header h1']) {
        ok(await page.locator(part, { hasText: /\w/ }).first().isVisible(), part)
      }
      for (const control of ['#find', '#views', '.control']) {
        ok(!(await page.locator(control).first().isVisible()), control)
      }
      await page.locator('.facts summary').first().click()
      ok(await page.getByText('file', { exact: true }).first().isVisible())
      await page.close()
    })

    test(`${name}: a browser that can't unpack it, or data that was cut, leave the fixed parts`, async () => {
      const old = await browser.context.browser().newContext()
      await old.addInitScript(() => delete window.DecompressionStream)
      const page = await old.newPage()
      await page.goto(pathToFileURL(file(name)).href)
      ok((await page.locator('#views').textContent()).startsWith('This browser is too old to unpack'))
      ok(await page.locator('#top tbody tr').first().isVisible())
      await old.close()
      const cut = join(OUT, `${name}-cut-page.html`)
      const whole = readFileSync(file(name), 'utf8')
      writeFileSync(cut, whole.replace(/(<template id="samples">.{40})[^<]*/, '$1'))
      const broken = await browser.context.newPage()
      await broken.goto(pathToFileURL(cut).href)
      const said = broken.locator('#views', { hasText: "The data of this page can't be read" })
      await said.waitFor()
      ok(await broken.locator('#top tbody tr').first().isVisible())
      await broken.close()
    })

    for (const [form, width, colorScheme] of [
      ['light', 1300, 'light'],
      ['dark', 1300, 'dark'],
      ['phone', 400, 'light'],
    ]) {
      test(`${name}: nothing leaves the page (${form})`, async () => {
        const { page, events } = await open(browser.context, file(name))
        await page.emulateMedia({ colorScheme })
        await page.setViewportSize({ width, height: 900 })
        for (const tab of TABS) {
          if (!(await page.locator(`#tab-${tab}`).count())) continue
          await page.locator(`#tab-${tab}`).click()
          await page.locator(`#panel-${tab}`).waitFor()
          await page.evaluate(() => scrollTo(0, 0))
          await page.screenshot({ path: join(OUT, `${name}-page-${form}-${tab}.png`), fullPage: true })
          const wide = await page.evaluate(() => document.documentElement.scrollWidth)
          ok(wide <= width, `${tab}: ${wide} pixels of ${width}`)
        }
        await page.locator('#find').fill('a')
        await page.waitForFunction(() => document.querySelector('#matches').textContent)
        const matches = await page.locator('#matches').boundingBox()
        ok(matches.x >= 0 && matches.x + matches.width <= width, `${matches.x} and ${matches.width} of ${width}`)
        await page.screenshot({ path: join(OUT, `${name}-page-${form}-search.png`) })
        deepStrictEqual(events.errors, [])
        await page.close()
      })
    }
  }

  for (const [width, height] of SCREENS) {
    for (const scheme of ['light', 'dark']) {
      test(`the first screen has the profile (${width} × ${height}, ${scheme})`, async () => {
        const { page, events } = await open(scheme === 'dark' ? browser.dark : browser.context, file('pack-stack'))
        await page.setViewportSize({ width, height })
        await drawn(page)
        await page.screenshot({ path: join(SHOTS, `report-${width}x${height}-${scheme}.png`) })
        const { flame, header, wide, high } = await page.evaluate(() => ({
          flame: document.querySelector('#panel-flame canvas').getBoundingClientRect().toJSON(),
          header: document.querySelector('header').getBoundingClientRect().height,
          wide: document.documentElement.scrollWidth,
          high: document.documentElement.scrollHeight,
        }))
        // A row of boxes is 18 pixels high: the first ten are seen.
        ok(flame.top > 0 && flame.top + 10 * 18 < height, `the flame graph is at ${flame.top}`)
        ok(wide <= width, `${wide} pixels of ${width}`)
        if (width > 672) {
          ok(header < 48, `the header is ${header} pixels high`)
          strictEqual(high, height)
          ok(flame.top < height * 0.4, `the flame graph is at ${flame.top} of ${height}`)
        }
        // Its first box is all of a process.
        await page.locator('#panel-flame canvas').hover({ position: { x: 20, y: 9 } })
        ok(/ samples, /.test(await page.locator('#detail').textContent()))
        deepStrictEqual(events.errors, [])
        await page.close()
      })
    }
  }

  test('a row that is clicked on selects its function, and the panel has its numbers and neighbours', async () => {
    const { page, events } = await open(browser.context, file('pack-stack'), '#tab=functions')
    // What is hottest is listed before anything is selected.
    const [first] = await rows(page)
    const hottest = page.locator('.picked .list button').first()
    ok((await hottest.textContent()).startsWith(first.name), await hottest.textContent())
    const row = page.locator('#top tbody tr', { hasText: 'pack_block' })
    const cells = await row.locator('td').allTextContents()
    await row.locator('td.module').click()
    await page.waitForFunction(() => document.querySelector('.picked h3 bdi').textContent === 'pack_block')
    const facts = await page.locator('.picked dd').allTextContents()
    deepStrictEqual(facts, [`${cells[1]}, ${cells[0]} samples`, `${cells[3]}, ${cells[2]} samples`])
    const near = await page.locator('.picked .list').allTextContents()
    strictEqual(near.length, (await page.locator('.picked h4').count()))
    ok(near.some(text => text.includes('qsort_r')), near.join('; '))
    strictEqual(await row.getAttribute('aria-current'), 'true')
    // Of two columns no one has the name of another.
    const heads = await page.locator('#top th').allTextContents()
    strictEqual(new Set(heads).size, heads.length)
    await page.locator('.picked .list button', { hasText: 'qsort_r' }).click()
    await page.waitForFunction(() => document.querySelector('.picked h3 bdi').textContent === 'qsort_r')
    // Filters are of functions: of a module there is none.
    const does = () => page.locator('.picked .does button').allTextContents()
    const [, told] = await page.locator('.picked dd').allTextContents()
    await page.getByRole('button', { name: 'Focus', exact: true }).click()
    await page.waitForFunction(all => document.querySelector('.selected b').textContent === all, told.split(', ')[1])
    deepStrictEqual((await does()).slice(-4), ['Focus', 'Ignore', 'Hide', 'Clear'])
    await page.locator('[data-form=by]').selectOption('module')
    await drawn(page)
    await page.locator('#top tbody tr', { hasText: 'libc' }).getByRole('button').click()
    await page.waitForFunction(() => document.querySelector('.picked h3 bdi').textContent.startsWith('libc'))
    deepStrictEqual(await does(), ['Callers and callees', 'Clear'])
    deepStrictEqual(events.errors, [])
    await page.close()
  })

  test('Show all and Escape end selection, filters and search; controls are those of the view; ? lists the keys', async () => {
    const { page, events } = await open(browser.context, file('pack-stack'), '#tab=functions&from=10&search=pack&focus=pack')
    const showAll = page.getByRole('button', { name: 'Show all' })
    strictEqual(await page.locator('#find').inputValue(), 'pack')
    await showAll.click()
    await page.waitForFunction(() => document.querySelector('#find').value === '')
    await page.waitForFunction(() => location.hash === '#tab=functions')
    ok(await showAll.isDisabled())
    await page.locator('#find').fill('memcpy')
    await page.waitForFunction(() => document.querySelector('#matches').textContent)
    await page.locator('#tab-functions').press('Escape')
    await page.waitForFunction(() => document.querySelector('#find').value === '')
    // A checkbox is no place for text.
    await page.locator('[data-form=fold]').click()
    await page.waitForFunction(() => location.hash.includes('fold=1'))
    await page.keyboard.press('Escape')
    await page.waitForFunction(() => location.hash === '#tab=functions')
    const forms = () => page.locator('.toolbar [data-form]').evaluateAll(all => all.map(one => one.dataset.form))
    deepStrictEqual(await forms(), ['by', 'fold', 'inlines'])
    await page.locator('#tab-heat').click()
    await drawn(page)
    deepStrictEqual(await forms(), [])
    await page.keyboard.press('?')
    ok(await page.getByRole('dialog').isVisible())
    await page.screenshot({ path: join(OUT, 'help-page.png') })
    await page.keyboard.press('Escape')
    ok(!(await page.getByRole('dialog').isVisible()))
    await page.keyboard.press('/')
    strictEqual(await page.evaluate(() => document.activeElement.id), 'find')
    deepStrictEqual(events.errors, [])
    await page.close()
  })

  for (const [name, { text, recording: real, args = [], says, more }] of Object.entries(ODD)) {
    test(`${name}: a page that says so`, async () => {
      const [source, made, path] = ['txt', 'uprof', 'html'].map(ending => join(OUT, `odd-${name}.${ending}`))
      if (text) writeFileSync(source, text)
      if (text) uniprof('import', '--format', 'perf-script', '--output', made, source)
      uniprof('report', `--html=${path}`, ...args, real ?? made)
      const { page, events } = await open(browser.context, path)
      await page.locator('body', { hasText: says }).waitFor()
      if (more) {
        await page.getByRole('button', { name: says }).click()
        await page.locator('.timeline', { hasText: more }).waitFor()
        await page.getByRole('button', { name: 'Fewer tracks' }).click()
      }
      for (const width of [1300, 400]) {
        await page.setViewportSize({ width, height: 900 })
        for (const tab of TABS) {
          const one = page.locator(`#tab-${tab}`)
          if (!(await one.count())) continue
          await one.click()
          await page.locator(`#panel-${tab}`).waitFor()
          const found = await page.evaluate(() => ({
            wide: document.documentElement.scrollWidth,
            text: document.documentElement.innerText,
            titles: [...document.querySelectorAll('[title]')].map(one => one.title).join(''),
          }))
          ok(found.wide <= width, `${tab}: ${found.wide} pixels of ${width}`)
          // Nothing that controls a terminal or turns the direction of writing.
          const controls = /(?![\t\n])[\p{Cc}\u200e\u200f\u2028-\u202e\u2066-\u2069]/u
          deepStrictEqual([found.text, found.titles].map(text => controls.exec(text)?.[0]), [undefined, undefined], tab)
        }
        await page.evaluate(() => scrollTo(0, 0))
        await page.screenshot({ path: join(OUT, `odd-${name}-${width}.png`) })
      }
      strictEqual(await page.evaluate(() => window.pwned), undefined)
      deepStrictEqual(events, { requests: [pathToFileURL(path).href], errors: [] })
      await page.close()
    })
  }

  /** A page of samples in the form of `perf script`. */
  function pageOf(name, samples) {
    const [text, recording, path] = ['txt', 'uprof', 'html'].map(ending => join(OUT, `${name}.${ending}`))
    writeFileSync(text, samples)
    uniprof('import', '--format', 'perf-script', '--output', recording, text)
    uniprof('report', `--html=${path}`, recording)
    return path
  }

  test('a box too deep for an address is narrow again when all is shown', async () => {
    const chain = letter => Array.from({ length: 300 }, (_, at) => `${letter}${300 - at}`)
    const samples = ['a', 'b'].map((letter, at) => one(1, at, [...chain(letter), 'main'])).join('')
    const { page, events } = await open(browser.context, pageOf('deep-pair', samples), '#tab=flame')
    const canvas = page.locator('canvas.flame').first()
    const { width } = await canvas.boundingBox()
    const at = async x => {
      await canvas.hover({ position: { x, y: 9 } })
      return (await page.locator('#detail').textContent()).split(/\b/, 1)[0]
    }
    const descend = async () => {
      for (let pages = 0; pages < 12; pages++) await canvas.press('PageDown')
    }
    await descend()
    const names = [await at(9), await at(width - 9)]
    ok(/^a2/.test(names[0]) && /^b2/.test(names[1]), names.join(' '))
    await canvas.click({ position: { x: 9, y: 9 } })
    await drawn(page)
    strictEqual(await at(width - 9), names[0])
    await page.getByRole('button', { name: 'Show all' }).click()
    await drawn(page)
    strictEqual(await at(9), 'main')
    await descend()
    deepStrictEqual([await at(9), await at(width - 9)], names)
    deepStrictEqual(events.errors, [])
    await page.close()
  })

  test('the rest of what one called comes by keys, too, and keeps the keyboard', async () => {
    const samples = many(150, number => one(1, number / 1e3, [`f${number}`, 'main']))
    const { page, events } = await open(browser.context, pageOf('wide', samples), '#tab=calls')
    await page.locator('[role=treeitem]').first().focus()
    await page.keyboard.press('End')
    const focused = () => page.evaluate(() => [document.activeElement.textContent, document.activeElement.tabIndex])
    deepStrictEqual(await focused(), ['50 more', 0])
    const count = await page.locator('[role=treeitem]').count()
    await page.keyboard.press('Enter')
    strictEqual(await page.locator('[role=treeitem]').count(), count + 49)
    const [text, index] = await focused()
    ok(/^f\d+/.test(text) && index === 0, text)
    deepStrictEqual(events.errors, [])
    await page.close()
  })

  test('only the main button selects, and a drag that the browser takes over ends', async () => {
    const { page, events } = await open(browser.context, file('calls'))
    const selected = () => page.locator('.selected').textContent()
    for (const [tab, canvas] of [['flame', 'canvas.tracks'], ['heat', 'canvas.heatmap']]) {
      await page.locator(`#tab-${tab}`).click()
      await drawn(page)
      const { x, y, width } = await page.locator(canvas).boundingBox()
      const reach = canvas === 'canvas.tracks' ? width : 20
      await page.mouse.move(x + reach * 0.1, y + 40)
      await page.mouse.down()
      await page.mouse.move(x + reach * 0.9, y + 50)
      await page.mouse.up()
      await drawn(page)
      const before = await selected()
      ok(before.includes('--to'), before)
      await page.mouse.click(x + 5, y + 40, { button: 'right' })
      await drawn(page)
      strictEqual(await selected(), before)
      await page.mouse.move(x + 2, y + 40)
      await page.mouse.down()
      await page.locator(canvas).dispatchEvent('pointercancel')
      await page.mouse.move(x + reach * 0.5, y + 200)
      await page.mouse.up()
      await drawn(page)
      strictEqual(await selected(), before)
      await page.getByRole('button', { name: 'Show all' }).click()
      await drawn(page)
    }
    deepStrictEqual(events.errors, [])
    await page.close()
  })

  test('on paper, the selection is told, and which rows are printed', async () => {
    const samples = many(70, number => one(1, number / 1e3, [`f${number}`, 'main']))
    const { page, events } = await open(browser.context, pageOf('paper', samples), '#tab=functions&to=65000')
    await page.emulateMedia({ media: 'print' })
    const isSeen = text => page.locator('.views').getByText(text).isVisible()
    const parts = ['65 samples, ', 'Printed are the first 60 rows.', 'Show all']
    deepStrictEqual(await Promise.all(parts.map(isSeen)), [true, true, false])
    strictEqual(await page.locator('#top tbody tr:visible').count(), 60)
    await page.emulateMedia({ media: 'screen' })
    await page.locator('#find').fill('f1')
    await page.waitForFunction(() => document.querySelector('#matches').textContent)
    await page.emulateMedia({ media: 'print' })
    deepStrictEqual(await Promise.all(parts.map(isSeen)), [true, false, false])
    deepStrictEqual(events.errors, [])
    await page.close()
  })

  test('boxes are coloured by how their frames were found', async () => {
    const path = join(OUT, 'found-page.html')
    const args = [...RECORDINGS[0].args.slice(0, -1), 'corpus/calls-stack.uprof']
    uniprof('report', `--html=${path}`, ...args)
    const { page, events } = await open(browser.context, path, '#tab=flame&colour=found')
    await page.locator('#panel-flame').waitFor()
    const legend = await page.locator('.status .legend').textContent()
    ok(legend.includes('register or frame pointer') && legend.includes('call frame information'), legend)
    const canvas = page.locator('canvas.flame').first()
    const { width, height } = await canvas.boundingBox()
    const tells = new Set()
    for (let y = 9; y < height; y += 18) {
      await canvas.hover({ position: { x: width / 2, y } })
      tells.add((await page.locator('#detail').textContent()).split('; found by ')[1])
    }
    ok([...tells].some(told => told?.includes('call frame information')), [...tells].join('\n'))
    await page.screenshot({ path: join(OUT, 'found-page.png'), fullPage: true })
    await page.locator('#tab-chart').click()
    await page.screenshot({ path: join(OUT, 'found-page-chart.png'), fullPage: true })
    deepStrictEqual(events.errors, [])
    await page.close()
  })

  test('lines of source have what --annotate says, for what is selected, and stay text', async () => {
    const { args } = RECORDINGS[0]
    const { page, events } = await open(browser.context, file('calls'), '#tab=code')
    const lines = () =>
      page.evaluate(() =>
        [...document.querySelectorAll('table.code tbody tr:not(.heading, .gap, .of)')].map(({ cells }) => [
          ...[0, 2, 5].map(index => cells[index].textContent),
          cells[6].textContent,
        ]),
      )
    const told = flags => {
      const rows = uniprof('report', '--annotate', 'steps', ...flags, ...args).split('\n')
      const split = rows.map(row => /^ *(\d*) +(\d+) +(\d+)  (.*)$/.exec(row)).filter(Boolean)
      return split.map(([, own, total, line, text]) => [own || '', total, line, text.trimEnd()])
    }
    const weighing = all => all.filter(([, total]) => total)
    strictEqual(await page.locator('table.code .heading bdi').textContent(), source)
    const all = await lines()
    deepStrictEqual(weighing(all), told([]))
    const texts = readFileSync(source, 'utf8').split('\n')
    for (const [, , line, text] of all) {
      if (line !== '11') strictEqual(text, texts[line - 1].replaceAll('\t', '    ').trimEnd())
    }
    const hostile = all.find(([, , line]) => line === '11')[3]
    ok(hostile.startsWith('<script>window.pwned=1</script>') && hostile.length < 300, hostile)
    await page.screenshot({ path: join(OUT, 'source-page.png'), fullPage: true })
    // Another function, chosen by its name.
    await page.locator('[data-form=function]').selectOption({ label: 'work  [calls]' })
    await page.waitForFunction(() => document.querySelector('#panel-code .around bdi').textContent.startsWith('work'))
    ok((await page.locator('.picked h3 bdi').textContent()) === 'work')
    await page.locator('.track').nth(1).click()
    await page.locator('[data-form=function]').selectOption({ label: 'steps  [calls]' })
    await page.waitForFunction(() => /--vcpu/.test(document.querySelector('.selected code').textContent))
    await page.waitForFunction(() => location.hash.includes('tasks='))
    // The lines follow the selection a moment later.
    let some, truth
    for (let tries = 0; tries < 100 && (!some || JSON.stringify(some) !== JSON.stringify(truth)); tries++) {
      await page.waitForTimeout(tries && 50)
      some = weighing(await lines())
      truth = told(await flagsOf(page))
    }
    deepStrictEqual(some, truth)
    ok(some.length > 0 && JSON.stringify(some) !== JSON.stringify(weighing(all)))
    // A link to it shows the same.
    const hash = await page.evaluate(() => location.hash)
    await page.locator('[data-form=code]').selectOption('instructions')
    await page.locator('table.code .of').first().waitFor()
    await page.screenshot({ path: join(OUT, 'instructions-page.png'), fullPage: true })
    strictEqual(await page.evaluate(() => window.pwned), undefined)
    const again = await open(browser.context, file('calls'), hash)
    await again.page.locator('table.code').waitFor()
    deepStrictEqual([...events.errors, ...again.events.errors], [])
    await again.page.close()
    await page.close()
    // For a page that is given away.
    const none = uniprof('report', '--html=-', '--no-source', ...args)
    ok(!none.includes('<template id="code">') && readFileSync(file('calls'), 'utf8').includes('<template id="code">'))
  })

  test('what is missing is told where it was', async () => {
    const bytes = readFileSync(join(ROOT, 'corpus/calls.uprof'))
    bytes[Math.floor(bytes.length * 0.4)] ^= 0xff
    const damaged = join(OUT, 'damaged.uprof')
    writeFileSync(damaged, bytes)
    const told = { [damaged]: ['a part of the file is damaged'] }
    told['corpus/bad/block-missing.uprof'] = ["9 dropped: the recorder's ring was full", ...told[damaged]]
    for (const [recording, whats] of Object.entries(told)) {
      const path = join(OUT, 'missing-page.html')
      uniprof('report', `--html=${path}`, recording)
      const { page, events } = await open(browser.context, path)
      await page.locator('.lapses summary').click()
      const items = await page.locator('.lapses li').allTextContents()
      deepStrictEqual(items.map(item => item.replace(/^.*? s to .*? s: /, '')).sort(), [...whats].sort())
      await page.screenshot({ path: join(OUT, `missing-page-${whats.length}.png`), fullPage: true })
      // Each selects its time, and where it was the pointer tells it.
      await page.locator('.lapses li button').last().click()
      await page.waitForFunction(() => /--to/.test(document.querySelector('.selected code').textContent))
      const canvas = page.locator('canvas.tracks')
      const { width } = await canvas.boundingBox()
      const tells = []
      for (let part = 0; part < 20; part++) {
        await canvas.hover({ position: { x: (width * (part + 0.5)) / 20, y: 30 } })
        tells.push(await page.locator('#detail').textContent())
      }
      ok(tells.some(text => text.includes(`; missing here: ${whats.at(-1)}`)), tells.join('\n'))
      ok(!tells.every(text => text.includes('missing here')), tells.join('\n'))
      deepStrictEqual(events.errors, [])
      await page.close()
    }
  })

  test('phases are bands that select their time', async () => {
    const path = join(OUT, 'phases-page.html')
    const early = many(10, number => one(1, 1 + number / 100, ['setup', 'main']))
    const late = many(30, number => one(1, 1.1 + number / 100, ['work', number % 2 ? 'main' : 'setup', 'main']))
    const script = join(OUT, 'phases.script')
    writeFileSync(script, early + late)
    const recording = join(OUT, 'phases.uprof')
    rmSync(recording, { force: true })
    uniprof('import', '--format', 'perf-script', '--output', recording, script)
    const phases = ['--phase', 'first <b>=setup', '--phase', 'then=work', '--phase', 'never=nowhere']
    uniprof('report', `--html=${path}`, ...phases, recording)
    const { page, events } = await open(browser.context, path)
    const buttons = page.locator('.phases button')
    deepStrictEqual(await buttons.allTextContents(), ['first <b>', 'then'])
    strictEqual(await page.locator('.names .track').first().textContent(), 'phases')
    await page.screenshot({ path: join(OUT, 'phases-page.png'), fullPage: true })
    const chosen = []
    for (const number of [0, 1]) {
      await buttons.nth(number).click()
      await page.waitForFunction(() => document.querySelector('.selected b').textContent !== '40 samples')
      chosen.push(await page.locator('.selected b').textContent())
      await page.locator('canvas.tracks').press('Escape')
      await page.waitForFunction(() => document.querySelector('.selected b').textContent === '40 samples')
    }
    // The last phase ends with the last sample.
    deepStrictEqual(chosen, ['10 samples', '29 samples'])
    deepStrictEqual(events.errors, [])
    await page.close()
  })

  test('names that are cut keep their last part', async () => {
    const { fitted } = await import(join(MODULES, 'names.mjs'))
    const cases = [
      ['core::iter::Map<A, B>::next', 30, 'core::iter::Map<A, B>::next'],
      ['core::iter::Map<A, B>::next', 22, 'Map<…>::next'],
      ['core::iter::Map<A, B>::next', 8, 'next'],
      ['app::run::{closure#0}', 16, 'run::{closure#0}'],
      ['std::less<A>::operator()', 20, 'less<A>::operator()'],
      ['a_function_of_c', 8, 'a_funct…'],
    ]
    for (const [name, columns, shown] of cases) strictEqual(fitted(name, columns), shown)
  })

  test('flags for the form are how the page opens', async () => {
    const path = join(OUT, 'reverse-page.html')
    uniprof('report', `--html=${path}`, '--reverse', '--recursion', 'folded', ...RECORDINGS[0].args)
    const { page } = await open(browser.context, path)
    const set = name => page.locator(`[data-form=${name}]`).isChecked()
    deepStrictEqual([await set('invert'), await set('fold'), await set('inlines')], [true, true, true])
    await page.locator('#tab-calls').click()
    const first = page.locator('[role=tree] > [role=treeitem] bdi').first()
    strictEqual(await first.textContent(), 'steps')
    await page.close()
  })

  test('the picture of the README is of this page', async () => {
    const path = join(OUT, 'example-page.html')
    uniprof('report', `--html=${path}`, example('shop', 0))
    const { page } = await open(browser.context, path)
    await page.setViewportSize({ width: 1200, height: 720 })
    // What the boxes are of, as the table has it.
    await page.locator('#tab-functions').click()
    const lines = (await rows(page)).map(({ numbers, name }) => [...numbers, name].join('  '))
    const tracks = await page.locator('.names .track').allTextContents()
    const text = [...tracks, ...lines, ''].join('\n')
    await page.locator('#tab-flame').click()
    await page.waitForSelector('#panel-flame:not([hidden])')
    await drawn(page)
    const picture = await page.screenshot({ path: join(OUT, 'page.png') })
    if (process.env.UNIPROF_BLESS) {
      writeFileSync(join(PICTURES, 'page.png'), picture)
      writeFileSync(join(PICTURES, 'page.txt'), text)
    }
    const asks = 'UNIPROF_BLESS=1 tests/consumers/run makes it anew'
    strictEqual(text, readFileSync(join(PICTURES, 'page.txt'), 'utf8'), asks)
    ok(readFileSync(join(PICTURES, 'page.png')).length > 10_000, asks)
    await page.close()
  })

  test('a script that came into it all the same stays dead', async () => {
    const page = readFileSync(file('calls'), 'utf8')
    let asked = 0
    const server = createServer((_, response) => response.end(`${++asked}`))
    await new Promise(listening => server.listen(0, '127.0.0.1', listening))
    const url = `http://127.0.0.1:${server.address().port}/x`
    const evil =
      `<script>window.pwned=1</script><img src="${url}" onerror="window.pwned=1">` +
      `<iframe src="${url}"></iframe><link rel="stylesheet" href="${url}">` +
      '<a href="javascript:window.pwned=1">x</a><style>body{display:none}</style>'
    const path = join(OUT, 'evil-page.html')
    writeFileSync(path, page.replace('</h1>', `</h1>${evil}`))
    const { page: opened, events } = await open(browser.context, path)
    await opened.getByText('x', { exact: true }).first().click()
    strictEqual(await opened.evaluate(() => window.pwned), undefined)
    strictEqual(asked, 0)
    ok(events.errors.length >= 6, events.errors.join('\n'))
    ok(await opened.locator('#views').isVisible())
    await opened.close()
    server.close()
  })
})
