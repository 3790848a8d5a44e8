// Keeps blocks that were read: for sources where a second read costs as much as the first (a server, an archive).
import { throwIfAborted, ValidationError } from '../base/errors.ts'
import { checkRange, closedError, destination } from './range.ts'
import type { ByteSource, MaybePromise, ReadOptions } from './source.ts'
import { orAborted, promised, Wrapper } from './wrapper.ts'

/** How much is kept, and in what pieces. */
export interface CacheOptions {
  /** Bytes kept, blocks on their way included: never more. */
  capBytes: number
  /** Bytes of one block. Default 64 KiB. */
  blockBytes?: number
}

/** Least recently used blocks go first. A read of more than half the cap passes by, so that one long read does not empty the cache. */
class CachedSource extends Wrapper {
  readonly kind = 'cached'
  readonly #cap: number
  readonly #block: number
  /** Block index → bytes, in order of use: a Map keeps the order of insertion. */
  readonly #blocks = new Map<number, Uint8Array>()
  readonly #pending = new Map<number, Promise<Uint8Array>>()
  #closed = false

  constructor(inner: ByteSource, options: CacheOptions) {
    super(inner)
    this.#block = options.blockBytes ?? 64 * 1024
    this.#cap = options.capBytes
    if (!Number.isSafeInteger(this.#block) || this.#block <= 0 || !(this.#cap >= this.#block))
      throw new ValidationError('REQUEST_INVALID', {
        what: 'a cache holds at least one block',
        where: inner.id,
        got: `capBytes ${this.#cap}, blockBytes ${this.#block}`,
      })
  }

  async read(offset: number, length: number, options?: ReadOptions): Promise<Uint8Array> {
    throwIfAborted(options?.signal)
    if (this.#closed) throw closedError(this.id)
    checkRange(this.id, this.size, offset, length)
    if (length > this.#cap / 2) return this.inner.read(offset, length, options)
    const out = destination(this.id, length, options?.into)
    const parts: { bytes: Promise<Uint8Array>; from: number; at: number; length: number }[] = []
    for (let done = 0; done < length; ) {
      const index = Math.floor((offset + done) / this.#block)
      const from = offset + done - index * this.#block
      const take = Math.min(this.#block - from, length - done)
      parts.push({ bytes: this.#get(index), from, at: done, length: take })
      done += take
    }
    const all = await orAborted(Promise.all(parts.map((p) => p.bytes)), options?.signal)
    for (const [i, p] of parts.entries()) out.set(all[i]!.subarray(p.from, p.from + p.length), p.at)
    return out
  }

  #get(index: number): Promise<Uint8Array> {
    const kept = this.#blocks.get(index)
    if (kept !== undefined) {
      this.#blocks.delete(index)
      this.#blocks.set(index, kept)
      return Promise.resolve(kept)
    }
    const coming = this.#pending.get(index)
    if (coming !== undefined) return coming
    // Without the caller's signal: others may wait for the same block.
    const start = index * this.#block
    const fetched = promised(() => this.inner.read(start, Math.min(this.#block, this.size - start)))
    if ((this.#pending.size + 1) * this.#block > this.#cap) return fetched // no room even after evicting all: not kept
    this.#pending.set(index, fetched)
    while ((this.#blocks.size + this.#pending.size) * this.#block > this.#cap) {
      this.#blocks.delete(this.#blocks.keys().next().value!)
    }
    fetched.then(
      (bytes) => {
        this.#pending.delete(index)
        if (!this.#closed) this.#blocks.set(index, bytes)
      },
      () => this.#pending.delete(index), // a failed block is asked for again
    )
    return fetched
  }

  override close(): MaybePromise<void> {
    this.#closed = true
    this.#blocks.clear()
    return this.inner.close()
  }
}

/** Keeps up to `capBytes` of what was read, in blocks; one read at a time for each block, however many ask. */
export function cached(inner: ByteSource, options: CacheOptions): ByteSource {
  return new CachedSource(inner, options)
}
