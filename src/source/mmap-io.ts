// A file mapped by the package mmap-io, where it is installed and built. Its limits, found by running it: main thread only ("did not
// self-register" in a worker), and sizes and offsets that wrap at 2^31. Copies are not protected against a fault as our addon's are: the
// file is checked before every MiB, which leaves a window of microseconds.
import { createRequire } from 'node:module'
import { isMainThread } from 'node:worker_threads'
import { throwIfAborted } from '../base/errors.ts'
import type { OpenFile } from './file.ts'
import { mapError } from './mmap.ts'
import { checkRange, closedError, destination } from './range.ts'
import type { AdviseHint, ByteSource, ReadOptions } from './source.ts'

/** The part of mmap-io that is used. */
interface MmapIo {
  map(size: number, protection: number, flags: number, fd: number, offset: number): Buffer
  advise(buffer: Buffer, offset: number, length: number, advice: number): void
  readonly PROT_READ: number
  readonly PROT_WRITE: number
  readonly MAP_PRIVATE: number
  readonly MADV_RANDOM: number
  readonly MADV_SEQUENTIAL: number
  readonly MADV_WILLNEED: number
  readonly MADV_DONTNEED: number
  readonly PAGESIZE: number
}

const LIMIT_BYTES = 2 ** 31
const CHECK_BYTES = 1024 * 1024

/** Made by openFile with mode 'mmap-io'. Its memory is unmapped when the last view is collected, not by close(). */
export class MmapIoSource implements ByteSource {
  readonly kind = 'mmap-io'
  readonly alignment = 1
  readonly size: number
  readonly id: string
  readonly #file: OpenFile
  readonly #io: MmapIo
  #bytes: Buffer | undefined

  /** Takes over `file`, also when it throws: SOURCE_MODE in a worker, for 2 GiB or more, and where mmap-io is not installed or not built. */
  constructor(file: OpenFile) {
    this.#file = file
    this.size = file.size
    this.id = file.path
    try {
      if (!isMainThread) throw mapError(file.path, 'mmap-io works on the main thread only')
      if (file.size >= LIMIT_BYTES)
        throw mapError(file.path, `mmap-io maps less than ${LIMIT_BYTES} bytes, the file has ${file.size}`)
      this.#io = load(file.path)
      if (file.size === 0) this.#bytes = Buffer.alloc(0)
      else {
        const protection = this.#io.PROT_READ | this.#io.PROT_WRITE // private: copy on write
        this.#bytes = this.#io.map(file.size, protection, this.#io.MAP_PRIVATE, file.fd, 0)
      }
    } catch (error) {
      void file.close()
      throw error instanceof Error && 'code' in error && error.code === 'SOURCE_MODE'
        ? error
        : mapError(file.path, (error as Error).message, error)
    }
  }

  read(offset: number, length: number, options?: ReadOptions): Uint8Array {
    throwIfAborted(options?.signal)
    return this.readSync(offset, length, options?.into, options?.signal)
  }

  readSync(offset: number, length: number, into?: Uint8Array, signal?: AbortSignal): Uint8Array {
    checkRange(this.id, this.size, offset, length)
    const bytes = this.#open()
    const out = destination(this.id, length, into)
    for (let done = 0; done < length; done += CHECK_BYTES) {
      throwIfAborted(signal)
      this.#file.checkUnchanged()
      const part = Math.min(CHECK_BYTES, length - done)
      out.set(bytes.subarray(offset + done, offset + done + part), done)
    }
    this.#file.checkUnchanged()
    return out
  }

  view(offset: number, length: number): Uint8Array {
    checkRange(this.id, this.size, offset, length)
    const bytes = this.#open()
    this.#file.checkUnchanged()
    return new Uint8Array(bytes.buffer as ArrayBuffer, bytes.byteOffset + offset, length)
  }

  advise(offset: number, length: number, hint: AdviseHint): void {
    if (this.#bytes === undefined || this.size === 0) return
    const io = this.#io
    const advice = {
      sequential: io.MADV_SEQUENTIAL,
      random: io.MADV_RANDOM,
      willneed: io.MADV_WILLNEED,
      dontneed: io.MADV_DONTNEED,
    }[hint]
    const start = Math.min(Math.max(0, offset), this.size)
    const from = start - (start % io.PAGESIZE)
    try {
      io.advise(this.#bytes, from, Math.min(this.size, start + length) - from, advice)
    } catch {
      // advice is advice
    }
  }

  #open(): Buffer {
    if (this.#bytes === undefined || this.#file.closed) throw closedError(this.id)
    return this.#bytes
  }

  close(): Promise<void> {
    this.#bytes = undefined
    return this.#file.close()
  }
}

function load(path: string): MmapIo {
  try {
    return createRequire(import.meta.url)('mmap-io') as MmapIo
  } catch (cause) {
    throw mapError(path, 'the package mmap-io is not installed or was not built', cause)
  }
}
