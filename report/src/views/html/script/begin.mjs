// The page comes to life: its data is taken apart, and the fixed parts make room for the views. To read what was
// recorded, how much, and what was found, nobody needs this.

import { Code, decodeCode } from './code.mjs'
import { Comparison } from './comparison.mjs'
import { Page } from './page.mjs'
import { decode } from './profile.mjs'
import { sides } from './sides.mjs'
import { decodeVerdicts } from './verdicts.mjs'

/** Begins, or says in a sentence why not. */
async function begin() {
  document.documentElement.classList.add('scripted')
  // Open for whoever has no script.
  document.getElementById('about').open = false
  const parts = ['tables', 'samples', 'verdicts', 'code'].map(id => document.getElementById(id))
  const [tables, samples, verdicts, code] = parts
  const place = document.getElementById('views')
  if (!place || !tables || !samples) return
  if (typeof DecompressionStream === 'undefined') {
    place.append('This browser is too old to unpack the recording: what follows can be read, but not selected from.')
    place.hidden = false
    return
  }
  try {
    const text = part => part.content.textContent
    const profile = await decode(text(tables), text(samples))
    const both = sides(profile)
    const changes = both && (await decodeVerdicts(text(verdicts)))
    const shown = code && new Code(profile, await decodeCode(text(code)))
    for (const part of parts) part?.remove()
    const fixed = document.getElementById(both ? 'changes' : 'functions')
    place.hidden = false
    if (both) new Comparison(both, changes, place)
    else new Page(profile, shown, place)
    fixed.hidden = true
    document.documentElement.classList.add('alive')
  } catch (error) {
    place.append(`The data of this page can't be read (${error.message}): what follows still holds.`)
    place.hidden = false
  }
}

begin()
