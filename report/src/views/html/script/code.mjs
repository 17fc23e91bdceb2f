// Source and instructions as the page carries them (report/src/views/html/code.rs says which): of a function, the lines
// and the instructions that its labels are at, and what to show around them. No DOM.

import { Columns, fromBase64, inflated } from './bytes.mjs'
import { MADE, moduleOf, nameOf } from './profile.mjs'

/** Lines shown around one with samples. */
const AROUND = 8

/** Reads them, as base64 text. */
export async function decodeCode(text) {
  return JSON.parse(new Columns(await inflated(fromBase64(text))).text())
}

export class Code {
  constructor(profile, { files, listings, spots, missing }) {
    Object.assign(this, { profile, listings, missing })
    this.files = new Map(files.map(({ path, note, lines }) => [path, { note, texts: textsOf(lines) }]))
    this.instructions = new Map(spots.map(([label, listing, index]) => [label, { listing, index }]))
    this.known = new Map()
    this.functions = []
    // Of each label, the number of its function where that has code; what is inlined is one with what is not.
    this.of = new Int32Array(profile.labels.count).fill(-1)
    this.take()
  }

  take() {
    const { labels, texts } = this.profile
    const numbers = new Map()
    for (let label = 0; label < labels.count; label++) {
      if (labels.flags[label] & MADE) continue
      const key = `${labels.modules[label]} ${labels.names[label]}`
      let number = numbers.get(key)
      if (number === undefined) {
        number = this.functions.push({ name: nameOf(this.profile, label), module: moduleOf(this.profile, label), labels: [] }) - 1
        numbers.set(key, number)
      }
      const one = this.functions[number]
      one.labels.push(label)
      one.source ||= labels.lines[label] > 0 && !!texts[labels.files[label]]
      one.instructions ||= this.instructions.has(label)
      this.of[label] = number
    }
    this.of.forEach((number, label) => {
      if (number >= 0 && !this.has(number)) this.of[label] = -1
    })
  }

  /** Whether a function has code. */
  has(number) {
    const { source, instructions } = this.functions[number]
    return !!(source || instructions)
  }

  /** The forms in which a function's code is there: that which says most first. */
  forms(number) {
    const { labels, texts } = this.profile
    const isRead = label => !!this.files.get(texts[labels.files[label]])?.texts.size
    const order = this.functions[number].labels.some(isRead) ? ['source', 'instructions'] : ['instructions', 'source']
    return order.filter(form => this.functions[number][form])
  }

  /** The spots of a function in a form: of each label its number or -1, and what stands at each. */
  spots(number, form) {
    const key = `${number} ${form}`
    if (!this.known.has(key)) this.known.set(key, form === 'source' ? this.lines(number) : this.steps(number))
    return this.known.get(key)
  }

  lines(number) {
    const { labels, texts } = this.profile
    return this.numbered(number, label => {
      const [file, line] = [texts[labels.files[label]], labels.lines[label]]
      return line > 0 && file ? { key: `${line} ${file}`, file, line } : null
    })
  }

  steps(number) {
    return this.numbered(number, label => {
      const step = this.instructions.get(label)
      return step ? { key: `${step.listing} ${step.index}`, ...step } : null
    })
  }

  /** Spots of equal keys are one; labels without any have one together, whose place is null. */
  numbered(number, placeOf) {
    const [places, numbers] = [[], new Map()]
    const at = new Int32Array(this.profile.labels.count).fill(-1)
    for (const label of this.functions[number].labels) {
      const place = placeOf(label)
      const key = place?.key ?? ''
      if (!numbers.has(key)) numbers.set(key, places.push(place) - 1)
      at[label] = numbers.get(key)
    }
    return { at, places }
  }

  /** What to show of a function: rows with a heading, with what stands at a spot or beside one, or with a gap. */
  rows(number, form) {
    const { places } = this.spots(number, form)
    const rows = form === 'source' ? this.sourceRows(places) : this.instructionRows(places)
    const elsewhere = places.indexOf(null)
    if (elsewhere >= 0) rows.push({ spot: elsewhere, place: '', text: NOWHERE[form] })
    return rows
  }

  sourceRows(places) {
    const files = spotsBy(places, place => [place.file, place.line]).sort(([, a], [, b]) => b.size - a.size)
    return files.flatMap(([file, spots]) => {
      const { note = '', texts = new Map() } = this.files.get(file) ?? {}
      const shown = new Set(spots.keys())
      for (const line of spots.keys()) {
        for (let near = line - AROUND; near <= line + AROUND; near++) if (texts.has(near)) shown.add(near)
      }
      const rows = [{ heading: file, note }]
      let before = null
      for (const line of [...shown].sort((a, b) => a - b)) {
        if (before !== null && line > before + 1) rows.push({ gap: true })
        rows.push({ spot: spots.get(line), place: `${line}`, text: texts.get(line) ?? '' })
        before = line
      }
      return rows
    })
  }

  instructionRows(places) {
    return spotsBy(places, place => [place.listing, place.index]).flatMap(([listing, spots]) => {
      const { name, module, syntax, rows } = this.listings.functions[listing]
      const told = [{ heading: `${name} in ${module || '[unknown]'}`, note: syntax ?? '' }]
      let [before, lineBefore] = [null, '']
      for (const [index, address, into, text, file, line] of rows) {
        if (before !== null && index > before + 1) told.push({ gap: true })
        before = index
        if (file !== undefined && `${file} ${line}` !== lineBefore) {
          lineBefore = `${file} ${line}`
          const path = this.listings.files[file]
          const source = this.files.get(path)?.texts.get(line) ?? ''
          told.push({ line: `${path.slice(path.lastIndexOf('/') + 1)}:${line}`, text: source.trim() })
        }
        told.push({ spot: spots.get(index), place: `${address} ${into}`, text })
      }
      return told
    })
  }
}

const NOWHERE = {
  source: '[no line is known]',
  instructions: '[instructions that are not at hand]',
}

/** The numbers of places by what holds them, and by where in it they are: `keysOf` a place gives both. */
function spotsBy(places, keysOf) {
  const all = new Map()
  places.forEach((place, spot) => {
    if (!place) return
    const [holder, at] = keysOf(place)
    if (!all.has(holder)) all.set(holder, new Map())
    all.get(holder).set(at, spot)
  })
  return [...all]
}

function textsOf(stretches) {
  const texts = new Map()
  for (const [first, lines] of stretches) lines.forEach((text, at) => texts.set(first + at, text))
  return texts
}
