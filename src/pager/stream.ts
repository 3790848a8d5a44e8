// The loop of the reader: pages in plan order, several reads in flight, each straight into the place it is computed from. It runs in
// the reader thread for files, and on the main thread for sources that only exist there; it waits for freed pages without blocking.
//
// Order of a load: read → check SHA-256 (first touch) → byte order → repack → publish. A page is published once, when all of that is done.
// Ring slots are taken in plan order and given back in the same order, once all compute threads released their page. A page is
// never read again before its current instance is released.
import { ModelFormatError, SluiceError } from '../base/errors.ts'
import type { Page } from '../memory/memory.ts'
import type { ByteSource } from '../source/source.ts'
import { CONTROL, PINNED, type SharedPages } from './pager.ts'
import { isDecoded, isRepacked, type MatrixPages, pageExtent } from './pages.ts'
import { BLOCK_ALIGNMENT, type PlacedRead, placeOf, type SourceShape, stageOf } from './place.ts'
import { createRing } from './ring.ts'
import { raise } from './shared.ts'
import { decodePage, type Repack, repackPage, toLittleEndian } from './transcode.ts'

/** A matrix of the plan, with the numbers its pages have. */
export interface StreamMatrix extends MatrixPages {
  readonly firstPage: number
  /** Its pages have checksums. */
  readonly hashed: boolean
}

/** Words of `counters`, since open. */
export const COUNTER = { bytesRead: 0, reads: 1, pagesVerified: 2 } as const

/** Plain data and shared memory: can be posted. */
export interface StreamInput {
  readonly shared: SharedPages
  /** In plan order. */
  readonly matrices: readonly StreamMatrix[]
  /** By source index, as the planner saw them. */
  readonly sources: readonly SourceShape[]
  readonly memories: readonly WebAssembly.Memory[]
  /** The ring; 0 bytes when nothing is streamed. */
  readonly ring: Page
  /** The staging area, in the arena of the ring. */
  readonly stage: Page
  readonly stageSlotBytes: number
  /** Reads in flight. */
  readonly reads: number
  /** SHA-256 of page i at 32·i; empty: nothing is checked. */
  readonly hashes: Uint8Array
  readonly counters: BigInt64Array<SharedArrayBuffer>
}

export interface StreamHooks {
  /** Present when a matrix is repacked. */
  readonly repack?: Repack
  sha256(bytes: Uint8Array): Uint8Array
  onError(error: unknown): void
  /** Present when somebody listens: a page came. */
  onPage?(page: PageNews): void
}

/** A page that came, as the reader tells it. */
export interface PageNews {
  readonly tensor: string
  /** Number of the page in its tensor. */
  readonly page: number
  /** For which pass. */
  readonly pass: number
  readonly pinned: boolean
  /** Bytes read, with the blocks around them. */
  readonly bytes: number
  /** From asking to having it in place, waiting for the disk included. */
  readonly ms: number
}

export interface Stream {
  /** Begins with pass 1. */
  start(): void
  /** Drops what is in the ring and begins again with the first streamed page, for `pass`. Pinned pages stay. Clears abort and failed. */
  reset(pass: number): Promise<void>
  /** Ends after the reads in flight. A second call does nothing. */
  stop(): Promise<void>
}

/** `sources` by index: those that pages lie in. */
export function createStream(input: StreamInput, sources: ReadonlyMap<number, ByteSource>, hooks: StreamHooks): Stream {
  const { shared, matrices, ring: ringPage, stage, counters, hashes } = input
  const { state, arena, address, released, control, streamed, group, choice } = shared
  const pages = state.length
  const ring = createRing(ringPage.bytes)
  const stageSlots = Array.from(
    { length: input.stageSlotBytes === 0 ? 0 : Math.floor(stage.bytes / input.stageSlotBytes) },
    (_, i) => stage.address + i * input.stageSlotBytes,
  )
  const matrixOf = indexMatrices(matrices, pages)
  const loaded = new Uint8Array(pages) // 1: pinned page is there
  const issued = new Uint8Array(pages) // 1: pinned page is there or on its way
  const busy = new Uint8Array(pages) // 1: an instance is being read or not yet released
  const verified = new Uint8Array(pages)
  const active = new Set<Promise<void>>()
  /** Pages in the ring, oldest first, from `oldest` on. */
  let queue: number[] = []
  let oldest = 0
  let order = new Int32Array(0)
  let at = 0
  let pass = 1
  /** Grows with every reset and stop: loads that began before are no longer news, whether they come or fail. */
  let generation = 0
  let running = false
  let stopped = false
  let failed = false
  let turn: Promise<void> = Promise.resolve()

  /** Pages of a pass that may have to be read: all streamed ones, and pinned ones that are not there or on their way. */
  function pagesToRead(): Int32Array<ArrayBuffer> {
    const list: number[] = []
    for (let p = 0; p < pages; p++) if (streamed[p] === 1 || issued[p] === 0) list.push(p)
    return Int32Array.from(list)
  }

  /** Is the page of a group needed in this pass? undefined: not decided yet. */
  function needed(page: number): boolean | undefined {
    const g = group[page]!
    if (g < 0) return true
    const c = Atomics.load(choice, g)
    // Compute threads that have all they need run ahead of us: what they chose since then means that this pass did without the page.
    return c === pass ? true : Math.abs(c) >= pass ? false : undefined
  }

  function pump(): void {
    while (running && !failed && active.size < input.reads) {
      if (at === order.length) {
        order = pagesToRead()
        at = 0
        if (order.length === 0) return
        pass++
      }
      const page = order[at]!
      const wanted = needed(page)
      if (wanted === undefined) return // the choice wakes us
      if (!wanted) {
        at++
        continue
      }
      const { matrix, local } = matrixOf(page)
      const staged = isRepacked(matrix.transcode)
      if (staged && stageSlots.length === 0) return // all in use: the next load to end gives one back
      let base = 0
      if (streamed[page] === 1) {
        if (busy[page] === 1) return
        const slot = ring.take(placeOf(matrix, local, input.sources, false).bytes)
        if (slot < 0) return
        base = ringPage.address + slot
        busy[page] = 1
        queue.push(page)
      } else issued[page] = 1
      at++
      const born = generation
      const task: Promise<void> = load(page, pass, base, staged ? stageSlots.pop()! : -1)
        .catch((error: unknown) => {
          if (born === generation) fail(error) // else the page is read again
        })
        .finally(() => {
          active.delete(task)
          pump()
        })
      active.add(task)
    }
  }

  /** `ringAt`: address of the ring slot of a streamed page; `slot`: address of a staging slot, or -1. */
  async function load(page: number, forPass: number, ringAt: number, slot: number): Promise<void> {
    const started = performance.now()
    try {
      const { matrix, local } = matrixOf(page)
      const pinned = streamed[page] === 0
      const where = pinned ? arena[page]! : ringPage.arena
      const extent = pageExtent(matrix, local)
      const staged = slot >= 0
      const stageAt = stageOf(matrix, local, input.sources)
      const placed = staged ? stageAt : placeOf(matrix, local, input.sources, pinned)
      // A pinned page has its final address from the start: that of its bytes, not of the blocks around them.
      const base = pinned ? address[page]! - (staged ? 0 : placed.shift) : ringAt
      const target = staged ? { arena: stage.arena, address: slot } : { arena: where, address: base }
      for (const read of placed.reads) await readInto(read, target)
      const stored = bytesAt(target.arena, target.address + placed.shift, extent.bytes)
      if (hashes.length > 0 && matrix.hashed) verify(matrix, local, page, stored)
      toLittleEndian(stored, matrix.transcode)
      if (isDecoded(matrix.transcode))
        decodePage(matrix.transcode, stored, extent.rows, matrix.cols, bytesAt(where, base, extent.computeBytes))
      else if (staged) repackInto(matrix, extent, slot + placed.shift, slot + stageAt.panels, where, base)
      if (!pinned) {
        arena[page] = where
        address[page] = staged ? base : base + placed.shift
      }
      loaded[page] = pinned ? 1 : 0
      Atomics.store(state, page, pinned ? PINNED : forPass)
      Atomics.notify(state, page)
      hooks.onPage?.({
        tensor: matrix.name,
        page: local,
        pass: forPass,
        pinned,
        bytes: placed.reads.reduce((sum, r) => sum + r.length, 0),
        ms: performance.now() - started,
      })
    } finally {
      if (slot >= 0) stageSlots.push(slot)
    }
  }

  async function readInto(read: PlacedRead, target: { arena: number; address: number }): Promise<void> {
    const into = bytesAt(target.arena, target.address + read.at, read.length)
    const source = sources.get(read.source)
    if (source === undefined)
      throw new SluiceError('INTERNAL', { what: 'a page lies in a source that was not opened', got: read.source })
    const result = source.read(read.offset, read.length, { into })
    // A source that answers at once would keep the event loop, and with it close() and reset(), from ever having a turn.
    if (result instanceof Promise) await result
    else await new Promise((resolve) => setImmediate(resolve))
    Atomics.add(counters, COUNTER.bytesRead, BigInt(read.length))
    Atomics.add(counters, COUNTER.reads, 1n)
  }

  function verify(matrix: StreamMatrix, local: number, page: number, stored: Uint8Array): void {
    if (verified[page] === 1) return
    const expected = hashes.subarray(32 * page, 32 * page + 32)
    const got = hooks.sha256(stored)
    if (!expected.every((b, i) => b === got[i]))
      throw new ModelFormatError('CHECKSUM_MISMATCH', {
        what: 'bytes do not have the checksum the index states',
        where: `tensor ${matrix.name}, page ${local}, ${sources.get(pageExtent(matrix, local).ranges[0]!.source)!.id}`,
        expected: hex(expected),
        got: hex(got),
        remedy: 'The file is damaged or was changed: copy or convert it again.',
        details: { tensor: matrix.name, page: local, expected: hex(expected), got: hex(got) },
      })
    verified[page] = 1
    Atomics.add(counters, COUNTER.pagesVerified, 1n)
  }

  function repackInto(
    m: StreamMatrix,
    e: { rows: number; computeBytes: number },
    src: number,
    panels: number,
    where: number,
    base: number,
  ): void {
    const here = where === stage.arena
    repackPage(hooks.repack!, m.transcode, src, here ? base : panels, e.rows, m.cols)
    if (!here) bytesAt(where, base, e.computeBytes).set(bytesAt(stage.arena, panels, e.computeBytes))
  }

  // A shared memory that grew has a new buffer object; the old one would still cover these bytes.
  function bytesAt(index: number, at: number, length: number): Uint8Array {
    return new Uint8Array(input.memories[index]!.buffer, at, length)
  }

  /** Gives ring slots back: in order, as far as every thread is done. */
  function reclaim(): void {
    while (oldest < queue.length) {
      const page = queue[oldest]!
      if (Atomics.load(released, page) < shared.threads) return
      Atomics.store(released, page, 0)
      busy[page] = 0
      ring.giveBack()
      if (++oldest > 1024) {
        queue = queue.slice(oldest)
        oldest = 0
      }
    }
  }

  async function watch(): Promise<void> {
    while (!stopped) {
      const seen = Atomics.load(control, CONTROL.freed)
      if (running && !failed) {
        reclaim()
        pump()
      }
      const wait = Atomics.waitAsync(control, CONTROL.freed, seen)
      if (wait.async) await wait.value
    }
  }

  function fail(error: unknown): void {
    if (failed || stopped) return
    failed = true
    raise(shared, 'failed')
    hooks.onError(error)
  }

  /** One reset or stop after the other. */
  function inTurn(action: () => Promise<void>): Promise<void> {
    turn = turn.then(action, action)
    return turn
  }

  /** Lets the reads in flight end: until then they write into their slots. */
  async function settle(): Promise<void> {
    running = false
    generation++
    while (active.size > 0) await Promise.allSettled([...active])
  }

  function begin(first: number): void {
    order = pagesToRead()
    at = 0
    pass = first
    failed = false
    running = true
    pump()
  }

  return {
    start() {
      begin(1)
      void watch()
    },
    reset: (first) =>
      inTurn(async () => {
        if (stopped) return
        await settle()
        ring.clear()
        queue = []
        oldest = 0
        busy.fill(0)
        choice.fill(0)
        issued.set(loaded)
        for (let p = 0; p < pages; p++) {
          if (streamed[p] === 0) continue
          Atomics.store(released, p, 0)
          Atomics.store(state, p, 0)
        }
        Atomics.store(control, CONTROL.failed, 0)
        Atomics.store(control, CONTROL.abort, 0)
        begin(first)
      }),
    stop: () =>
      inTurn(async () => {
        if (stopped) return
        stopped = true
        await settle()
        Atomics.add(control, CONTROL.freed, 1)
        Atomics.notify(control, CONTROL.freed)
      }),
  }
}

/** Finds the matrix of a page by its number. */
function indexMatrices(matrices: readonly StreamMatrix[], pages: number) {
  const index = new Int32Array(pages)
  matrices.forEach((m, i) => {
    index.fill(i, m.firstPage, m.firstPage + m.pageCount)
  })
  return (page: number) => {
    const matrix = matrices[index[page]!]!
    return { matrix, local: page - matrix.firstPage }
  }
}

function hex(bytes: Uint8Array): string {
  return Array.from(bytes, (b) => b.toString(16).padStart(2, '0')).join('')
}

/** Ring and staging area begin at multiples of this. */
export const AREA_ALIGNMENT = BLOCK_ALIGNMENT
