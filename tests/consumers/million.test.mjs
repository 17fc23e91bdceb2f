// A page of a million samples counts as `uniprof export --format json` does: for selections of time, thread and filter,
// function by function. The samples are made up (report/examples/synthetic.rs); the program is the one that is
// installed, since the one for other tests takes minutes for so many exports.

import { execFile, spawnSync } from 'node:child_process'
import { strictEqual } from 'node:assert'
import { join } from 'node:path'
import { test } from 'node:test'
import { promisify } from 'node:util'
import { decoded, same } from './selections.mjs'
import { OUT, ROOT } from './uniprof.mjs'

const SAMPLES = 1_000_000
const SELECTIONS = 50
const options = { cwd: ROOT, maxBuffer: 1 << 28, encoding: 'utf8' }

/** What the program prints; status 1 is its way to say that stacks may be incomplete. */
async function program(...args) {
  const run = promisify(execFile)(join(ROOT, 'target/release/uniprof'), args, options)
  const { stdout } = await run.catch(ended => {
    if (ended.code !== 1) throw ended
    return ended
  })
  return stdout
}

test(`${SELECTIONS} selections of a million samples have the counts of the export`, async () => {
  const recording = join(OUT, 'million.uprof')
  const made = spawnSync(join(ROOT, 'target/debug/examples/synthetic'), [`${SAMPLES}`, recording], options)
  strictEqual(made.status, 0, made.stderr)
  const profile = await decoded(await program('report', '--html=-', recording))
  strictEqual(profile.times.length, SAMPLES)
  await same(profile, [recording], SELECTIONS, program)
})
