// The weight pager: plans, reserves, places, and runs the reader. The contract and its rules are in pager.ts.
import diagnostics from 'node:diagnostics_channel'
import { SluiceError, ValidationError } from '../base/errors.ts'
import { CHANNELS } from '../base/events.ts'
import type { ModelReader } from '../format/reader.ts'
import type { ArenaSet, Budget, Page, Reservation } from '../memory/memory.ts'
import type { IoMode } from '../source/source.ts'
import { chooseIo, type PagerIo } from './io.ts'
import type { PagerPlan, PagerReport, SharedPages, WeightPager } from './pager.ts'
import { isRepacked } from './pages.ts'
import { placeOf } from './place.ts'
import { type PagePlan, planPages, resolveTensor } from './plan.ts'
import { type RepackKernels, repackFor } from './repack.ts'
import { createShared, raise } from './shared.ts'
import { AREA_ALIGNMENT, COUNTER, type StreamInput } from './stream.ts'
import { type ReaderHandle, startReaderHere, startReaderThread } from './thread.ts'

export interface PagerOptions {
  readonly reader: ModelReader
  /** Tensor names in plan order. A name that comes twice has pages twice. Aliases are resolved. */
  readonly names: readonly string[]
  /** Group of each name (an expert), or -1: groups are read only in passes that choose them. Absent: every pass needs all. */
  readonly groups?: readonly number[]
  /** Allocate what must be in arena 0 before this. */
  readonly arenas: ArenaSet
  readonly budget: Budget
  /** Everything the pager may hold: pinned pages, ring, staging area, tables. */
  readonly weightBytes: number
  readonly ringBytes?: number
  /** Default 'auto'. */
  readonly ioMode?: 'auto' | IoMode
  /** `lazy` checks SHA-256 of a page when it is first read, where the format has one. Default 'lazy'. */
  readonly verify?: 'lazy' | 'off'
  /** Compute threads. */
  readonly threads: number
  /** Kernels that lay GGUF blocks out anew, from selectKernels(). Default scalar. The reader is kernel thread READER_KERNEL_THREAD. */
  readonly kernels?: RepackKernels
  /** Reads in flight. Default 4, which is what the thread pool of Node serves at once. */
  readonly reads?: number
  /** Page size where the format does not fix it. */
  readonly pageBytes?: number
}

const READS = 4
const SCALAR: RepackKernels = { set: 'scalar', module: null }

/**
 * Plans and places the pages; start() begins to read. Throws what planPages throws, SOURCE_MODE, BUDGET_EXCEEDED when the budget
 * has less left than weightBytes asks for.
 */
export async function createPager(options: PagerOptions): Promise<WeightPager> {
  const { plan, io } = planPager(options)
  const { arenas, budget, threads } = options
  if (!Number.isSafeInteger(threads) || threads < 1)
    throw new ValidationError('REQUEST_INVALID', { what: 'a pager serves at least one compute thread', got: threads })
  const reservations = reserve(budget, plan)
  try {
    const shared = createShared(plan.residency.pinned, threads, plan.group)
    const areas = place(arenas, plan, io, shared)
    return createHandle(options, plan, io, shared, areas, reservations)
  } catch (error) {
    for (const r of reservations) r.release()
    throw error
  }
}

/** The plan alone: nothing is read, reserved or allocated. */
export function planPager(options: Omit<PagerOptions, 'arenas' | 'budget' | 'threads'>): {
  plan: PagePlan
  io: PagerIo
} {
  const { reader, names } = options
  const used = new Set<number>()
  for (const name of names) for (const s of resolveTensor(reader, name).segments) used.add(s.source)
  const io = chooseIo(reader.sources, used, options.ioMode ?? 'auto')
  const reads = options.reads ?? READS
  if (!Number.isSafeInteger(reads) || reads < 1 || reads > 64)
    throw new ValidationError('REQUEST_INVALID', { what: 'reads in flight are 1 to 64', got: reads })
  const plan = planPages({
    reader,
    names,
    sources: io.shapes,
    weightBytes: options.weightBytes,
    reads,
    ...(options.groups === undefined ? {} : { groups: options.groups }),
    ...(options.ringBytes === undefined ? {} : { ringBytes: options.ringBytes }),
    ...(options.pageBytes === undefined ? {} : { pageBytes: options.pageBytes }),
  })
  return { plan, io }
}

function reserve(budget: Budget, plan: PagePlan): Reservation[] {
  const { summary, tableBytes } = plan
  const made: Reservation[] = []
  try {
    made.push(budget.reserve(summary.pinnedBytes + tableBytes, 'weights', 'pinned weight pages'))
    made.push(budget.reserve(summary.ringBytes, 'ring', 'ring of streamed weight pages'))
    made.push(budget.reserve(summary.stageBytes, 'io', 'staging area of weight pages'))
  } catch (error) {
    for (const r of made) r.release()
    throw error
  }
  return made
}

interface Areas {
  readonly ring: Page
  readonly stage: Page
}

/** Gives every pinned page its place, ring and staging area theirs. */
function place(arenas: ArenaSet, plan: PagePlan, io: PagerIo, shared: SharedPages): Areas {
  const { residency, summary } = plan
  const area = arenas.alloc(summary.ringBytes + summary.stageBytes, AREA_ALIGNMENT)
  const arena = arenas.arenas[area.arena]!
  arena.reserve(Math.min(arena.free, summary.pinnedBytes))
  // Places of whole blocks first, so that aligning them wastes nothing between small ones.
  for (const blocks of [true, false])
    for (const m of plan.matrices)
      for (let i = 0; i < m.pageCount; i++) {
        const page = m.firstPage + i
        if (residency.pinned[page] !== 1) continue
        const p = placeOf(m, i, io.shapes, true)
        if ((p.alignment === AREA_ALIGNMENT) !== blocks) continue
        const at = arenas.alloc(p.bytes, p.alignment)
        shared.arena[page] = at.arena
        shared.address[page] = at.address + p.shift
      }
  return {
    ring: { arena: area.arena, address: area.address, bytes: summary.ringBytes },
    stage: { arena: area.arena, address: area.address + summary.ringBytes, bytes: summary.stageBytes },
  }
}

/** Checksums of all pages, side by side. Empty when none is to be checked. */
async function loadHashes(plan: PagePlan, verify: 'lazy' | 'off'): Promise<Uint8Array<SharedArrayBuffer>> {
  if (verify === 'off' || !plan.matrices.some((m) => m.hashed)) return new Uint8Array(new SharedArrayBuffer(0))
  const hashes = new Uint8Array(new SharedArrayBuffer(32 * plan.pageCount))
  for (const [k, m] of plan.matrices.entries()) {
    const table = plan.entries[k]!.pages
    if (table === undefined) continue
    for (let i = 0; i < m.pageCount; i++) {
      const got = table.sha256(i)
      const hash = got instanceof Promise ? await got : got
      if (hash.length !== 32)
        throw new SluiceError('INTERNAL', { what: 'a page checksum is 32 bytes', where: m.name, got: hash.length })
      hashes.set(hash, 32 * (m.firstPage + i))
    }
  }
  return hashes
}

function createHandle(
  options: PagerOptions,
  plan: PagePlan,
  io: PagerIo,
  shared: SharedPages,
  areas: Areas,
  reservations: readonly Reservation[],
): WeightPager {
  const counters = new BigInt64Array(new SharedArrayBuffer(8 * Object.keys(COUNTER).length))
  const listeners: ((error: Error) => void)[] = []
  let failure: Error | undefined
  let starting: Promise<void> | undefined
  let reader: ReaderHandle | undefined
  let closing: Promise<void> | undefined

  const closedError = () => new SluiceError('CLOSED', { what: 'the pager was closed' })

  function failed(error: Error): void {
    if (closing !== undefined) return
    failure = error
    raise(shared, 'failed') // the reader did, unless it died
    for (const listener of listeners) listener(error)
  }

  async function start(): Promise<void> {
    const hashes = await loadHashes(plan, options.verify ?? 'lazy')
    const stream: StreamInput = {
      shared,
      matrices: plan.matrices,
      sources: io.shapes,
      memories: options.arenas.arenas.map((a) => a.memory),
      ...areas,
      stageSlotBytes: plan.residency.stageSlotBytes,
      reads: options.reads ?? READS,
      hashes,
      counters,
    }
    const repacks = plan.matrices.some((m) => isRepacked(m.transcode))
    const kernels = repacks ? (options.kernels ?? SCALAR) : undefined
    const memory = stream.memories[areas.stage.arena]!
    const repack = kernels === undefined || io.files !== undefined ? undefined : repackFor(kernels, memory)
    if (closing !== undefined) throw closedError()
    // Pages come from another thread, a message each: only when somebody listened before reading began. Payload: PageNews of stream.ts.
    const news = diagnostics.channel(CHANNELS.page).hasSubscribers
    reader =
      io.files === undefined
        ? startReaderHere(stream, options.reader.sources, repack, failed, news)
        : startReaderThread({ stream, files: io.files, news, ...(kernels === undefined ? {} : { kernels }) }, failed)
    await reader.started
  }

  async function close(): Promise<void> {
    raise(shared, 'abort')
    await starting?.catch(() => {}) // a start that failed has no thread to stop
    await reader?.stop()
    for (const r of reservations) r.release()
  }

  return {
    matrices: plan.paged,
    shared,
    start() {
      if (closing !== undefined) return Promise.reject(closedError())
      starting ??= start()
      return starting
    },
    async reset(pass) {
      if (!Number.isSafeInteger(pass) || pass < 1 || pass > 0x7ffffffe)
        throw new ValidationError('REQUEST_INVALID', { what: 'a pass number is 1 to 2^31 − 2', got: pass })
      if (closing !== undefined) throw closedError()
      if (starting === undefined)
        throw new ValidationError('REQUEST_INVALID', {
          what: 'the pager was not started',
          remedy: 'Call start() first.',
        })
      await starting
      await reader!.reset(pass)
      failure = undefined
    },
    abort: () => raise(shared, 'abort'),
    report(): PagerReport {
      const count = (word: keyof typeof COUNTER): number => Number(Atomics.load(counters, COUNTER[word]))
      const { pinnedBytes, pinnedPages, streamedBytesPerPass, streamedPages, ringBytes, stageBytes } = plan.summary
      return {
        pinnedBytes,
        pinnedPages,
        streamedBytesPerPass,
        streamedPages,
        ringBytes,
        stageBytes,
        bytesRead: count('bytesRead'),
        reads: count('reads'),
        pagesVerified: count('pagesVerified'),
        ioMode: io.mode,
        pageCache: io.pageCache,
      }
    },
    plan: (): PagerPlan => plan.summary,
    onError(listener) {
      listeners.push(listener)
    },
    get failure() {
      return failure
    },
    close() {
      closing ??= close()
      return closing
    },
  }
}
