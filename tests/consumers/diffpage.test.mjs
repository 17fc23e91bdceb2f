// The page of `diff --html`: what it calls certain is what `uniprof diff --json` does, with the numbers of the
// terminal; both flame graphs have each stack at one place, and each side its own time. Asked of its modules by node,
// and of the page in a browser.

import { deepStrictEqual, ok, strictEqual } from 'node:assert'
import { readFileSync, readdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { after, before, describe, test } from 'node:test'
import { pathToFileURL } from 'node:url'
import { MISSING, launch, opened } from './browser.mjs'
import { example } from './example.mjs'
import { OUT, ROOT, SHOTS, hostile, uniprof } from './uniprof.mjs'

const MODULES = join(ROOT, 'report/src/views/html/script')
const { decode, nameOf } = await import(join(MODULES, 'profile.mjs'))
const { neighbours } = await import(join(MODULES, 'calls.mjs'))
const { grownBy, joined, neighboursOfBoth } = await import(join(MODULES, 'joined.mjs'))
const { LOOK } = await import(join(MODULES, 'look.mjs'))
const { Model } = await import(join(MODULES, 'model.mjs'))
const { boxes } = await import(join(MODULES, 'boxes.mjs'))
const { sides } = await import(join(MODULES, 'sides.mjs'))
const { Verdicts, decodeVerdicts, placeOf } = await import(join(MODULES, 'verdicts.mjs'))

const images = readdirSync(join(ROOT, 'corpus/images'))
const elf = images.flatMap(image => ['--elf', join('corpus/images', image)]).concat('--no-search')
const PAIRS = [
  { name: 'calls', args: [...elf, 'corpus/calls.uprof', 'corpus/calls-stack.uprof'] },
  { name: 'paths', args: ['--paths', ...elf, 'corpus/calls.uprof', 'corpus/calls-stack.uprof'] },
  { name: 'sets', args: [...elf, 'corpus/calls.uprof,corpus/calls-stack.uprof', 'corpus/calls-ptrace.uprof'] },
  { name: 'other', args: [...elf, 'corpus/calls.uprof', 'corpus/pack-stack.uprof'] },
  { name: 'hostile', args: [hostile(1), hostile(2, `2 ${'x'.repeat(20)}`)] },
]
const file = name => join(OUT, `${name}-diff-page.html`)

/** The changes as `diff --json` lists them. */
const listed = args => JSON.parse(uniprof('diff', '--json', ...args)).changes
/** Rows of the terminal's table: mark, change, interval, A, B, relative, of. */
function table(args) {
  const lines = uniprof('diff', '--rows', '0', ...args).split('\n')
  const cells = /^([* ]) +([+-][\d.]+) +([+-][\d.]+ to [+-][\d.]+) +([\d.]+) +([\d.]+) +(\S+) +(self|total|path) /
  return lines.map(line => cells.exec(line)?.slice(1)).filter(Boolean)
}

/** The parts of a page, decoded. */
async function decoded(name) {
  const page = readFileSync(file(name), 'utf8')
  const part = id => new RegExp(`<template id="${id}">([^<]*)</template>`).exec(page)[1]
  return { profile: await decode(part('tables'), part('samples')), changes: await decodeVerdicts(part('verdicts')) }
}

/** Models of both sides, and their tree. */
function both(profile, look = {}) {
  const models = sides(profile).map(side => new Model(side))
  for (const model of models) model.look = { ...LOOK, ...look }
  const trees = models.map(model => model.drawn())
  return { models, trees, tree: joined(trees, models.map(model => model.weights().all)) }
}

before(() => {
  for (const { name, args } of PAIRS) uniprof('diff', `--html=${file(name)}`, ...args)
})

for (const { name, args } of PAIRS) {
  describe(`diff engine: ${name}`, () => {
    test('the verdicts are those of --json', async () => {
      const { changes, profile } = await decoded(name)
      const told = listed(args)
      deepStrictEqual(changes.map(({ function: _, path: __, ...change }) => change), told)
      for (const change of changes) {
        const names = (change.of === 'path' ? change.path : [change.function]).map(label => nameOf(profile, label))
        ok(change.name.startsWith(names.join(';').slice(0, 4000)), change.name)
      }
    })

    test('each side has its samples, and shares are those of the verdicts', async () => {
      const { profile, changes } = await decoded(name)
      const { models, tree } = both(profile)
      models.forEach(model => strictEqual(model.weights().all, model.profile.about.counted))
      for (const { function: label, of, ...change } of changes) {
        if (of === 'path') continue
        models.forEach((model, side) => {
          const row = model.rows().find(one => one.label === label)
          const weight = row?.[of === 'self' ? 'own' : 'total'] ?? 0
          strictEqual(weight, change[`samples_${'ab'[side]}`], `${change.name} ${of}`)
        })
      }
      const all = tree.sides.map(side => side.total[0])
      deepStrictEqual(all, models.map(model => model.profile.about.counted))
    })

    test('a stack has one place in both, with room for either share', async () => {
      const { profile } = await decoded(name)
      for (const look of [{}, { invert: true }, { fold: true }]) {
        const { models, tree, trees } = both(profile, look)
        const levels = boxes(tree, models[0].groups().ranks)
        const count = levels.reduce((sum, { nodes }) => sum + nodes.length, 0)
        ok(count > 0 && count < tree.labels.length)
        ok(count + 1 >= Math.max(...trees.map(one => one.labels.length)))
        for (let node = 1; node < tree.labels.length; node++) {
          const shares = tree.sides.map(({ total, all }) => total[node] / all)
          ok(Math.max(...shares) <= tree.total[node] * (1 + 1e-9), `${shares} of ${tree.total[node]}`)
          strictEqual(grownBy(tree, node), shares[1] - shares[0])
        }
      }
    })

    test('callers and callees have what each side has of them', async () => {
      const { profile } = await decoded(name)
      const { models } = both(profile)
      const alls = models.map(model => model.weights().all)
      for (const label of new Set(models.flatMap(model => model.rows().map(row => row.label)))) {
        for (const what of ['callers', 'callees']) {
          const trees = models.map(model => model.around(label)[what])
          const found = neighboursOfBoth(trees, alls)
          trees.forEach((tree, side) => {
            const told = found.map(one => [one.label, one.weights[side]]).filter(([, weight]) => weight > 0)
            deepStrictEqual(new Map(told), new Map(neighbours(tree).map(one => [one.label, one.weight])))
          })
          const parts = found.map(({ weights }) => Math.max(...weights.map((weight, side) => weight / alls[side])))
          deepStrictEqual(found.map(({ part }) => part), parts.toSorted((a, b) => b - a))
        }
      }
    })

    test('a verdict about stacks colours the boxes of its function, and none else', async () => {
      const { profile, changes } = await decoded(name)
      const { tree } = both(profile)
      const shown = new Verdicts(changes).shownBy(tree, false)
      const seen = new Set()
      tree.labels.forEach((label, node) => {
        const number = node ? shown(node) : undefined
        if (number === undefined) return
        seen.add(number)
        strictEqual(changes[number].function, label)
      })
      changes.forEach((change, number) => {
        ok(placeOf(tree, change) !== null, change.name)
        if (change.certain && change.of === 'path') ok(seen.has(number), change.name)
        if (change.certain && change.of === 'total' && name !== 'paths') ok(seen.has(number), change.name)
      })
    })
  })
}

describe('diff page', { skip: MISSING }, () => {
  let browser
  before(async () => {
    browser = await launch()
  })
  after(() => browser?.close())

  for (const { name, args } of PAIRS) {
    test(`${name}: certain is what --json calls certain, with the numbers of the terminal`, async () => {
      const { page, events } = await opened(browser.context, file(name))
      const rows = await page.evaluate(() =>
        [...document.querySelectorAll('#verdicts-table tbody tr')].map(({ cells }) => ({
          cells: [...cells].slice(0, 7).map(cell => cell.textContent),
          name: cells[7].title || cells[7].querySelector('bdi').textContent,
        })),
      )
      const changes = listed(args)
      const isCertain = ({ cells }) => /^[▲▼] certain$/.test(cells[0])
      deepStrictEqual(rows.map(isCertain), changes.map(change => change.certain))
      rows.forEach((row, at) => {
        ok(changes[at].name.startsWith(row.name.replace(/…[^]*$/, '')), `${row.name}: ${changes[at].name}`)
        if (isCertain(row)) strictEqual(row.cells[0][0], changes[at].change > 0 ? '▲' : '▼')
      })
      const told = rows.map(row => [isCertain(row) ? '*' : ' ', ...row.cells.slice(1)])
      deepStrictEqual(told, table(args))
      const found = await page.evaluate(() => ({
        pwned: window.pwned,
        scripts: document.scripts.length,
        attributes: [...document.querySelectorAll('*')].flatMap(one =>
          [...one.attributes].map(({ name }) => name).filter(name => /^(on|style|src)/i.test(name)),
        ),
      }))
      deepStrictEqual(found, { pwned: undefined, scripts: 1, attributes: [] })
      deepStrictEqual(events, { requests: [pathToFileURL(file(name)).href], errors: [] })
      await page.close()
    })

    test(`${name}: a click on a change goes to its place in both flame graphs`, async () => {
      const { page, events } = await opened(browser.context, file(name))
      const [change] = listed(args).filter(({ of }) => of !== 'path')
      const row = page.locator('#verdicts-table tbody tr', { hasText: change.of }).first()
      const verdict = await row.locator('td').first().textContent()
      await row.getByRole('button').click()
      await page.waitForSelector('#panel-flame:not([hidden])')
      await page.waitForFunction(() => location.hash.includes('change='))
      const told = []
      for (const canvas of await page.locator('#panel-flame canvas').all()) {
        const { width, height } = await canvas.boundingBox()
        const lines = []
        for (let y = 9; y < height; y += 18) {
          await canvas.hover({ position: { x: width / 3, y } })
          lines.push(await page.locator('#detail').textContent())
        }
        told.push(lines.filter(Boolean))
      }
      const shared = lines => lines.map(line => /^([^]*?: A \S+, B \S+); [AB] has /.exec(line)[1])
      deepStrictEqual(shared(told[0]), shared(told[1]))
      const place = told[0].find(line => line.startsWith(change.name.slice(0, 60)))
      ok(place?.includes(`, ${verdict}`), `${change.name} is not in ${told[0].join('\n')}`)
      // A link to it shows the same.
      const again = await opened(browser.context, file(name), await page.evaluate(() => location.hash))
      const note = await page.locator('#panel-flame [aria-live]').textContent()
      ok(note.startsWith(change.name.slice(0, 60)), note)
      strictEqual(await again.page.locator('#panel-flame [aria-live]').textContent(), note)
      await page.locator('#panel-flame canvas').first().press('Escape')
      deepStrictEqual(events.errors, [])
      await page.close()
      // To show all widens no box, as in a page that is opened anew.
      await again.page.getByRole('button', { name: 'Show all' }).click()
      await again.page.waitForFunction(() => location.hash === '#tab=flame')
      strictEqual(await again.page.locator('#panel-flame [aria-live]').textContent(), '')
      const places = async ({ page, events }) => {
        const canvas = page.locator('#panel-flame canvas').first()
        const { width, height } = await canvas.boundingBox()
        const found = []
        for (let y = 9; y < height; y += 18) {
          await canvas.hover({ position: { x: width - 3, y } })
          found.push(await page.locator('#detail').textContent())
        }
        deepStrictEqual(events.errors, [])
        await page.close()
        return found
      }
      const shown = await places(again)
      deepStrictEqual(shown, await places(await opened(browser.context, file(name), '#tab=flame')))
    })

    test(`${name}: each side has its own time`, async () => {
      const { page, events } = await opened(browser.context, file(name))
      const summaries = () => page.locator('.selected').allTextContents()
      const before = await summaries()
      await page.locator('.times > summary').click()
      const tracks = page.locator('canvas.tracks').nth(1)
      await tracks.scrollIntoViewIfNeeded()
      const line = await tracks.boundingBox()
      const [left, right] = [line.x + line.width * 0.3, line.x + line.width * 0.62]
      await page.mouse.move(left, line.y + 30)
      await page.mouse.down()
      await page.mouse.move((left + right) / 2, line.y + 30)
      await page.mouse.move(right, line.y + 30)
      await page.mouse.up()
      await page.waitForFunction(() => /from/.test(document.querySelectorAll('.selected')[1].textContent))
      // The address follows a moment after the last move.
      const address = () => page.evaluate(() => location.hash)
      for (let seen = ''; !seen.includes('to_b=') || seen !== (await address()); await page.waitForTimeout(500)) {
        seen = await address()
      }
      const now = await summaries()
      strictEqual(now[0], before[0])
      ok((await page.locator('.toolbar .note').textContent()).startsWith('Verdicts are of all that was compared'))
      // The same part of B alone has as many samples.
      const [from, to] = ['from_b', 'to_b'].map(key => new RegExp(`${key}=(\\d+)`).exec(page.url())?.[1])
      const seconds = ticks => `${(ticks / 1e6).toFixed(6)}s`
      const flags = ['--from', seconds(from ?? 0), '--to', seconds(to)]
      const b = args.at(-1).split(',')
      const json = JSON.parse(uniprof('export', '--format', 'json', ...flags, ...args.filter(one => one !== '--paths').slice(0, -2), ...b))
      ok(now[1].startsWith(`${json.account.counted} samples, `), `${now[1]}: ${json.account.counted}`)
      deepStrictEqual(events.errors, [])
      await page.close()
    })
  }

  test('the panel has the shares of both sides', async () => {
    const { page, events } = await opened(browser.context, file('calls'), '#tab=functions')
    await page.locator('#top tbody tr', { hasText: 'work' }).getByRole('button').click()
    await page.waitForFunction(() => document.querySelector('.picked h3 bdi')?.textContent === 'work')
    const callers = await page.locator('.picked .list').first().getByRole('button').allTextContents()
    strictEqual(callers[0], 'mainA 74.1%, B 73.8%')
    deepStrictEqual(events.errors, [])
    await page.close()
  })

  test('changes whose rows are left out are shown, too', async () => {
    const path = file('many')
    const sides = [0, 5].map(shorter => {
      const [text, recording] = ['txt', 'uprof'].map(ending => join(OUT, `many-${shorter}.${ending}`))
      const stack = number => Array.from({ length: 900 }, (_, at) => `f${number % 3}_${at}`).slice(number < 3 ? shorter : 0)
      const samples = Array.from({ length: 60 }, (_, number) => {
        const frames = stack(number).map((name, at) => `\t${(0x1000 + at).toString(16)} ${name}+0x10 (/x)\n`)
        return `t1 1 ${(number / 100).toFixed(9)}: cycles:\n${frames.join('')}\n`
      })
      writeFileSync(text, samples.join(''))
      uniprof('import', '--format', 'perf-script', '--output', recording, text)
      return recording
    })
    uniprof('diff', `--html=${path}`, ...sides)
    const { changes } = await decoded('many')
    ok(changes.length > 2000, `${changes.length} changes`)
    const { page, events } = await opened(browser.context, path, '#tab=flame&change=2000')
    const note = await page.locator('#panel-flame [aria-live]').textContent()
    ok(note.startsWith(`${changes[2000].name}: judged; its row is left out of this page.`), note)
    const told = []
    for (const y of [9, 27]) {
      await page.locator('#panel-flame canvas').first().hover({ position: { x: 20, y } })
      told.push(await page.locator('#detail').textContent())
    }
    ok(told.every(text => / in itself; \S/.test(text)), told.join('\n'))
    deepStrictEqual(events.errors, [])
    await page.close()
  })

  for (const name of ['calls', 'hostile']) {
    test(`${name}: functions of a side are those of its report, and turn over`, async () => {
      const { page, events } = await opened(browser.context, file(name), '#tab=functions&side=A')
      const { args } = PAIRS.find(one => one.name === name)
      await page.locator('#top tbody tr').first().waitFor()
      const rows = () =>
        page.evaluate(() =>
          [...document.querySelectorAll('#top tbody tr')].map(({ cells }) =>
            [0, 1, 2, 3].map(index => cells[index].textContent).join(' '),
          ),
        )
      for (const [side, recording] of [['A', args.at(-2)], ['B', args.at(-1)]]) {
        await page.locator('[data-form=side]').selectOption(side)
        const of = args.slice(0, -2).concat('--processes', 'together', recording)
        const top = uniprof('report', '--top', '--rows', '0', ...of).split('\n')
        const told = top.map(line => /^ *(\d+) +(\S+) +(\d+) +(\S+)  /.exec(line)).filter(Boolean)
        const numbers = told.map(row => row.slice(1, 5).join(' ')).sort()
        await page.waitForFunction(
          own => [...document.querySelectorAll('#top tbody tr')].some(({ cells }) => cells[0].textContent === own),
          told[0][1],
        )
        deepStrictEqual((await rows()).sort(), numbers)
      }
      const row = page.locator('#top tbody tr').first()
      const [own, total] = [await row.locator('td').nth(1).textContent(), await row.locator('td').nth(2).textContent()]
      await row.getByRole('button').click()
      await page.getByRole('button', { name: 'Callers and callees' }).click()
      await page.locator('#panel-sandwich:not([hidden])').waitFor()
      const title = await page.locator('#panel-sandwich .around').textContent()
      ok(title.includes(`B has ${total} samples`) && title.includes(`${own} in itself`), title)
      const canvases = await page.locator('#panel-sandwich canvas').all()
      strictEqual(canvases.length, 4)
      // The callees begin with it, in both.
      for (const canvas of canvases.slice(2)) {
        await canvas.hover({ position: { x: 5, y: 9 } })
        ok(title.startsWith((await page.locator('#detail').textContent()).split(':')[0].slice(0, 40)), title)
      }
      // Of what calls it, one may be turned over, too.
      await page.locator('#tab-calls').click()
      await page.locator('[role=treeitem]').first().press('Enter')
      await page.getByRole('button', { name: 'Callers and callees' }).click()
      await page.locator('#panel-sandwich:not([hidden])').waitFor()
      await page.waitForFunction(() => location.hash.includes('function='))
      const again = await opened(browser.context, file(name), await page.evaluate(() => location.hash))
      const shown = again.page.locator('#panel-sandwich .around')
      await shown.waitFor()
      strictEqual(await shown.textContent(), await page.locator('#panel-sandwich .around').textContent())
      deepStrictEqual([...events.errors, ...again.events.errors], [])
      await again.page.close()
      await page.close()
    })
  }

  for (const name of ['calls', 'sets', 'hostile']) {
    for (const [form, width, colorScheme] of [
      ['light', 1300, 'light'],
      ['dark', 1300, 'dark'],
      ['phone', 400, 'light'],
    ]) {
      test(`${name}: nothing leaves the page (${form})`, async () => {
        const { page, events } = await opened(browser.context, file(name))
        await page.emulateMedia({ colorScheme })
        await page.setViewportSize({ width, height: 900 })
        const more = name === 'sets' ? [] : ['sandwich', 'functions', 'calls']
        for (const tab of ['changes', 'flame', ...more]) {
          await page.locator(`#tab-${tab}`).click()
          await page.locator(`#panel-${tab}`).waitFor()
          await page.evaluate(() => scrollTo(0, 0))
          await page.screenshot({ path: join(OUT, `${name}-diff-page-${form}-${tab}.png`), fullPage: true })
          const wide = await page.evaluate(() => document.documentElement.scrollWidth)
          ok(wide <= width, `${tab}: ${wide} pixels of ${width}`)
        }
        deepStrictEqual(events.errors, [])
        await page.close()
      })
    }
  }

  test('the picture of the README is of this page', async () => {
    const path = file('example')
    uniprof('diff', `--html=${path}`, ...[0, 1].map(side => example(`shop-${'ab'[side]}`, side)))
    const { page } = await opened(browser.context, path, '#tab=flame')
    await page.setViewportSize({ width: 1200, height: 720 })
    await page.evaluate(() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done))))
    const picture = await page.screenshot({ path: join(OUT, 'diff.png') })
    const kept = join(ROOT, 'docs/pictures/diff.png')
    if (process.env.UNIPROF_BLESS) writeFileSync(kept, picture)
    ok(readFileSync(kept).length > 10_000, 'UNIPROF_BLESS=1 tests/consumers/run makes it anew')
    await page.close()
  })

  for (const [width, height] of [[1400, 900], [1024, 700], [390, 844]]) {
    for (const scheme of ['light', 'dark']) {
      test(`the first screen has the verdict and the changes (${width} × ${height}, ${scheme})`, async () => {
        const { page, events } = await opened(scheme === 'dark' ? browser.dark : browser.context, file('calls'))
        await page.setViewportSize({ width, height })
        const places = await page.evaluate(() =>
          ['header', '#views h2', '#verdicts-table tbody tr:nth-child(3)'].map(one =>
            document.querySelector(one).getBoundingClientRect().toJSON(),
          ),
        )
        const [header, verdict, third] = places
        ok(verdict.top < header.bottom + 12 && third.bottom < height, JSON.stringify(places))
        if (width > 672) ok(header.height < 48, `the header is ${header.height} pixels high`)
        await page.screenshot({ path: join(SHOTS, `diff-${width}x${height}-${scheme}.png`) })
        await page.locator('#tab-flame').click()
        await page.waitForSelector('#panel-flame:not([hidden])')
        const [flame] = await page.locator('#panel-flame canvas').all()
        const { y } = await flame.boundingBox()
        ok(y + 18 < height, `the first flame graph is at ${y}`)
        const wide = await page.evaluate(() => document.documentElement.scrollWidth)
        ok(wide <= width, `${wide} pixels of ${width}`)
        await page.screenshot({ path: join(SHOTS, `diff-flame-${width}x${height}-${scheme}.png`) })
        deepStrictEqual(events.errors, [])
        await page.close()
      })
    }
  }

  test('it reads without a script', async () => {
    const { page } = await opened(browser.still, file('calls'))
    for (const part of ['#verdicts-table tbody tr', '.account li', 'dd']) {
      ok(await page.locator(part, { hasText: /\w/ }).first().isVisible(), part)
    }
    ok(!(await page.locator('#views').isVisible()))
    await page.close()
  })
})
