// Bytes that are in memory already.
import { throwIfAborted } from '../base/errors.ts'
import { checkRange, closedError, destination } from './range.ts'
import type { ByteSource, ReadOptions } from './source.ts'

/** A source over an array (or a view of shared memory). The array is used, not copied: do not change it while the source is open. */
export class MemorySource implements ByteSource {
  readonly size: number
  readonly id: string
  readonly kind = 'memory'
  readonly alignment = 1
  #bytes: Uint8Array | undefined

  constructor(bytes: Uint8Array, id = 'memory') {
    this.#bytes = bytes
    this.size = bytes.byteLength
    this.id = id
  }

  read(offset: number, length: number, options?: ReadOptions): Uint8Array {
    throwIfAborted(options?.signal)
    return this.readSync(offset, length, options?.into)
  }

  readSync(offset: number, length: number, into?: Uint8Array): Uint8Array {
    const bytes = this.view(offset, length)
    const out = destination(this.id, length, into)
    out.set(bytes)
    return out
  }

  view(offset: number, length: number): Uint8Array {
    if (this.#bytes === undefined) throw closedError(this.id)
    checkRange(this.id, this.size, offset, length)
    return this.#bytes.subarray(offset, offset + length)
  }

  close(): void {
    this.#bytes = undefined
  }
}
