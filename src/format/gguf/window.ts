// The first bytes of a file, read field by field with every length checked against the file before it is used.
// When the window ends before the header does, `Incomplete` tells how much is needed: the caller reads more and parses again.
import { ModelFormatError } from '../../base/errors.ts'

/** Headers above this are refused: the largest known ones (260,000 tokens with merges) take about 20 MB. */
export const MAX_GGUF_HEADER_BYTES = 128 * 1024 ** 2

/** Not an error of the file: the window is too short. */
export class Incomplete {
  /** Bytes from the start of the file that the next try needs at least. */
  readonly needed: number
  constructor(needed: number) {
    this.needed = needed
  }
}

export class Window {
  readonly bytes: Uint8Array
  readonly fileSize: number
  readonly where: string
  bigEndian = false
  at = 0
  /** Elements of all arrays so far. */
  elements = 0
  readonly #view: DataView

  constructor(bytes: Uint8Array, fileSize: number, where: string) {
    this.bytes = bytes
    this.fileSize = fileSize
    this.where = where
    this.#view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength)
  }

  /** Steps over `length` bytes and returns where they begin. Throws FORMAT_INVALID past the end of the file, Incomplete past the window. */
  skip(length: number, what: string): number {
    const start = this.at
    if (length > this.fileSize - start)
      this.refuse(`${what} is longer than the file`, {
        expected: `≤ ${this.fileSize - start} bytes`,
        got: `${length} bytes`,
        remedy: 'The file is cut short or damaged: fetch it again.',
      })
    const end = start + length
    if (end > MAX_GGUF_HEADER_BYTES)
      throw new ModelFormatError('FORMAT_LIMIT', {
        what: 'GGUF header is too large',
        where: this.where,
        expected: `≤ ${MAX_GGUF_HEADER_BYTES} bytes`,
        got: end,
      })
    if (end > this.bytes.length) throw new Incomplete(end)
    this.at = end
    return start
  }

  /** About so many bytes come next: throws Incomplete when the window is shorter and the file is not. */
  hint(length: number): void {
    const end = Math.min(this.at + length, this.fileSize, MAX_GGUF_HEADER_BYTES)
    if (end > this.bytes.length) throw new Incomplete(end)
  }

  u32(what: string): number {
    return this.#view.getUint32(this.skip(4, what), !this.bigEndian)
  }

  /** A count or size: a 64-bit number below 2^53. Throws FORMAT_INVALID above (also for negative ones). */
  count(what: string): number {
    const at = this.skip(8, what)
    const n = this.#high(at) * 2 ** 32 + this.#low(at)
    if (!Number.isSafeInteger(n)) this.refuse(`${what} is impossibly large`, { expected: '< 2^53', got: n })
    return n
  }

  /** How many items of at least `itemBytes` follow. Throws FORMAT_INVALID when the rest of the file cannot hold them. */
  countOf(what: string, itemBytes: number): number {
    const n = this.count(what)
    if (n > (this.fileSize - this.at) / itemBytes)
      this.refuse(`${what} is more than the file can hold`, {
        expected: `≤ ${Math.floor((this.fileSize - this.at) / itemBytes)}`,
        got: n,
      })
    return n
  }

  /** Steps over a string: a 64-bit length and as many bytes. */
  skipString(what: string): void {
    this.skip(this.count(what), what)
  }

  /** A string of at most `most` bytes. Throws FORMAT_INVALID when it is not UTF-8. */
  string(what: string, most: number): string {
    const length = this.count(what)
    if (length > most) this.refuse(`${what} is too long`, { expected: `≤ ${most} bytes`, got: length })
    const start = this.skip(length, what)
    return decodeText(this.bytes.subarray(start, start + length), `${what} (${this.where}, offset ${start})`)
  }

  refuse(what: string, extra: object = {}): never {
    throw new ModelFormatError('FORMAT_INVALID', { what, where: `${this.where}, offset ${this.at}`, ...extra })
  }

  #high(at: number): number {
    return this.#view.getUint32(this.bigEndian ? at : at + 4, !this.bigEndian)
  }

  #low(at: number): number {
    return this.#view.getUint32(this.bigEndian ? at + 4 : at, !this.bigEndian)
  }
}

const UTF8 = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true })

/** Throws FORMAT_INVALID when `bytes` is not UTF-8. */
export function decodeText(bytes: Uint8Array, where: string): string {
  try {
    return UTF8.decode(bytes)
  } catch (cause) {
    throw new ModelFormatError('FORMAT_INVALID', { what: 'text is not valid UTF-8', where, cause })
  }
}
