// Stacks of what is selected in pprof's form (github.com/google/pprof, proto/profile.proto), as `uniprof export -f
// pprof` writes them: functions with their lines, inlined ones at the place that they are in, a sample a stack and
// thread. The page knows no addresses, so that a place is its functions.

import { isLeafName } from './calls.mjs'
import { INLINED, MADE, functionOf } from './profile.mjs'
import { selected } from './selection.mjs'

/** A message of protobuf while it grows: fields that are 0 or empty are left out. */
class Message {
  constructor() {
    this.bytes = []
  }

  varint(number) {
    for (; number >= 0x80; number = Math.floor(number / 0x80)) this.bytes.push((number % 0x80) | 0x80)
    this.bytes.push(number)
  }

  number(field, number) {
    if (!number) return this
    this.varint(field * 8)
    this.varint(number)
    return this
  }

  /** Bytes, a text in UTF-8, or a message in this one. */
  part(field, { bytes }) {
    this.varint(field * 8 + 2)
    this.varint(bytes.length)
    for (const byte of bytes) this.bytes.push(byte)
    return this
  }

  numbers(field, numbers) {
    const packed = new Message()
    for (const number of numbers) packed.varint(number)
    return this.part(field, packed)
  }
}

/** What has a number when it is first met: texts from 0, all else from 1, as pprof wants them. */
class Numbers {
  constructor(first) {
    this.known = new Map()
    this.first = first
  }

  of(key, make = () => {}) {
    const known = this.known.get(key)
    if (known !== undefined) return known
    const made = this.known.size + this.first
    this.known.set(key, made)
    make(made)
    return made
  }
}

class Builder {
  constructor(profile) {
    this.profile = profile
    this.made = new Message()
    this.encoder = new TextEncoder()
    this.texts = new Numbers(0)
    const [mappings, locations, functions] = [1, 1, 1].map(first => new Numbers(first))
    Object.assign(this, { mappings, locations, functions })
    // The format requires that the first string is empty.
    this.text('')
  }

  text(text) {
    return this.texts.of(text, () => this.made.part(6, { bytes: this.encoder.encode(text) }))
  }

  type(kind, unit) {
    return new Message().number(1, this.text(kind)).number(2, this.text(unit))
  }

  head() {
    const { unit, is_timed, length_ns } = this.profile.about
    const types = {
      samples: ['samples', 'count'],
      'time of samples': ['time', 'nanoseconds'],
      'time off CPU': ['off-cpu', 'nanoseconds'],
    }
    const type = this.type(...(types[unit] ?? ['calls', 'nanoseconds']))
    this.made.part(1, type)
    if (is_timed) this.made.number(10, length_ns)
    if (unit !== 'samples') this.made.part(11, type).number(12, 1)
  }

  sample(task, labels, weight) {
    const { tasks, recordings, space_is, task_is } = this.profile.about
    const [recording, space, number, name] = tasks[task]
    const sample = new Message().numbers(1, this.places(labels)).numbers(2, [weight])
    const label = (key, text, number) =>
      sample.part(3, new Message().number(1, this.text(key)).number(2, text).number(3, number))
    label('thread', this.text(drawable(name)), 0)
    label(task_is[recording], 0, number)
    if (space) label(space_is[recording], 0, space)
    if (recordings.length > 1) label('recording', this.text(drawable(recordings[recording])), 0)
    this.made.part(2, sample)
  }

  /** Where a stack was, innermost first; `labels` are, too. Inlined functions are at the place of the next that isn't. */
  places(labels) {
    const { flags } = this.profile.labels
    const [places, lines] = [[], []]
    labels.forEach((label, index) => {
      lines.push(label)
      if (flags[label] & INLINED && index + 1 < labels.length) return
      places.push(this.place(lines.splice(0)))
    })
    return places
  }

  place(lines) {
    return this.locations.of(lines.join(), number => {
      const mapping = this.mapping(lines.at(-1))
      const place = new Message().number(1, number).number(2, mapping)
      for (const label of lines) {
        place.part(4, new Message().number(1, this.function(label)).number(2, this.profile.labels.lines[label]))
      }
      this.made.part(4, place)
    })
  }

  function(label) {
    const { labels, texts } = this.profile
    const [name, file] = [functionOf(this.profile, label), texts[labels.files[label]] ?? '']
    return this.functions.of(`${name}\n${file}`, number => {
      const made = new Message().number(1, number).number(2, this.text(name)).number(4, this.text(file))
      this.made.part(5, made)
    })
  }

  /** The image that a label is of; 0 for code of none. */
  mapping(label) {
    const path = this.profile.texts[this.profile.labels.modules[label]]
    if (!path) return 0
    return this.mappings.of(path, number => {
      const made = new Message().number(1, number).number(5, this.text(drawable(path)))
      // It knows functions, files, lines and what was inlined, so that pprof looks for none.
      for (const field of [7, 8, 9, 10]) made.number(field, 1)
      this.made.part(3, made)
    })
  }
}

/** pprof quotes no names of files and threads in what it draws: a quotation mark in one breaks the drawing. */
function drawable(text) {
  return text.replaceAll('"', "'").replaceAll('\\', '_')
}

/** What each stack of each task weighs, by the task's number and the stack's. */
function weighed(profile, look, counts) {
  const { parents, stacks, tasks } = profile
  const weights = new Map()
  selected(profile, look, counts, (sample, weight) => {
    const key = tasks[sample] * parents.length + stacks[sample]
    weights.set(key, (weights.get(key) ?? 0) + weight)
  })
  return weights
}

/** The labels of a stack that are seen, innermost first. Processes and threads are none: samples tell them. */
function shown(profile, seen, stack) {
  const { parents, frames, labels } = profile
  const found = []
  for (let at = stack; at > 0; at = parents[at]) {
    const label = frames[at]
    const isCode = !(labels.flags[label] & MADE) || isLeafName(profile, label)
    if (isCode && seen[label]) found.push(label)
  }
  // Behind all labels is the one of stacks that are hidden as a whole.
  return found.length ? found : [labels.count]
}

/** The file before it is packed: what is looked at of a profile, and what filters leave of it. */
export function pprof(profile, look, { seen, counts }) {
  const builder = new Builder(profile)
  builder.head()
  for (const [key, weight] of weighed(profile, look, counts)) {
    const stack = key % profile.parents.length
    builder.sample((key - stack) / profile.parents.length, shown(profile, seen, stack), weight)
  }
  return Uint8Array.from(builder.made.bytes)
}
