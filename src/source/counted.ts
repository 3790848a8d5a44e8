// Counts what passes through: how many reads, how many bytes, which ranges. Tests assert on it; reports may show it.
import type { ByteSource, MaybePromise, ReadOptions } from './source.ts'
import { Wrapper } from './wrapper.ts'

export interface ReadRange {
  readonly offset: number
  readonly length: number
}

/** A view counts as a read of its length: it may touch that much. */
export class CountedSource extends Wrapper {
  readonly kind = 'counted'
  reads = 0
  bytes = 0
  /** Every range in order of asking, when `record` was asked for. */
  readonly ranges: ReadRange[] = []
  readonly #record: boolean

  constructor(inner: ByteSource, options: { record?: boolean } = {}) {
    super(inner)
    this.#record = options.record ?? false
    const { view, readSync } = inner
    if (view !== undefined)
      this.view = (offset, length) => {
        this.#count(offset, length)
        return view.call(inner, offset, length)
      }
    if (readSync !== undefined)
      this.readSync = (offset, length, into) => {
        this.#count(offset, length)
        return readSync.call(inner, offset, length, into)
      }
  }

  read(offset: number, length: number, options?: ReadOptions): MaybePromise<Uint8Array> {
    this.#count(offset, length)
    return this.inner.read(offset, length, options)
  }

  reset(): void {
    this.reads = 0
    this.bytes = 0
    this.ranges.length = 0
  }

  #count(offset: number, length: number): void {
    this.reads++
    this.bytes += length
    if (this.#record) this.ranges.push({ offset, length })
  }
}

/** Counts the reads of `inner`; with `record`, keeps every range. */
export function counted(inner: ByteSource, options?: { record?: boolean }): CountedSource {
  return new CountedSource(inner, options)
}
