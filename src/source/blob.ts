// Bytes of a Blob or File: what a browser gets from a file input, a drop or the origin private file system. No node: import.
import { SourceError, throwIfAborted } from '../base/errors.ts'
import { checkRange, closedError, destination } from './range.ts'
import type { ByteSource, ReadOptions } from './source.ts'

/** A source over a Blob. Nothing is read before it is asked for; a File that changes on disk gives SOURCE_CHANGED. */
export class BlobSource implements ByteSource {
  /** Bytes. */
  readonly size: number
  readonly id: string
  readonly kind = 'blob'
  readonly alignment = 1
  #blob: Blob | undefined

  constructor(blob: Blob, id = 'blob') {
    this.#blob = blob
    this.size = blob.size
    this.id = id
  }

  /** Throws SOURCE_RANGE, SOURCE_CHANGED, SOURCE_CLOSED, ABORTED. */
  async read(offset: number, length: number, options?: ReadOptions): Promise<Uint8Array> {
    throwIfAborted(options?.signal)
    if (this.#blob === undefined) throw closedError(this.id)
    checkRange(this.id, this.size, offset, length)
    const out = destination(this.id, length, options?.into)
    const part = this.#blob.slice(offset, offset + length)
    const bytes = new Uint8Array(await part.arrayBuffer().catch((cause: unknown) => this.#changed(cause)))
    throwIfAborted(options?.signal)
    if (bytes.length !== length) this.#changed(undefined, bytes.length)
    out.set(bytes)
    return out
  }

  // NotReadableError is how browsers say that the file behind a File is another one now.
  #changed(cause: unknown, got?: number): never {
    throw new SourceError('SOURCE_CHANGED', {
      what: 'the file changed or cannot be read any more',
      where: this.id,
      ...(got === undefined ? {} : { got: `${got} bytes` }),
      cause,
    })
  }

  close(): void {
    this.#blob = undefined
  }
}
