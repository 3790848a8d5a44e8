// The contract between the weight pager (main thread: plan, report), its reader thread and the compute threads.
//
// A pass goes once over all pages in plan order. Pinned pages are loaded in the first pass and stay; streamed pages come
// again in every pass through a ring. Everything a compute thread needs is in shared memory:
//
//   state[page]     Int32   pass number for which the page's bytes are in memory; PINNED once a pinned page is loaded
//   arena[page]     Int32   arena index         } written before state
//   address[page]   Uint32  byte offset there   }
//   released[page]  Int32   how many compute threads are done with the page in this pass; the reader resets it
//   control         Int32[CONTROL_WORDS]
//
// Pass numbers start at 1 and only grow. After a pass the reader goes on with the next one by itself, as far as the ring has room.
import type { ComputeId } from '../kernels/kernels.ts'

export const PINNED = 0x7fffffff

/** Words of `control`. */
export const CONTROL = {
  /** Grows when a streamed page was released by all threads; the reader waits on it. */
  freed: 0,
  /** Not 0: compute threads leave waits and throw; see ABORT. */
  abort: 1,
  /** Reader failed: compute threads leave, the main thread has the error. */
  failed: 2,
} as const
export const CONTROL_WORDS = 16

/** Plain data: can be posted to threads. */
export interface PagedMatrix {
  readonly name: string
  readonly rows: number
  readonly cols: number
  readonly encoding: ComputeId
  readonly block: number
  readonly scaleF32: number
  readonly multiplier: number
  /** Global number of the first page; pages of a matrix follow each other. */
  readonly firstPage: number
  readonly pageCount: number
  /** Rows of each page but the last; a multiple of 16. */
  readonly rowsPerPage: number
}

/** Shared state, posted to every thread. */
export interface SharedPages {
  readonly state: Int32Array<SharedArrayBuffer>
  readonly arena: Int32Array<SharedArrayBuffer>
  readonly address: Uint32Array<SharedArrayBuffer>
  readonly released: Int32Array<SharedArrayBuffer>
  readonly control: Int32Array<SharedArrayBuffer>
  /** 1 for pages that are streamed. */
  readonly streamed: Uint8Array<SharedArrayBuffer>
  readonly threads: number
}

/** What a compute thread does with pages. Implemented in client.ts; no allocation, no messages. */
export interface PageClient {
  /** Blocks until the page's bytes for this pass are in memory. False when the pass is aborted or the reader failed. */
  acquire(page: number, pass: number): boolean
  arenaOf(page: number): number
  addressOf(page: number): number
  /** This thread is done with the page in this pass. */
  release(page: number): void
  /** Nanoseconds this thread has waited in acquire so far. */
  readonly stallNs: number
}

export interface PagerReport {
  readonly pinnedBytes: number
  readonly pinnedPages: number
  readonly streamedBytesPerPass: number
  readonly streamedPages: number
  readonly ringBytes: number
  /** Since open. */
  readonly bytesRead: number
  readonly reads: number
  readonly pagesVerified: number
  readonly ioMode: string
}
