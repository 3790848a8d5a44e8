// A file mapped into memory through our addon: views without a copy, copies that survive a file that shrinks.
import { constants } from 'node:os'
import { SourceError, throwIfAborted } from '../base/errors.ts'
import type { Addon, Mapping } from './addon.ts'
import type { OpenFile } from './file.ts'
import { checkRange, closedError, destination } from './range.ts'
import type { AdviseHint, ByteSource, FileDescriptor, ReadOptions } from './source.ts'

/** Views are cut from array buffers of two windows each, so that every view up to one window fits into one. Node 20 caps a buffer at 4 GiB. */
const WINDOW_BYTES = 1024 ** 3
/** Copies up to this are made at once: a turn of the thread pool costs more. */
const INLINE_BYTES = 64 * 1024
/** Between two parts of a long copy a cancel is noticed. */
const PART_BYTES = 16 * 1024 * 1024

/** Why a file cannot be mapped. */
export function mapError(path: string, why: string, cause?: unknown): SourceError {
  return new SourceError('SOURCE_MODE', {
    what: `cannot map the file: ${why}`,
    where: path,
    remedy: "Use mode 'auto' or 'pread'.",
    details: { path, mode: 'mmap' },
    cause,
  })
}

// A buffer keeps the mapping it shows alive: the mapping unmaps itself when it is collected.
const owners = new WeakMap<ArrayBuffer, Mapping>()

/** Made by openFile. Views are copy on write: writing to one changes neither the file nor kills the process, and is a mistake. */
export class MmapSource implements ByteSource {
  readonly kind = 'mmap'
  readonly alignment = 1
  readonly size: number
  readonly id: string
  readonly descriptor: FileDescriptor
  readonly dropBehind: boolean
  readonly #file: OpenFile
  readonly #addon: Addon
  /** Undefined for an empty file, which cannot be mapped. */
  readonly #mapping: Mapping | undefined
  readonly #buffers = new Map<string, ArrayBuffer>()

  /** Takes over `file`, also when it throws: SOURCE_MODE where mapping or faulting copies are refused. */
  constructor(file: OpenFile, addon: Addon, dropBehind: boolean) {
    this.#file = file
    this.#addon = addon
    this.size = file.size
    this.id = file.path
    this.dropBehind = dropBehind
    this.descriptor = file.descriptor('mmap', dropBehind)
    if (file.size === 0) return
    try {
      this.#mapping = addon.map(file.fd, 0, file.size)
    } catch (error) {
      void file.close()
      throw mapError(file.path, (error as Error).message, error)
    }
    const probed = addon.copy(this.#mapping, 0, new Uint8Array(1))
    if (probed === -constants.errno.ENOSYS || probed === -constants.errno.EPERM) {
      void this.close()
      throw mapError(file.path, 'this system has no copy that survives a fault (process_vm_readv)')
    }
  }

  read(offset: number, length: number, options?: ReadOptions): Uint8Array | Promise<Uint8Array> {
    throwIfAborted(options?.signal)
    if (length <= INLINE_BYTES) return this.readSync(offset, length, options?.into)
    checkRange(this.id, this.size, offset, length)
    return this.#readParts(offset, destination(this.id, length, options?.into), options?.signal)
  }

  async #readParts(offset: number, out: Uint8Array, signal: AbortSignal | undefined): Promise<Uint8Array> {
    this.#file.begin()
    try {
      for (let done = 0; done < out.byteLength; done += PART_BYTES) {
        throwIfAborted(signal)
        const part = out.subarray(done, Math.min(out.byteLength, done + PART_BYTES))
        this.#checkCopied(await this.#addon.copyAsync(this.#mapping!, offset + done, part), offset + done, part)
        if (this.dropBehind) this.advise(offset + done, part.byteLength, 'dontneed')
      }
      throwIfAborted(signal)
      this.#file.checkUnchanged()
      return out
    } finally {
      this.#file.end()
    }
  }

  readSync(offset: number, length: number, into?: Uint8Array): Uint8Array {
    checkRange(this.id, this.size, offset, length)
    const out = destination(this.id, length, into)
    this.#file.begin()
    try {
      if (length > 0) this.#checkCopied(this.#addon.copy(this.#mapping!, offset, out), offset, out)
      this.#file.checkUnchanged()
      if (this.dropBehind && length > INLINE_BYTES) this.advise(offset, length, 'dontneed')
      return out
    } finally {
      this.#file.end()
    }
  }

  #checkCopied(copied: number, offset: number, out: Uint8Array): void {
    if (copied === out.byteLength) return
    this.#file.checkUnchanged()
    throw new SourceError('SOURCE_IO', {
      what: 'the disk could not deliver mapped bytes',
      where: this.id,
      got: copied < 0 ? `error ${-copied}` : `${copied} of ${out.byteLength} bytes`,
      remedy: 'Check the disk (dmesg), or copy the file elsewhere and try again.',
      details: { path: this.id, offset, length: out.byteLength },
    })
  }

  /**
   * Checks that the file is what was opened, then shows its bytes. A file cut short *after* that check makes the process
   * fault when the view is touched: only read() is safe against it. The view is empty after close().
   */
  view(offset: number, length: number): Uint8Array {
    checkRange(this.id, this.size, offset, length)
    if (this.#file.closed) throw closedError(this.id)
    this.#file.checkUnchanged()
    if (length === 0) return new Uint8Array(0)
    const start = length <= WINDOW_BYTES ? Math.floor(offset / WINDOW_BYTES) * WINDOW_BYTES : offset
    const span = length <= WINDOW_BYTES ? Math.min(2 * WINDOW_BYTES, this.size - start) : length
    const key = `${start}+${span}`
    let buffer = this.#buffers.get(key)
    if (buffer === undefined) {
      try {
        buffer = this.#addon.buffer(this.#mapping!, start, span)
      } catch (error) {
        throw mapError(this.id, `no view of ${span} bytes: ${(error as Error).message}`, error)
      }
      owners.set(buffer, this.#mapping!)
      this.#buffers.set(key, buffer)
    }
    return new Uint8Array(buffer, offset - start, length)
  }

  /** 'dontneed' gives back both what this process has mapped and the page cache below it. */
  advise(offset: number, length: number, hint: AdviseHint): void {
    if (this.#file.closed || this.#mapping === undefined) return
    this.#addon.madvise(this.#mapping, offset, length, hint)
    if (hint === 'dontneed') this.#addon.fadvise(this.#file.fd, offset, length, hint)
  }

  /** Bytes of a range that are in memory, in whole pages. */
  resident(offset: number, length: number): number {
    checkRange(this.id, this.size, offset, length)
    if (this.#file.closed) throw closedError(this.id)
    return this.#mapping === undefined ? 0 : this.#addon.resident(this.#mapping, offset, length)
  }

  close(): Promise<void> {
    return this.#file.close(() => {
      this.#buffers.clear()
      if (this.#mapping !== undefined) this.#addon.unmap(this.#mapping)
    })
  }
}
