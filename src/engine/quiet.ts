// Sources as the engine reads single rows and vectors from them: without leaving page cache behind. A mapping reads far ahead of a row (8 MiB
// on some devices), and all of it would be charged to the budget; the model's own sources stay as its opener wanted them.
import { isSluiceError } from '../base/errors.ts'
import { openFileSync } from '../source/openFile.ts'
import type { ByteSource, FileDescriptor, MaybePromise, ReadOptions } from '../source/source.ts'

/** Opens its file again at the first read: with direct I/O where there is that, else buffered and dropped behind. */
export class QuietSource implements ByteSource {
  readonly size: number
  readonly id: string
  readonly kind = 'quiet'
  readonly alignment = 1
  readonly descriptor?: FileDescriptor
  readonly #inner: ByteSource
  #own: ByteSource | undefined

  constructor(inner: ByteSource) {
    this.size = inner.size
    this.id = inner.id
    this.#inner = inner
    if (inner.descriptor !== undefined) this.descriptor = inner.descriptor
  }

  read(offset: number, length: number, options?: ReadOptions): MaybePromise<Uint8Array> {
    if (this.descriptor === undefined) return this.#inner.read(offset, length, options)
    this.#own ??= reopen(this.descriptor)
    return this.#own.read(offset, length, options)
  }

  /** Closes what it opened itself. */
  async close(): Promise<void> {
    const own = this.#own
    this.#own = undefined
    await own?.close()
  }
}

function reopen(descriptor: FileDescriptor): ByteSource {
  try {
    return openFileSync({ ...descriptor, mode: 'direct', dropBehind: false })
  } catch (err) {
    if (!isSluiceError(err, 'SOURCE_MODE')) throw err
    return openFileSync({ ...descriptor, mode: 'pread', dropBehind: true })
  }
}
