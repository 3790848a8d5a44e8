// A part of a source as a source of its own: a file inside an archive, a shard inside a container.
import { checkRange, closedError } from './range.ts'
import type { AdviseHint, ByteSource, MaybePromise, ReadOptions } from './source.ts'

class SliceSource implements ByteSource {
  readonly kind = 'slice'
  readonly size: number
  readonly id: string
  readonly alignment: number
  readonly readSync?: (offset: number, length: number, into?: Uint8Array) => Uint8Array
  readonly view?: (offset: number, length: number) => Uint8Array
  readonly advise?: (offset: number, length: number, hint: AdviseHint) => void
  readonly #inner: ByteSource
  readonly #start: number
  #closed = false

  constructor(inner: ByteSource, start: number, size: number) {
    checkRange(inner.id, inner.size, start, size)
    this.#inner = inner
    this.#start = start
    this.size = size
    this.id = `${inner.id}[${start}+${size}]`
    // An offset that is a multiple here is one there only if the start is.
    this.alignment = inner.alignment
    const { readSync, view, advise } = inner
    if (readSync !== undefined)
      this.readSync = (offset, length, into) => readSync.call(inner, this.#at(offset, length), length, into)
    if (view !== undefined) this.view = (offset, length) => view.call(inner, this.#at(offset, length), length)
    if (advise !== undefined)
      this.advise = (offset, length, hint) => {
        const from = Math.min(Math.max(0, offset), size)
        if (!this.#closed) advise.call(inner, start + from, Math.max(0, Math.min(length, size - from)), hint)
      }
  }

  #at(offset: number, length: number): number {
    if (this.#closed) throw closedError(this.id)
    checkRange(this.id, this.size, offset, length)
    return this.#start + offset
  }

  read(offset: number, length: number, options?: ReadOptions): MaybePromise<Uint8Array> {
    return this.#inner.read(this.#at(offset, length), length, options)
  }

  close(): void {
    this.#closed = true
  }
}

/** Bytes [start, start + size) of `inner`. Closing a slice leaves `inner` open: others may hold slices of it. Throws SOURCE_RANGE. */
export function slice(inner: ByteSource, start: number, size: number): ByteSource {
  return new SliceSource(inner, start, size)
}
