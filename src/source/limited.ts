// At most so many reads at once: a disk has a best depth, a server a patience.
import pLimit, { type LimitFunction } from 'p-limit'
import { throwIfAborted } from '../base/errors.ts'
import { checkRange, destination } from './range.ts'
import type { ByteSource, ReadOptions } from './source.ts'
import { orAborted, Wrapper } from './wrapper.ts'

class LimitedSource extends Wrapper {
  readonly kind = 'limited'
  readonly #limit: LimitFunction

  constructor(inner: ByteSource, limit: LimitFunction) {
    super(inner)
    this.#limit = limit
  }

  async read(offset: number, length: number, options?: ReadOptions): Promise<Uint8Array> {
    checkRange(this.id, this.size, offset, length)
    if (options?.into !== undefined) destination(this.id, length, options.into) // what is wrong does not wait in line
    const signal = options?.signal
    throwIfAborted(signal)
    // A cancel while waiting is answered at once. Once the read runs it owns `into`, and answers itself.
    let started: (() => void) | undefined
    const waiting = new Promise<void>((resolve) => {
      started = resolve
    })
    const work = this.#limit(() => {
      throwIfAborted(signal)
      started?.()
      return this.inner.read(offset, length, options)
    })
    work.catch(() => {}) // a cancelled one that nobody waits for any more
    await orAborted(Promise.race([waiting, work]), signal)
    return work
  }
}

/** `limit` is a number of reads, or a p-limit that several sources share. */
export function limited(inner: ByteSource, limit: number | LimitFunction): ByteSource {
  return new LimitedSource(inner, typeof limit === 'number' ? pLimit(limit) : limit)
}
