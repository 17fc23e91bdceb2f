// Recordings for the pictures of the README: a shop's server before and after a change, with all of its code named. They
// are text in the form of `perf script`, made up, the same each time.

import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { OUT, uniprof } from './uniprof.mjs'

const PLACES = { k: '[kernel.kallsyms]', c: '/lib/libc.so.6', q: '/lib/libsqlite3.so.0', o: '/lib/libcrypto.so.3', s: '/srv/shop' }
const KERNEL = ['tcp_sendmsg:k', 'sock_write_iter:k', 'vfs_write:k', 'ksys_write:k', 'do_syscall_64:k', 'write:c']

/** Stacks, innermost function first, with their weights before and after. */
const STACKS = [
  [['sha256_block_data_order:o', 'EVP_DigestUpdate:o', 'check_session:s', 'authorize:s'], 14, 14],
  [['EVP_DigestFinal_ex:o', 'check_session:s', 'authorize:s'], 3, 3],
  [['sqlite3BtreeMovetoUnpacked:q', 'sqlite3VdbeExec:q', 'sqlite3_step:q', 'load_orders:s', 'list_orders:s'], 20, 20],
  [['sqlite3VdbeSerialGet:q', 'sqlite3VdbeExec:q', 'sqlite3_step:q', 'load_orders:s', 'list_orders:s'], 9, 9],
  [['pread64:c', 'sqlite3PagerGet:q', 'sqlite3VdbeExec:q', 'sqlite3_step:q', 'load_orders:s', 'list_orders:s'], 6, 6],
  [['price::discount:s', 'price::total:s', 'list_orders:s'], 8, 3],
  [['json::escape:s', 'json::write_string:s', 'json::write_order:s', 'render:s', 'list_orders:s'], 9, 24],
  [['memmove:c', 'json::Buffer::grow:s', 'json::write_order:s', 'render:s', 'list_orders:s'], 2, 9],
  [['json::write_number:s', 'json::write_order:s', 'render:s', 'list_orders:s'], 5, 5],
  [['http::parse_headers:s', 'http::read_request:s'], 7, 7],
  [[...KERNEL, 'http::send:s', 'list_orders:s'], 11, 11],
  [['malloc:c', 'http::Request::new:s', 'http::read_request:s'], 3, 3],
]

/** A recording: `side` is 0 before the change, 1 after it. */
export function example(name, side) {
  const [text, recording] = ['txt', 'uprof'].map(ending => join(OUT, `${name}.${ending}`))
  writeFileSync(text, exampleText(side))
  uniprof('import', '--format', 'perf-script', '--output', recording, text)
  return recording
}

function exampleText(side) {
  let seed = 11 + side
  const random = below => {
    seed = (Math.imul(seed, 1103515245) + 12345) >>> 0
    return (seed >>> 8) % below
  }
  const all = STACKS.reduce((sum, stack) => sum + stack[1 + side], 0)
  const lines = []
  for (let number = 0; number < 6000; number++) {
    const thread = 4200 + random(number % 2000 < 900 ? 3 : 4)
    let left = random(all)
    const [frames] = STACKS.find(stack => (left -= stack[1 + side]) < 0)
    lines.push(`worker ${thread} ${(number / 1500).toFixed(6)}: cpu-clock:`)
    for (const [at, frame] of [...frames, 'serve:s', 'worker:s', 'start_thread:c', 'clone3:c'].entries()) {
      const [, name, place] = /^(.*):(.)$/.exec(frame)
      const address = (place === 'k' ? 'ffffffff81' : '55') + (0x100000 + at * 64).toString(16)
      lines.push(`\t${address} ${name}+0x10 (${PLACES[place]})`)
    }
    lines.push('')
  }
  return `${lines.join('\n')}\n`
}
