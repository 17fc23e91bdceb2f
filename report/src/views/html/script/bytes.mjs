// Packed bytes: base64 text to bytes, deflate undone by whoever runs this, and columns of numbers read from them.

/** The bytes of base64 text. */
export function fromBase64(text) {
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(text)
  const letters = atob(text)
  const bytes = new Uint8Array(letters.length)
  for (let at = 0; at < bytes.length; at++) bytes[at] = letters.charCodeAt(at)
  return bytes
}

/** Undoes deflate without a wrapper (RFC 1951). */
export async function inflated(bytes) {
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream('deflate-raw'))
  return new Uint8Array(await new Response(stream).arrayBuffer())
}

/** What gzip makes of bytes. */
export function gzipped(bytes) {
  const stream = new Blob([bytes]).stream().pipeThrough(new CompressionStream('gzip'))
  return new Response(stream).arrayBuffer()
}

/** Reads what was written one after the other: numbers in LEB128, each column behind its length. */
export class Columns {
  constructor(bytes) {
    this.bytes = bytes
    this.at = 0
  }

  number() {
    let [number, scale] = [0, 1]
    for (;;) {
      if (this.at >= this.bytes.length) throw new Error('the page ends before its data does')
      const byte = this.bytes[this.at++]
      number += (byte & 0x7f) * scale
      if (byte < 0x80) return number
      scale *= 128
    }
  }

  /** Text behind its length in bytes. */
  text() {
    const end = this.number() + this.at
    if (end > this.bytes.length) throw new Error('the page ends before its data does')
    const text = new TextDecoder().decode(this.bytes.subarray(this.at, end))
    this.at = end
    return text
  }

  /** A column as an array of this type. */
  column(Numbers) {
    const numbers = new Numbers(this.number())
    const bytes = this.bytes
    let at = this.at
    for (let index = 0; index < numbers.length; index++) {
      const byte = bytes[at++]
      if (byte < 0x80) {
        numbers[index] = byte
        continue
      }
      this.at = at - 1
      numbers[index] = this.number()
      at = this.at
    }
    if (at > bytes.length) throw new Error('the page ends before its data does')
    this.at = at
    return numbers
  }
}
