// Where a page goes and how it is read there. Pure; the planner and the reader must agree on it.
//
// Reads of a source with an alignment (O_DIRECT) go in whole blocks, so a page needs room for the blocks around it and its bytes
// begin at `shift`. Pinned pages below EXACT_BYTES are not given that room: their few blocks are bounced by the source once, instead
// of wasting two blocks for each of them for ever.
import { roundUp } from '../base/shape.ts'
import { alignedRange, isDecoded, isRepacked, type MatrixPages, type PageRange, pageExtent } from './pages.ts'
import type { PageSize } from './residency.ts'

/** Slots begin at multiples of this, at least. */
export const PLACE_ALIGNMENT = 64
/** Staging slots, the ring and places for whole blocks begin at multiples of this. */
export const BLOCK_ALIGNMENT = 4096
const EXACT_BYTES = 256 * 1024

/** What the placing needs to know of a source. */
export interface SourceShape {
  readonly size: number
  readonly alignment: number
}

export interface PlacedRead extends PageRange {
  /** Where the read begins, counted from the start of the slot. */
  readonly at: number
}

export interface Placement {
  /** Bytes of the slot, and what its address must be a multiple of. */
  readonly bytes: number
  readonly alignment: number
  /** The page's stored bytes begin here, counted from the start of the slot. */
  readonly shift: number
  readonly reads: readonly PlacedRead[]
}

/** Reads of a page's stored bytes into a slot: one aligned read where that saves the source a copy, else its ranges one by one. */
export function placeReads(ranges: readonly PageRange[], sources: readonly SourceShape[], exact: boolean): Placement {
  const first = ranges[0]!
  const { alignment, size } = sources[first.source]!
  if (ranges.length === 1 && alignment > 1 && !exact) {
    const r = alignedRange(first, alignment, size)
    const bytes = roundUp(r.shift + first.length, alignment)
    return { bytes, alignment: BLOCK_ALIGNMENT, shift: r.shift, reads: [{ ...r, at: 0 }] }
  }
  let at = 0
  const reads = ranges.map((r) => {
    const read = { ...r, at }
    at += r.length
    return read
  })
  return { bytes: roundUp(at, PLACE_ALIGNMENT), alignment: PLACE_ALIGNMENT, shift: 0, reads }
}

/** How a page lies in its final place. Repacked pages are written there by a kernel and never read into it. */
export function placeOf(m: MatrixPages, page: number, sources: readonly SourceShape[], pinned: boolean): Placement {
  const extent = pageExtent(m, page)
  if (isRepacked(m.transcode))
    return {
      bytes: roundUp(extent.computeBytes, PLACE_ALIGNMENT),
      alignment: PLACE_ALIGNMENT,
      shift: 0,
      reads: [],
    }
  return placeReads(extent.ranges, sources, pinned && extent.bytes < EXACT_BYTES)
}

/**
 * How a page that is repacked lies in a staging slot: stored bytes first, then room for the panels, which kernels need when the place is
 * in another arena. `bytes` is all of it.
 */
export function stageOf(m: MatrixPages, page: number, sources: readonly SourceShape[]): Placement & { panels: number } {
  const extent = pageExtent(m, page)
  const placed = placeReads(extent.ranges, sources, false)
  const panels = roundUp(placed.bytes, PLACE_ALIGNMENT)
  return { ...placed, panels, bytes: panels + (isDecoded(m.transcode) ? 0 : extent.computeBytes) }
}

/** Sizes for the residency decision. */
export function pageSize(m: MatrixPages, page: number, sources: readonly SourceShape[]): PageSize {
  const stage = isRepacked(m.transcode) ? stageOf(m, page, sources).bytes : 0
  return {
    pinned: placeOf(m, page, sources, true).bytes,
    streamed: placeOf(m, page, sources, false).bytes,
    staged: stage,
  }
}

/** Bytes asked from the sources when a page is loaded. */
export function readBytes(m: MatrixPages, page: number, sources: readonly SourceShape[], pinned: boolean): number {
  const { reads } = isRepacked(m.transcode) ? stageOf(m, page, sources) : placeOf(m, page, sources, pinned)
  return reads.reduce((sum, r) => sum + r.length, 0)
}
