// The contract between the weight pager (main thread: plan, report), its reader thread and the compute threads.
//
// A pass goes once over all pages in plan order. Pinned pages are loaded in the first pass and stay; streamed pages come
// again in every pass through a ring. Everything a compute thread needs is in shared memory:
//
//   state[page]     Int32   pass number for which the page's bytes are in memory; PINNED once a pinned page is loaded
//   arena[page]     Int32   arena index         } written before state
//   address[page]   Uint32  byte offset there   }
//   released[page]  Int32   how many compute threads are done with the page in this pass; the reader resets it
//   group[page]     Int32   -1: needed in every pass; else the group (an expert) that the page belongs to
//   choice[group]   Int32   pass when the group is needed in that pass, -pass when it is not; written once a pass, by one thread.
//                           A larger pass than the reader's means that its own is over, and went without the group's missing pages
//   control         Int32[CONTROL_WORDS]
//
// Pass numbers start at 1 and grow by 1. After a pass the reader goes on with the next one by itself, as far as the ring has room.
//
// Rules for compute threads (client.ts keeps them):
// - Every thread releases every page exactly once a pass, in ascending order, also pages it computes nothing of. Pinned pages
//   need no release. A thread that waits for a page holds none but earlier ones that others already released or will
//   release without waiting for it.
// - `arena` and `address` of a page are read after its state was seen, and its bytes not after it was released.
// - `abort` is looked at before every page; `failed` only where a page is missing, so that a read ahead that failed does not spoil
//   the pass that is already in memory.
//
// Pages of a group: the reader stops before them until choice[group] speaks of its pass, and leaves out the groups that are not
// needed. Compute threads neither acquire nor release pages of a group that they chose not to need.
//
// After abort or failure: all compute threads leave, then WeightPager.reset(pass) with the number of the pass to begin again. The
// reader lets its reads end, forgets the ring, clears state and released of streamed pages, abort and failed, and begins with the
// first page for that pass. No thread may wait in acquire while reset runs. Also call it to skip pass numbers.
//
// Who wakes whom: the reader notifies state[page] when a page came; raise() (shared.ts) sets abort or failed and notifies every
// state word; a waiting thread looks at both words at least every 20 ms in any case. The last thread to release a page
// increments control.freed and notifies it.
//
// A tensor named twice in the plan has two sets of pages, one an occurrence, pinned or streamed independently.
import type { ComputeId } from '../kernels/kernels.ts'

export const PINNED = 0x7fffffff

/** Words of `control`. */
export const CONTROL = {
  /** Grows when a streamed page was released by all threads; the reader waits on it. */
  freed: 0,
  /** Not 0: compute threads leave waits and throw; see above. */
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
  readonly group: Int32Array<SharedArrayBuffer>
  readonly choice: Int32Array<SharedArrayBuffer>
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
  /** Says whether the group is needed in this pass. One thread, once a pass and group; announce() after the last of a layer. */
  choose(group: number, pass: number, needed: boolean): void
  /** Wakes the reader: choices were made. */
  announce(): void
  /** Nanoseconds this thread has waited in acquire so far. */
  readonly stallNs: number
}

/** What the pager keeps and has read. Bytes. */
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
  /** What reading leaves in the system's page cache: nothing; nothing, because it is dropped behind; or what was read (reclaimable, but not ours to promise). */
  readonly pageCache: 'none' | 'dropped' | 'kept'
  /** Bytes of the staging area for pages that are laid out anew. */
  readonly stageBytes: number
}

/** What would be pinned and streamed. Made without reading. */
export interface PagerPlan {
  /** Bytes of all pages as they lie in memory. */
  readonly weightBytes: number
  readonly pinnedBytes: number
  readonly pinnedPages: number
  readonly streamedPages: number
  /** Bytes read from the device in every pass but the first. */
  readonly streamedBytesPerPass: number
  /** How many of those belong to groups, and are read only when chosen. */
  readonly optionalBytesPerPass: number
  readonly ringBytes: number
  readonly stageBytes: number
  /** pinned + ring + staging + tables. */
  readonly totalBytes: number
  /** The smallest weight memory that runs this plan, and the one from which on nothing is streamed. */
  readonly requiredBytes: number
  readonly residentBytes: number
  readonly matrices: readonly { readonly name: string; readonly bytes: number; readonly pinnedBytes: number }[]
}

/** The main thread's side. */
export interface WeightPager {
  /** In plan order: matrices[i] belongs to names[i]. */
  readonly matrices: readonly PagedMatrix[]
  readonly shared: SharedPages
  /** Opens the files in the reader thread and begins with pass 1. Throws what opening throws. A second call returns the same promise. */
  start(): Promise<void>
  /** See the top of this file. Throws CLOSED, WORKER_FAILED. */
  reset(pass: number): Promise<void>
  /** Compute threads leave the pass. Then reset() when they have. */
  abort(): void
  report(): PagerReport
  plan(): PagerPlan
  /** Called once for each failure of the reader, after control.failed was set. Several listeners are called in order. */
  onError(listener: (error: Error) => void): void
  /** The failure since the last reset, if any. */
  readonly failure: Error | undefined
  /** Stops the reader thread, makes compute threads leave, and gives reservations back. Safe at any time, twice. */
  close(): Promise<void>
}
