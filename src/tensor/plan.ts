// What to read for which elements: pure plans, no bytes. A tensor is a row of units, the smallest pieces that decode by themselves:
// an element of a plain tensor, a block of a ggml row, 16 rows of a panel tensor. Units lie end to end in each segment.
import { DTYPE_BYTES } from '../base/dtype.ts'
import { ModelFormatError } from '../base/errors.ts'
import { MAX_READ_BYTES } from '../base/limits.ts'
import type { TensorEntry } from '../format/reader.ts'
import { codecOf } from '../quant/codec.ts'
import { ggmlBlock } from '../quant/ggml.ts'
import { PANEL_ROWS } from '../quant/scheme.ts'

export interface UnitSegment {
  readonly unitStart: number
  readonly units: number
  /** Index into ModelReader.sources, and bytes from its start. */
  readonly source: number
  readonly offset: number
}

/** How a tensor's stored bytes fall into units. Unit u holds elements [u·unitElements, (u+1)·unitElements), row-major. */
export interface UnitLayout {
  readonly unitElements: number
  readonly unitBytes: number
  readonly units: number
  readonly segments: readonly UnitSegment[]
}

export interface ReadRange {
  readonly source: number
  readonly offset: number
  readonly length: number
}

/** One read, and which parts of which ranges it answers. */
export interface MergedRead<T extends ReadRange> extends ReadRange {
  readonly parts: readonly {
    readonly range: T
    /** Bytes from the start of the range, from the start of the read, and how many. */
    readonly from: number
    readonly at: number
    readonly length: number
  }[]
}

/** True when elements do not follow each other row-major: then units are elements in storage order, and strides say which is which. */
export function isStrided(entry: TensorEntry): boolean {
  return entry.strides !== undefined || entry.layout === 'channels-last'
}

function unitOf(entry: TensorEntry): { unitElements: number; unitBytes: number } {
  const e = entry.encoding
  switch (e.kind) {
    case 'plain':
      return { unitElements: 1, unitBytes: DTYPE_BYTES[e.dtype] }
    case 'ggml': {
      const { columns, bytes } = ggmlBlock(e.type)
      return { unitElements: columns, unitBytes: bytes }
    }
    case 'opaque':
      return { unitElements: e.block, unitBytes: e.blockBytes }
    case 'panel':
      return { unitElements: PANEL_ROWS * entry.cols, unitBytes: codecOf(e).byteLength(PANEL_ROWS, entry.cols) }
  }
}

/** Throws FORMAT_INVALID when the segments are not the bytes of the rows. */
export function unitLayout(entry: TensorEntry): UnitLayout {
  const unit = unitOf(entry)
  const strided = isStrided(entry)
  const segments: UnitSegment[] = []
  let row = 0
  let unitStart = 0
  for (const s of entry.segments) {
    const elements = s.rows * entry.cols
    const units = strided
      ? s.length / unit.unitBytes
      : unit.unitElements === 0
        ? 0
        : Math.ceil(elements / unit.unitElements)
    const whole = s.rowStart === row && Number.isSafeInteger(units) && units * unit.unitBytes === s.length
    // Units may not lie across two segments: only the last segment may end inside one.
    const aligned = strided || unitStart * unit.unitElements === s.rowStart * entry.cols
    if (!whole || !aligned || (strided && entry.segments.length !== 1))
      throw new ModelFormatError('FORMAT_INVALID', {
        what: 'segment has another length than its rows',
        where: `tensor ${entry.name}`,
        expected: `row ${row}, ${units * unit.unitBytes} bytes`,
        got: `row ${s.rowStart}, ${s.length} bytes`,
        details: { tensor: entry.name },
      })
    segments.push({ unitStart, units, source: s.source, offset: s.offset })
    row += s.rows
    unitStart += units
  }
  if (row !== entry.rows && entry.byteLength > 0)
    throw new ModelFormatError('FORMAT_INVALID', {
      what: 'segments do not cover the tensor',
      where: `tensor ${entry.name}`,
      expected: `${entry.rows} rows`,
      got: row,
      details: { tensor: entry.name },
    })
  return { ...unit, units: unitStart, segments }
}

/** Where units [from, to) lie: one range a segment, in order. */
export function planUnits(layout: UnitLayout, from: number, to: number): ReadRange[] {
  const ranges: ReadRange[] = []
  // Segments are few (a tensor over shards), and found by halving where they are not.
  for (let i = firstSegment(layout, from); i < layout.segments.length; i++) {
    const s = layout.segments[i]!
    const a = Math.max(from, s.unitStart)
    const b = Math.min(to, s.unitStart + s.units)
    if (s.unitStart >= to) break
    if (a < b)
      ranges.push({
        source: s.source,
        offset: s.offset + (a - s.unitStart) * layout.unitBytes,
        length: (b - a) * layout.unitBytes,
      })
  }
  return ranges
}

function firstSegment(layout: UnitLayout, unit: number): number {
  let low = 0
  let high = layout.segments.length
  while (low < high) {
    const middle = Math.floor((low + high) / 2)
    const s = layout.segments[middle]!
    if (s.unitStart + s.units <= unit) low = middle + 1
    else high = middle
  }
  return low
}

export interface MergeOptions {
  /** Ranges at most this far apart are read together. Default 4096: one page of the file system. */
  maxGapBytes?: number
  /** Longest read; longer ranges are split. A multiple of 8. Default and largest: 1 GiB. */
  maxReadBytes?: number
}

/** Sorts ranges by place and merges them into reads. Ranges may overlap and repeat; empty ones need no read. */
export function mergeReads<T extends ReadRange>(ranges: readonly T[], options: MergeOptions = {}): MergedRead<T>[] {
  const { maxGapBytes = 4096 } = options
  const most = Math.min(MAX_READ_BYTES, options.maxReadBytes ?? MAX_READ_BYTES)
  const pieces = ranges
    .flatMap((range) => split(range, most))
    .sort((a, b) => a.range.source - b.range.source || a.offset - b.offset)
  const reads: { source: number; offset: number; length: number; parts: MergedRead<T>['parts'][number][] }[] = []
  for (const { range, from, offset, length } of pieces) {
    const last = reads.at(-1)
    const end = offset + length
    if (
      last !== undefined &&
      last.source === range.source &&
      offset - (last.offset + last.length) <= maxGapBytes &&
      Math.max(end - last.offset, last.length) <= most
    ) {
      last.length = Math.max(last.length, end - last.offset)
      last.parts.push({ range, from, at: offset - last.offset, length })
    } else reads.push({ source: range.source, offset, length, parts: [{ range, from, at: 0, length }] })
  }
  return reads
}

function split<T extends ReadRange>(
  range: T,
  most: number,
): { range: T; from: number; offset: number; length: number }[] {
  const out = []
  for (let from = 0; from < range.length; from += most)
    out.push({ range, from, offset: range.offset + from, length: Math.min(most, range.length - from) })
  return out
}
