// Drops what reading leaves in the page cache beyond what the source drops by itself. A source drops the range it read, but:
// - the system reads ahead of a mapping, also into pages that are pinned and never asked for again;
// - it keeps file pages in blocks of up to 2 MiB and gives back only those that lie in a dropped range whole.
// So everything behind the oldest read in flight is dropped as reading goes on, with an overlap of more than a block, and the whole file
// when reading starts over.
import type { ByteSource, MaybePromise, ReadOptions } from '../source/source.ts'
import { Wrapper } from '../source/wrapper.ts'

const OVERLAP_BYTES = 4 * 1024 ** 2

/** For sources that are read once from front to back, again and again. Without `advise` it does nothing. */
export class BehindSource extends Wrapper {
  readonly kind: string
  readonly #inFlight = new Set<number>()
  /** Everything before this was dropped since reading began at the front. */
  #dropped = 0
  #newest = 0

  constructor(inner: ByteSource) {
    super(inner)
    this.kind = inner.kind
  }

  async read(offset: number, length: number, options?: ReadOptions): Promise<Uint8Array> {
    if (offset < this.#newest) this.#startOver()
    this.#newest = offset
    this.#inFlight.add(offset)
    try {
      return await this.inner.read(offset, length, options)
    } finally {
      this.#inFlight.delete(offset)
      const oldest = Math.min(offset + length, ...this.#inFlight)
      if (oldest > this.#dropped) {
        const from = Math.max(0, this.#dropped - OVERLAP_BYTES)
        this.inner.advise?.(from, oldest - from, 'dontneed')
        this.#dropped = oldest
      }
    }
  }

  #startOver(): void {
    this.inner.advise?.(0, this.size, 'dontneed')
    this.#dropped = 0
  }

  override close(): MaybePromise<void> {
    this.#startOver()
    return this.inner.close()
  }
}
