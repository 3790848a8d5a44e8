// Which pages stay in memory and which are streamed. Pure arithmetic, nothing is read.
//
// A dense model touches every page once a pass in the same order, so keeping recently used pages helps nothing: the best is a fixed part that
// stays and a rest that streams through a ring. The fixed part is spread *evenly*: the same share of the bytes of every matrix, so that
// while pinned pages are computed the next streamed ones arrive, and reading never pauses.
//
// Spreading is error diffusion in plan order: a page is pinned when the bytes pinned so far, and it, stay within the wanted share of
// the bytes so far. Hence, with f = pinnable bytes / all bytes and `largest` the largest page:
//   - pinned bytes ≤ f · all bytes, and less than one largest page below it;
//   - of any run of pages (a matrix, a layer) with b bytes, the pinned ones have f·b ± largest.
import { BudgetError, SluiceError } from '../base/errors.ts'
import { roundDown, roundUp } from '../base/shape.ts'

/** Sizes of a page. */
export interface PageSize {
  /** Bytes it takes when pinned. */
  readonly pinned: number
  /** Bytes it takes in the ring: more than `pinned` where reads come in whole blocks of the device. */
  readonly streamed: number
  /** Bytes of staging area a load of it needs: 0 when it is read straight into its place. */
  readonly staged: number
}

export interface ResidencyInput {
  /** In plan order. */
  readonly pages: readonly PageSize[]
  /** 1 for pages that not every pass needs (experts): they are pinned, evenly too, from what the others leave. Absent: none. */
  readonly optional?: Uint8Array
  /** Everything the pager may hold: pinned pages, ring and staging area. */
  readonly weightBytes: number
  /** Size of the ring; otherwise chosen. */
  readonly ringBytes?: number
  /** Reads in flight at a time: as many staging slots are wanted. */
  readonly reads: number
}

export interface Residency {
  /** 1 for pages that stay, in plan order. */
  readonly pinned: Uint8Array
  readonly pinnedPages: number
  readonly pinnedBytes: number
  readonly streamedPages: number
  /** Bytes of all ring slots of a pass. */
  readonly streamedBytes: number
  /** 0 when everything is pinned. A multiple of 4096. */
  readonly ringBytes: number
  readonly stageSlots: number
  /** A multiple of 4096. */
  readonly stageSlotBytes: number
  /** pinnedBytes + ringBytes + staging area. */
  readonly totalBytes: number
  /** The smallest weightBytes that runs these pages. */
  readonly requiredBytes: number
  /** weightBytes from which on nothing is streamed. */
  readonly residentBytes: number
}

export const RING_BYTES = 32 * 1024 ** 2
/** Parts of the memory given that ring and staging area may take while it is scarce. */
const RING_SHARE = 1 / 4
const STAGE_SHARE = 1 / 8
const BLOCK = 4096

/**
 * Decides what is pinned. Throws BUDGET_TOO_SMALL with details.requiredBytes when not even a ring of two pages fits,
 * REQUEST_INVALID for a ring that could not hold two pages.
 */
export function decideResidency(input: ResidencyInput): Residency {
  const { pages, weightBytes, reads } = input
  let all = 0
  let largestStreamed = 0
  let largestStaged = 0
  for (const p of pages) {
    all += p.pinned
    largestStreamed = Math.max(largestStreamed, p.streamed)
    largestStaged = Math.max(largestStaged, p.staged)
  }
  const minRing = 2 * roundUp(largestStreamed, BLOCK)
  const slot = roundUp(largestStaged, BLOCK)
  const stage = (slots: number): number => slots * slot
  const residentBytes = all + stage(slot === 0 ? 0 : 1)
  const requiredBytes = Math.min(residentBytes, minRing + stage(slot === 0 ? 0 : 1))
  if (weightBytes < requiredBytes)
    throw new BudgetError('BUDGET_TOO_SMALL', {
      what: 'the memory for weights is below the smallest that can run this model',
      expected: `≥ ${requiredBytes} bytes`,
      got: `${weightBytes} bytes`,
      remedy: 'Give more memory, or convert the model with smaller pages or fewer bits.',
      details: { requiredBytes, weightBytes },
    })

  if (weightBytes >= residentBytes) {
    const slots = slot === 0 ? 0 : clamp(Math.floor((weightBytes - all) / slot), 1, reads)
    return finish(new Uint8Array(pages.length).fill(1), 0, slots)
  }
  const forStage = Math.min(weightBytes * STAGE_SHARE, weightBytes - minRing)
  const slots = slot === 0 ? 0 : clamp(Math.floor(forStage / slot), 1, reads)
  const ring = chooseRing(input.ringBytes, weightBytes, minRing, stage(slots))
  return finish(pinEvenly(pages, input.optional, weightBytes - ring - stage(slots)), ring, slots)

  function finish(pinned: Uint8Array, ringBytes: number, stageSlots: number): Residency {
    let pinnedPages = 0
    let pinnedBytes = 0
    let streamedBytes = 0
    pages.forEach((p, i) => {
      if (pinned[i] === 1) {
        pinnedPages++
        pinnedBytes += p.pinned
      } else streamedBytes += p.streamed
    })
    return {
      pinned,
      pinnedPages,
      pinnedBytes,
      streamedPages: pages.length - pinnedPages,
      streamedBytes,
      ringBytes,
      stageSlots,
      stageSlotBytes: slot,
      totalBytes: pinnedBytes + ringBytes + stage(stageSlots),
      requiredBytes,
      residentBytes,
    }
  }
}

function chooseRing(wanted: number | undefined, weightBytes: number, minRing: number, stageBytes: number): number {
  const room = weightBytes - stageBytes
  if (wanted === undefined) {
    const share = roundDown(Math.min(RING_BYTES, weightBytes * RING_SHARE), BLOCK)
    return Math.min(Math.max(minRing, share), roundDown(room, BLOCK))
  }
  const ring = roundUp(wanted, BLOCK)
  if (!Number.isSafeInteger(wanted) || ring < minRing)
    throw new SluiceError('REQUEST_INVALID', {
      what: 'the ring must hold the two largest pages',
      expected: `≥ ${minRing} bytes`,
      got: wanted,
    })
  if (ring > room)
    throw new BudgetError('BUDGET_TOO_SMALL', {
      what: 'the ring asked for is larger than the memory for weights',
      expected: `≤ ${room} bytes`,
      got: wanted,
      details: { requiredBytes: ring + stageBytes, weightBytes },
    })
  return ring
}

/** Pages that every pass needs first; what they leave goes to the others. */
function pinEvenly(pages: readonly PageSize[], optional: Uint8Array | undefined, pinnable: number): Uint8Array {
  const pinned = new Uint8Array(pages.length)
  const taken = spread(pages, (i) => optional?.[i] !== 1, pinnable, pinned)
  if (optional !== undefined) spread(pages, (i) => optional[i] === 1, pinnable - taken, pinned)
  return pinned
}

/** Error diffusion over the pages of one kind: see the top of this file. Returns the bytes pinned. */
function spread(
  pages: readonly PageSize[],
  isOne: (page: number) => boolean,
  pinnable: number,
  pinned: Uint8Array,
): number {
  const all = pages.reduce((sum, p, i) => sum + (isOne(i) ? p.pinned : 0), 0)
  const share = all === 0 ? 0 : Math.max(0, Math.min(1, pinnable / all))
  let seen = 0
  let taken = 0
  pages.forEach((p, i) => {
    if (!isOne(i)) return
    seen += p.pinned
    // The last page may tip over by a rounding of `share`: the sum has the last word.
    if (taken + p.pinned > share * seen || taken + p.pinned > pinnable) return
    pinned[i] = 1
    taken += p.pinned
  })
  return taken
}

function clamp(n: number, low: number, high: number): number {
  return Math.max(low, Math.min(high, n))
}
