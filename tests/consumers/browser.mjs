// Debian's Chromium without a window, and a server of files for it on this machine.

import { existsSync, readFileSync } from 'node:fs'
import { createServer } from 'node:http'
import { extname, join } from 'node:path'
import { pathToFileURL } from 'node:url'
import { chromium } from 'playwright-core'

const PROGRAM = '/usr/bin/chromium'
/** Why there can be no browser, or false. */
export const MISSING = !existsSync(PROGRAM) && `there is no ${PROGRAM} (Debian's chromium)`
/** For anything that the browser does; a busy machine needs patience. */
const PATIENCE_MS = 180_000

const TYPES = {
  '.css': 'text/css',
  '.html': 'text/html',
  '.js': 'text/javascript',
  '.json': 'application/json',
  '.svg': 'image/svg+xml',
  '.wasm': 'application/wasm',
}

/** Serves the files of folders: `{'/path': folder}`. */
export async function serve(folders) {
  const server = createServer((request, response) => {
    const path = decodeURIComponent(new URL(request.url, 'http://localhost').pathname)
    const prefix = Object.keys(folders).find(prefix => path.startsWith(`${prefix}/`))
    const file = prefix === undefined ? undefined : join(folders[prefix], path.slice(prefix.length))
    const found = file && existsSync(file)
    response.writeHead(found ? 200 : 404, { 'content-type': TYPES[extname(file ?? '')] ?? '' })
    response.end(found ? readFileSync(file) : '')
  })
  await new Promise(listening => server.listen(0, '127.0.0.1', listening))
  return { url: `http://127.0.0.1:${server.address().port}`, close: () => server.close() }
}

/** Starts the browser, which talks with nobody else. In `still`, no page's script runs; `dark` is a dark screen. */
export async function launch() {
  const browser = await chromium.launch({
    executablePath: PROGRAM,
    timeout: PATIENCE_MS,
    // Or a file of tests whose time is up, and that is asked to end, would end its browser and live on itself.
    handleSIGTERM: false,
    args: [
      '--no-sandbox',
      '--disable-gpu',
      '--disable-quic',
      '--no-first-run',
      '--disable-background-networking',
      '--disable-component-update',
      '--disable-sync',
    ],
  })
  const viewport = { width: 1300, height: 1000 }
  const context = await browser.newContext({ viewport })
  const still = await browser.newContext({ viewport, javaScriptEnabled: false })
  const dark = await browser.newContext({ viewport, colorScheme: 'dark' })
  for (const one of [context, still, dark]) one.setDefaultTimeout(PATIENCE_MS)
  return { context, still, dark, close: () => browser.close() }
}

/** Opens a page of ours from its file, and keeps what it asks for and what goes wrong. */
export async function opened(context, path, hash = '') {
  const page = await context.newPage()
  const events = { requests: [], errors: [] }
  page.on('request', request => events.requests.push(request.url()))
  page.on('pageerror', error => events.errors.push(error.message))
  // What the page's own policy refuses is told here.
  page.on('console', said => said.type() === 'error' && events.errors.push(said.text()))
  await page.goto(pathToFileURL(path).href + hash)
  // Without a script nothing comes to life, nor without samples.
  await page.waitForSelector(':root.alive, :root:not(.scripted), :root:not(:has(#views))', { state: 'attached' })
  return { page, events }
}
