// The contract of everything that has bytes. Implementations and wrappers (cached, coalesced, limited) are siblings of this file.

export type MaybePromise<T> = T | Promise<T>

/** How a file is read. `direct` is O_DIRECT: no page cache is left behind. */
export type IoMode = 'mmap' | 'pread' | 'direct'

/** Options of one read. */
export interface ReadOptions {
  signal?: AbortSignal
  /** Read into this instead of a new buffer; must hold `length` bytes. May be a view of shared memory. */
  into?: Uint8Array
}

/** What another thread needs to open the same bytes again: plain data. */
export interface FileDescriptor {
  readonly kind: 'file'
  readonly path: string
  readonly mode: IoMode
  /** Identity at open; a reader that finds another one throws SOURCE_CHANGED. */
  readonly size: number
  readonly inode: string
  readonly mtimeNs: string
  /** Bulk reads forget the page cache they filled (see openFile). */
  readonly dropBehind?: boolean
}

export type AdviseHint = 'sequential' | 'random' | 'willneed' | 'dontneed'

/** Anything that has bytes: a file, a mapping, memory, a Blob. */
export interface ByteSource {
  /** Bytes. */
  readonly size: number
  /** Names the source in messages and cache keys: a path or URL. */
  readonly id: string
  /** What really reads: 'memory', an IoMode, 'mmap-io', or a wrapper's name. */
  readonly kind: string
  /** Reads whose offset, length and buffer address are multiples of this need no copy (1, or 4096 for O_DIRECT). */
  readonly alignment: number
  /** Present when another thread can open the same bytes. */
  readonly descriptor?: FileDescriptor
  /**
   * Exactly `length` bytes from `offset`. Loops over short reads. Returns `into` (or its first `length` bytes) when given.
   * Throws SOURCE_RANGE, SOURCE_IO, SOURCE_CHANGED, SOURCE_CLOSED, ABORTED.
   */
  read(offset: number, length: number, options?: ReadOptions): MaybePromise<Uint8Array>
  /** The same, blocking: for worker threads, where a wait is cheaper than a turn of the event loop. Files and memory have it. */
  readSync?(offset: number, length: number, into?: Uint8Array): Uint8Array
  /** The bytes without a copy, where the source can (memory, mapping). Valid until close(). */
  view?(offset: number, length: number): Uint8Array
  /** Tells the operating system what will be read or can be forgotten. Never fails. */
  advise?(offset: number, length: number, hint: AdviseHint): void
  close(): MaybePromise<void>
}
