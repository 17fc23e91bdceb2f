// The page of `report --html`, opened from its file in a browser as whoever gets it does: its
// numbers are those of the other reports, nothing of a hostile name is executed or loaded, and its
// table, its search and its flame graph do what they say. It reads without a script, and on a phone.

import { deepStrictEqual, ok, strictEqual } from 'node:assert'
import { readFileSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:http'
import { join } from 'node:path'
import { after, before, describe, test } from 'node:test'
import { pathToFileURL } from 'node:url'
import { MISSING, launch } from './browser.mjs'
import { OUT, recordings, sum, stacks, uniprof } from './uniprof.mjs'

const RECORDINGS = recordings()
const file = name => join(OUT, `${name}-page.html`)

/** Opens a page and keeps what it asks for and what goes wrong. */
async function open(context, path) {
  const page = await context.newPage()
  const events = { requests: [], errors: [] }
  page.on('request', request => events.requests.push(request.url()))
  page.on('pageerror', error => events.errors.push(error.message))
  // What the page's own policy refuses is told here.
  page.on('console', said => said.type() === 'error' && events.errors.push(said.text()))
  await page.goto(pathToFileURL(path).href)
  return { page, events }
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

describe('page', { skip: MISSING }, () => {
  let browser
  before(async () => {
    for (const { name, args } of RECORDINGS) uniprof('report', `--html=${file(name)}`, ...args)
    browser = await launch()
  })
  after(() => browser?.close())

  for (const recording of RECORDINGS) {
    const { name, args } = recording

    test(`${name}: its numbers are those of --top and of JSON`, async () => {
      const { page } = await open(browser.context, file(name))
      const found = await rows(page)
      const lines = uniprof('report', '--top', '--rows', '0', ...args).split('\n')
      const split = line => /^ *(\d+) +(\S+) +(\d+) +(\S+)  (.*)$/.exec(line)
      const top = lines.map(split).filter(Boolean)
      ok(top.length > 5)
      const numbers = found.map(one => one.numbers)
      deepStrictEqual(numbers, top.map(one => one.slice(1, 5)))
      found.forEach((one, index) =>
        ok(top[index][5].startsWith(one.name.replace(/…$/, '')), `${one.name}: ${top[index][5]}`),
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
      const drawn = await page.locator('#flame').getAttribute('data-total')
      strictEqual(Number(drawn), sum(stacks(recording)))
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
      const { page } = await open(browser.context, file(name))
      const column = async index => (await rows(page)).map(one => Number(one.numbers[index]))
      const falling = [...(await column(2))].sort((a, b) => b - a)
      await page.getByRole('button', { name: 'Total' }).click()
      deepStrictEqual(await column(2), falling)
      await page.getByRole('button', { name: 'Total' }).click()
      deepStrictEqual(await column(2), falling.toReversed())
      strictEqual(await page.locator('th[aria-sort="ascending"]').textContent(), 'Total')
      await page.getByRole('button', { name: 'Function' }).click()
      const names = (await rows(page)).map(one => one.name)
      ok(names.every((name, index) => index === 0 || names[index - 1] <= name), names)
      await page.close()
    })

    test(`${name}: the search leaves what has it, and marks the boxes`, async () => {
      const { page, events } = await open(browser.context, file(name))
      const all = await rows(page)
      const sought = all[1].name
      await page.locator('#find').fill(sought.toUpperCase())
      const left = await rows(page)
      ok(left.length > 0 && left.length < all.length)
      ok(left.every(one => one.name.includes(sought) || one.whole.includes(sought)))
      const matches = await page.locator('#matches').textContent()
      const [, count, percent] = /^(\d+) of .* in ([\d.]+)% of the flame graph$/.exec(matches)
      strictEqual(Number(count), left.length)
      const marked = await page.locator('#frames .found title').allTextContents()
      ok(marked.length > 0 && marked.every(title => title.includes(sought)))
      const own = left.length === 1 ? left[0].numbers[3] : `${percent}%`
      strictEqual(`${percent}%`, own)
      await page.locator('#find').fill('')
      deepStrictEqual(await rows(page), all)
      strictEqual(await page.locator('#frames .found').count(), 0)
      deepStrictEqual(events.errors, [])
      await page.close()
    })

    test(`${name}: the flame graph is drawn, and a click widens a box`, async () => {
      const { page } = await open(browser.context, file(name))
      await checkBoxes(page)
      const width = await page.evaluate(() => document.querySelector('#flame').clientWidth)
      const boxes = await page.evaluate(() =>
        [...document.querySelectorAll('#frames > g > rect')].map(one => one.width.baseVal.value),
      )
      const narrow = boxes.findIndex(one => one < width * 0.9 && one > width * 0.02)
      const box = page.locator('#frames > g > rect').nth(narrow)
      const is = () => box.evaluate(one => one.width.baseVal.value)
      await box.click({ position: { x: 2, y: 8 } })
      ok(Math.abs((await is()) - width) < 2, `${await is()} of ${width}`)
      ok((await page.locator('#detail').textContent()).includes(' samples, '))
      await checkBoxes(page)
      await page.getByRole('button', { name: 'Show all' }).click()
      ok(Math.abs((await is()) - boxes[narrow]) < 1)
      await page.close()
    })

    test(`${name}: it reads without a script`, async () => {
      const { page } = await open(browser.still, file(name))
      for (const part of ['#top tbody tr', '#frames text', '.tree summary', '.heat text', 'dd']) {
        ok(await page.locator(part, { hasText: /\w/ }).first().isVisible(), part)
      }
      for (const control of ['#find', '#whole', '#unfold', '#detail']) {
        ok(!(await page.locator(control).isVisible()), control)
      }
      await page.locator('.facts summary').first().click()
      ok(await page.getByText('file', { exact: true }).first().isVisible())
      await page.close()
    })

    for (const [form, width, colorScheme] of [
      ['light', 1300, 'light'],
      ['dark', 1300, 'dark'],
      ['phone', 400, 'light'],
    ]) {
      test(`${name}: nothing leaves the page (${form})`, async () => {
        const { page } = await open(browser.context, file(name))
        await page.emulateMedia({ colorScheme })
        await page.setViewportSize({ width, height: 900 })
        await page.screenshot({ path: join(OUT, `${name}-page-${form}.png`), fullPage: true })
        const wide = await page.evaluate(() => document.documentElement.scrollWidth)
        ok(wide <= width, `${wide} pixels of ${width}`)
        await checkBoxes(page)
        await page.close()
      })
    }
  }

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
    await opened.getByText('x', { exact: true }).click()
    strictEqual(await opened.evaluate(() => window.pwned), undefined)
    strictEqual(asked, 0)
    ok(events.errors.length >= 6, events.errors.join('\n'))
    ok(await opened.locator('#top').isVisible())
    await opened.close()
    server.close()
  })
})

/** Every box that is seen lies in the picture, and its text in it. */
async function checkBoxes(page) {
  const wrong = await page.evaluate(() => {
    const picture = document.querySelector('#flame').getBoundingClientRect()
    const outside = (a, b) =>
      a.left < b.left - 1 || a.right > b.right + 1 || a.bottom > b.bottom + 1
    return [...document.querySelectorAll('#frames > g')].flatMap(group => {
      const [rect, text] = ['rect', 'text'].map(one => group.querySelector(one))
      const [box, letters] = [rect.getBoundingClientRect(), text.getBoundingClientRect()]
      if (box.width > 0 && outside(box, picture)) return [`box: ${group.textContent}`]
      if (letters.width > 0 && outside(letters, box)) return [`text: ${text.textContent}`]
      return []
    })
  })
  deepStrictEqual(wrong, [])
}
