// Source and instructions of the page of `report --html`, asked of its modules without a browser: for selections of time,
// vCPU and filter each line has what `uniprof export --format json --by line` says with the same flags, and each
// instruction what `uniprof report --annotate --asm` does.

import { deepStrictEqual, ok } from 'node:assert'
import { readdirSync } from 'node:fs'
import { join } from 'node:path'
import { describe, test } from 'node:test'
import { MODULES, chosen, decoded, dice, modelOf } from './selections.mjs'
import { ROOT, uniprof } from './uniprof.mjs'

const { Code, decodeCode } = await import(join(MODULES, 'code.mjs'))
const { ALL } = await import(join(MODULES, 'selection.mjs'))

const SELECTIONS = 15
const images = readdirSync(join(ROOT, 'corpus/images'))
const elf = images.flatMap(image => ['--elf', join('corpus/images', image)]).concat('--no-search')
const RECORDINGS = [
  { name: 'calls', lines: 6 },
  { name: 'calls-stack', lines: 6 },
  { name: 'calls-ptrace', lines: 6 },
  { name: 'pack-stack', lines: 0 },
].map(one => ({ ...one, args: [...elf, `corpus/${one.name}.uprof`] }))

/** The page's profile, and its source and instructions. */
async function pageOf(args) {
  const page = uniprof('report', '--html=-', ...args)
  const profile = await decoded(page)
  const [, text] = /<template id="code">([^<]*)<\/template>/.exec(page)
  return { profile, code: new Code(profile, await decodeCode(text)) }
}

const keyOf = ({ profile, code }, number) => {
  const { name, labels } = code.functions[number]
  return `${name}\n${profile.texts[profile.labels.modules[labels[0]]]}`
}

/** What the page has of each line of its functions with source: function, place, own and total. */
function countedLines(page, selection) {
  const { profile, code } = page
  const model = modelOf(profile, selection)
  const rows = code.functions.flatMap((one, number) => {
    if (!one.source) return []
    const { places } = code.spots(number, 'source')
    const { own, total } = model.spots(code, number, 'source')
    const told = places.map((place, spot) => [place && `${place.file}:${place.line}`, own[spot], total[spot]])
    return told.filter(([place, , all]) => place && all > 0).map(row => [keyOf(page, number), ...row].join('\n'))
  })
  return rows.sort()
}

/** The same from the program's own export, of these functions. */
function exportedLines(flags, args, wanted) {
  const told = uniprof('export', '--format', 'json', '--by', 'line', ...flags, ...args)
  const { labels, stacks } = JSON.parse(told)
  const keys = labels.map(({ name, module, file, line }) => {
    const key = `${name.replace(/ \([^()]*:\d+\)$/, '')}\n${module}`
    return wanted.has(key) && line ? `${key}\n${file}:${line}` : null
  })
  const found = new Map()
  for (const { frames, count } of stacks) {
    const path = frames.map(frame => keys[frame])
    for (const key of new Set(path)) {
      if (!key) continue
      const pair = found.get(key) ?? [0, 0]
      pair[1] += count
      found.set(key, pair)
    }
    if (path.at(-1)) found.get(path.at(-1))[0] += count
  }
  return [...found].map(([key, pair]) => [key, ...pair].join('\n')).sort()
}

/** Rows of `report --annotate --asm`: address, offset, own and total. */
function annotated(name, flags, args) {
  const told = uniprof('report', '--annotate', name, '--asm', ...flags, ...args).split('\n')
  const rows = told.map(line => /^ *(\d*) +(\d+)  +([0-9a-f]+)  (\+0x[0-9a-f]+) /.exec(line)).filter(Boolean)
  return rows.map(([, own, total, address, into]) => `${address} ${into} ${own || 0} ${total}`).sort()
}

for (const { name, lines, args } of RECORDINGS) {
  describe(`code: ${name}`, () => {
    test('lines have the counts of the export', async () => {
      const page = await pageOf(args)
      const numbers = [...page.code.functions.keys()].filter(number => page.code.functions[number].source)
      const wanted = new Set(numbers.map(number => keyOf(page, number)))
      ok(wanted.size >= lines, [...wanted].join('; '))
      const random = dice(7)
      let some = 0
      for (let number = 0; number < SELECTIONS; number++) {
        const { selection, flags } = number ? chosen(page.profile, random) : { selection: ALL, flags: [] }
        // By line names have lines, which filters would find.
        if (flags.some(flag => /^--(focus|ignore|hide)=/.test(flag))) continue
        const ours = countedLines(page, selection)
        deepStrictEqual(ours, exportedLines(flags, args, wanted), flags.join(' '))
        some += ours.length > 0
      }
      ok(some > 2 || !lines, `only ${some} selections have lines`)
    })

    test('instructions have the counts of --annotate --asm', async () => {
      const { profile, code } = await pageOf(args)
      const random = dice(3)
      // Of a name in two images the terminal adds up both.
      const isOne = ({ name }) => code.functions.filter(other => other.name === name).length === 1
      const numbers = [...code.functions.keys()].filter(number => {
        return code.functions[number].instructions && isOne(code.functions[number])
      })
      ok(numbers.length > 0)
      let some = 0
      for (const number of numbers.slice(0, 3)) {
        for (const { selection, flags } of [{ selection: ALL, flags: [] }, chosen(profile, random), chosen(profile, random)]) {
          const { own, total } = modelOf(profile, selection).spots(code, number, 'instructions')
          const rows = code.rows(number, 'instructions').filter(({ spot, place }) => place && total[spot] > 0)
          const ours = rows.map(({ spot, place }) => `${place} ${own[spot]} ${total[spot]}`).sort()
          const { name } = code.functions[number]
          deepStrictEqual(ours, annotated(name, flags, args), `${name} ${flags.join(' ')}`)
          some += ours.length > 0
        }
      }
      ok(some > 2, `only ${some} selections have instructions`)
    })
  })
}
