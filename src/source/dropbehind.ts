// Drop-behind: what was read is forgotten by the page cache, which a memory cgroup charges to us.
import { roundDown, roundUp } from '../base/shape.ts'
import type { Addon } from './addon.ts'
import type { OpenFile } from './file.ts'

/** Reads from here on are bulk and dropped at once. */
const BULK_BYTES = 64 * 1024
/** Smaller reads are dropped together once they add up to this much: rows read again soon stay warm for a while. */
const SMALL_BYTES = 4 * 1024 * 1024

/** Forgets the page cache of one file, behind its reads. */
export class DropBehind {
  readonly #addon: Addon
  readonly #file: OpenFile
  #small = 0

  constructor(addon: Addon, file: OpenFile) {
    this.#addon = addon
    this.#file = file
    // Read-ahead would fill pages that nobody asked for and nobody drops.
    addon.fadvise(file.fd, 0, file.size, 'random')
  }

  /** A read of [offset, offset + length) is complete. */
  after(offset: number, length: number): void {
    if (this.#file.closed) return
    if (length < BULK_BYTES) {
      this.#small += length
      if (this.#small < SMALL_BYTES) return
      this.#small = 0
      this.#addon.fadvise(this.#file.fd, 0, this.#file.size, 'dontneed')
      return
    }
    // The system drops whole pages only. A page at the edge may belong to the next read too: reading 4 KiB twice costs less than keeping it.
    const page = this.#addon.pageSize
    const start = roundDown(offset, page)
    this.#addon.fadvise(this.#file.fd, start, roundUp(offset + length, page) - start, 'dontneed')
  }
}
