// Stored bytes of one tensor, page by page: what is read here was compared with its SHA-256 when the format has one.
import { createHash } from 'node:crypto'
import { ModelFormatError, throwIfAborted } from '../base/errors.ts'
import { MAX_READ_BYTES } from '../base/limits.ts'
import type { TensorEntry } from '../format/reader.ts'
import type { ByteSource } from '../source/source.ts'
import { planUnits, type UnitLayout, unitLayout } from './plan.ts'

/** Stored bytes worked on at a time. */
export const CHUNK_BYTES = 1024 ** 2
/** Pages up to this are read once, checked, and used from memory; larger ones are read twice the first time. */
const MAX_BUFFERED_PAGE = 16 * 1024 ** 2

/** A run of whole units. `bytes` is valid until the next one is asked for. */
export interface UnitRun {
  readonly unit: number
  readonly count: number
  readonly bytes: Uint8Array
}

export class StoredTensor {
  readonly entry: TensorEntry
  readonly layout: UnitLayout
  readonly #sources: readonly ByteSource[]
  readonly #verify: boolean
  /** 1 = checked. */
  #checked: Uint8Array | undefined
  #unchecked: number

  constructor(entry: TensorEntry, sources: readonly ByteSource[], verify: boolean) {
    this.entry = entry
    this.layout = unitLayout(entry)
    this.#sources = sources
    this.#verify = verify && entry.pages !== undefined
    this.#unchecked = this.#verify ? entry.pages!.count : 0
  }

  source(index: number): ByteSource {
    return this.#sources[index]!
  }

  /** Reads units [from, to) into `out`, exactly as long as they are. Throws what the source throws, CHECKSUM_MISMATCH. */
  async readInto(from: number, to: number, out: Uint8Array, signal?: AbortSignal): Promise<void> {
    if (this.#unchecked === 0) return this.#plainRead(from, to, out, signal)
    const { unitBytes } = this.layout
    for await (const run of this.units(from, to, CHUNK_BYTES, signal)) out.set(run.bytes, (run.unit - from) * unitBytes)
  }

  /** Units [from, to) in order, in runs of about `chunkBytes` (at least one unit). Throws as readInto. */
  async *units(from: number, to: number, chunkBytes = CHUNK_BYTES, signal?: AbortSignal): AsyncGenerator<UnitRun> {
    const { unitBytes } = this.layout
    const perChunk = Math.max(1, Math.floor(chunkBytes / unitBytes))
    let buffer = new Uint8Array(0)
    for (let unit = from; unit < to; ) {
      const page = this.#pageOf(unit)
      const pageEnd = page === undefined ? to : this.#pageUnits(page)[1]
      if (page !== undefined && this.#checked?.[page] !== 1) {
        const bytes = await this.#checkPage(page, signal)
        if (bytes !== undefined) {
          const end = Math.min(to, pageEnd)
          const start = (unit - this.#pageUnits(page)[0]) * unitBytes
          yield { unit, count: end - unit, bytes: bytes.subarray(start, start + (end - unit) * unitBytes) }
          unit = end
          continue
        }
      }
      const count = Math.min(perChunk, to - unit, Math.max(1, pageEnd - unit))
      if (buffer.length < count * unitBytes) buffer = new Uint8Array(count * unitBytes)
      const bytes = buffer.subarray(0, count * unitBytes)
      await this.#plainRead(unit, unit + count, bytes, signal)
      yield { unit, count, bytes }
      unit += count
    }
  }

  /** Checks the pages that hold units [from, to), if they were not yet. Throws CHECKSUM_MISMATCH. */
  async check(from: number, to: number, signal?: AbortSignal): Promise<void> {
    if (this.#unchecked === 0 || from >= to) return
    const last = this.#pageOf(to - 1)!
    for (let page = this.#pageOf(from)!; page <= last; page++)
      if (this.#checked?.[page] !== 1) await this.#checkPage(page, signal)
  }

  async #plainRead(from: number, to: number, out: Uint8Array, signal?: AbortSignal): Promise<void> {
    let at = 0
    for (const { source, offset, length } of planUnits(this.layout, from, to))
      for (let done = 0; done < length; done += MAX_READ_BYTES) {
        throwIfAborted(signal)
        const n = Math.min(MAX_READ_BYTES, length - done)
        const into = out.subarray(at, at + n)
        await this.source(source).read(offset + done, n, signal === undefined ? { into } : { into, signal })
        at += n
      }
  }

  /** Page of a unit, where pages are to be checked. */
  #pageOf(unit: number): number | undefined {
    if (!this.#verify) return undefined
    const { rowsPerPage, count } = this.entry.pages!
    if (count === 1) return 0
    return Math.floor((unit * this.layout.unitElements) / (rowsPerPage * this.entry.cols))
  }

  /** Units [first, end) of a page. A page is whole units; a tensor of one page may have bytes between its elements. */
  #pageUnits(page: number): [number, number] {
    const { units, unitElements } = this.layout
    const { rowsPerPage, count } = this.entry.pages!
    if (count === 1) return [0, units]
    const perPage = (rowsPerPage * this.entry.cols) / unitElements
    return [page * perPage, Math.min(units, (page + 1) * perPage)]
  }

  /** Reads and checks a page; returns its bytes when it is small enough to keep. */
  async #checkPage(page: number, signal?: AbortSignal): Promise<Uint8Array | undefined> {
    const [from, to] = this.#pageUnits(page)
    const length = (to - from) * this.layout.unitBytes
    const hash = createHash('sha256')
    let bytes: Uint8Array | undefined
    if (length <= MAX_BUFFERED_PAGE) {
      bytes = new Uint8Array(length)
      await this.#plainRead(from, to, bytes, signal)
      hash.update(bytes)
    } else {
      const step = Math.max(1, Math.floor(CHUNK_BYTES / this.layout.unitBytes))
      const buffer = new Uint8Array(step * this.layout.unitBytes)
      for (let unit = from; unit < to; unit += step) {
        const end = Math.min(to, unit + step)
        const part = buffer.subarray(0, (end - unit) * this.layout.unitBytes)
        await this.#plainRead(unit, end, part, signal)
        hash.update(part)
      }
    }
    const expected = Buffer.from(await this.entry.pages!.sha256(page)).toString('hex')
    const got = hash.digest('hex')
    if (got !== expected) this.#mismatch(page, from, expected, got)
    this.#checked ??= new Uint8Array(this.entry.pages!.count)
    if (this.#checked[page] !== 1) this.#unchecked--
    this.#checked[page] = 1
    return bytes
  }

  #mismatch(page: number, unit: number, expected: string, got: string): never {
    const [range] = planUnits(this.layout, unit, unit + 1)
    const file = range === undefined ? '' : this.source(range.source).id
    throw new ModelFormatError('CHECKSUM_MISMATCH', {
      what: 'page does not have its SHA-256',
      where: `${file}, tensor ${this.entry.name}, page ${page}, offset ${range?.offset}`,
      expected,
      got,
      remedy: 'The file was damaged or replaced: copy the model again.',
      details: { file, tensor: this.entry.name, page, offset: range?.offset, expected, got },
    })
  }
}
