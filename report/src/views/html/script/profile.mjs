// The profile as the page carries it (report/src/views/html/payload.rs says how), as arrays.

import { Columns, fromBase64, inflated } from './bytes.mjs'

/** Bits of the flags of a label. */
export const KERNEL = 1
export const INLINED = 2
export const UNKNOWN = 4
/** It stands for no code: a process, a thread, a stack without frames. */
export const MADE = 8
/** Code of a shared library, and code made at run time. */
export const LIBRARY = 16
export const JIT = 32

const VERSION = 2

/** Reads both parts, as base64 text. */
export async function decode(tables, samples) {
  const [first, second] = await Promise.all([tables, samples].map(text => inflated(fromBase64(text))))
  return { ...readTables(new Columns(first)), ...readSamples(new Columns(second)) }
}

function readTables(columns) {
  const about = JSON.parse(columns.text())
  if (about.version !== VERSION) throw new Error(`the data has version ${about.version}`)
  const texts = columns.text().split('\n')
  const [names, modules, files, lines] = [0, 0, 0, 0].map(() => columns.column(Uint32Array))
  const flags = columns.column(Uint8Array)
  const labels = { names, modules, files, lines, flags, count: names.length }
  const distances = columns.column(Uint32Array)
  const called = columns.column(Uint32Array)
  const ways = columns.column(Uint8Array)
  // The root stands before all others, and has no label.
  const parents = new Uint32Array(distances.length + 1)
  const frames = new Int32Array(distances.length + 1)
  frames[0] = -1
  // Of each stack, bits for how its innermost frame was found.
  const found = new Uint8Array(distances.length + 1)
  found.set(ways, 1)
  distances.forEach((distance, index) => {
    parents[index + 1] = index + 1 - distance
    frames[index + 1] = called[index]
  })
  return { about, texts, labels, parents, frames, found }
}

function readSamples(columns) {
  const times = columns.column(Float64Array)
  const tasks = columns.column(Uint32Array)
  const states = columns.column(Uint8Array)
  const steps = columns.column(Float64Array)
  const weights = columns.at < columns.bytes.length ? columns.column(Float64Array) : null
  for (let index = 1; index < times.length; index++) times[index] += times[index - 1]
  const stacks = new Uint32Array(steps.length)
  const last = []
  for (let index = 0; index < steps.length; index++) {
    const step = steps[index]
    const before = last[tasks[index]] ?? 0
    stacks[index] = last[tasks[index]] = before + (step % 2 ? -(step + 1) / 2 : step / 2)
  }
  return { times, tasks, states, stacks, weights }
}

/** Steps of time from the start of the recording to its end. */
export function length({ about, times }) {
  const last = times.length ? times[times.length - 1] + 1 : 1
  return Math.max(Math.ceil(about.length_ns / about.tick_ns), last)
}

/** The name of a label. */
export function nameOf({ texts, labels }, label) {
  return texts[labels.names[label]] ?? HIDDEN
}

/** The name of a label's function, without the line of its frame. */
export function functionOf(profile, label) {
  const name = nameOf(profile, label)
  return profile.labels.lines[label] > 0 ? name.replace(/ \([^()]*:\d+\)$/u, '') : name
}

/** What stands for a stack of which every frame is hidden. */
export const HIDDEN = '[hidden]'

/** The last part of the path of a label's module, without brackets. */
export function moduleOf({ texts, labels }, label) {
  const path = texts[labels.modules[label]] ?? ''
  return path.slice(path.lastIndexOf('/') + 1).replace(/^[[\]]+|[[\]]+$/g, '')
}
