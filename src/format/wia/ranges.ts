// Whether tensors and shards fit together: ranges inside shards, aligned, disjoint; pages numbered in storage order (FORMAT §4, §6).
import { PANEL_ROWS } from '../../quant/scheme.ts'
import * as fmt from './layout.ts'
import type { PagesRecord, ShardRecord } from './manifest.ts'
import { invalid } from './refuse.ts'
import type { StoredRange, TensorRecord } from './tensorfield.ts'

/** Tensors that have ranges, sorted by where their first byte lies. */
export function storageOrder(records: Iterable<TensorRecord>): TensorRecord[] {
  const stored: TensorRecord[] = []
  for (const r of records) if (r.ranges.length > 0) stored.push(r)
  return stored.sort((a, b) => compareRanges(a.ranges[0]!, b.ranges[0]!))
}

function compareRanges(a: StoredRange, b: StoredRange): number {
  return a.source - b.source || a.offset - b.offset
}

/** Every range inside its shard and aligned; no two overlap. */
export function checkRanges(ordered: readonly TensorRecord[], shards: readonly ShardRecord[], manifest: string): void {
  const ends = shards.map(() => 0)
  const owners: (string | undefined)[] = shards.map(() => undefined)
  // Segments go into the same sweep: they come out of order only when a tensor is split.
  const split = ordered.some((r) => r.ranges.length > 1)
  const sweep = split
    ? ordered.flatMap((r) => r.ranges.map((range) => ({ r, range }))).sort((a, b) => compareRanges(a.range, b.range))
    : undefined
  const one = (r: TensorRecord, range: StoredRange): void => {
    const where = `${manifest}, tensor ${r.name}`
    const align = r.ranges.length > 1 ? fmt.PAGE_ALIGN : fmt.alignmentOf(range.length)
    if (range.offset % align !== 0)
      invalid('offset is not aligned', where, { expected: `a multiple of ${align}`, got: range.offset })
    const end = ends[range.source]!
    if (range.offset < end)
      invalid('tensors overlap', where, {
        expected: `offset ≥ ${end}, after ${owners[range.source]}`,
        got: range.offset,
      })
    ends[range.source] = range.offset + range.length
    owners[range.source] = r.name
  }
  if (sweep === undefined) for (const r of ordered) one(r, r.ranges[0]!)
  else for (const { r, range } of sweep) one(r, range)
}

/** Each range names a shard that exists and lies inside it; segments rise. Before sorting, so that a wild index cannot steer anything. */
export function checkInside(records: Iterable<TensorRecord>, shards: readonly ShardRecord[], manifest: string): void {
  for (const r of records) {
    let before: StoredRange | undefined
    for (const range of r.ranges) {
      const where = `${manifest}, tensor ${r.name}`
      const shard = shards[range.source]
      if (shard === undefined)
        invalid('tensor names a shard that is not listed', where, { expected: `< ${shards.length}`, got: range.source })
      if (range.offset > shard.bytes || range.length > shard.bytes - range.offset)
        invalid('tensor reaches past the end of its shard', where, {
          expected: `≤ ${shard.bytes} bytes of ${shard.file}`,
          got: `${range.offset} + ${range.length}`,
        })
      if (before !== undefined && compareRanges(before, range) >= 0) invalid('segments are not in rising order', where)
      before = range
    }
  }
}

/** Page numbers: all tensors or none, contiguous in storage order, pages inside segments, total as stated. */
export function checkPages(ordered: readonly TensorRecord[], pages: PagesRecord | undefined, manifest: string): void {
  let next = 0
  for (const r of ordered) {
    const where = `${manifest}, tensor ${r.name}`
    const { pageFirst, pageRows } = r
    if (pages === undefined) {
      if (pageFirst !== undefined || pageRows !== undefined)
        invalid('tensor has pages but the package has no page table', where)
      continue
    }
    if (pageFirst === undefined || pageRows === undefined) invalid('tensor has no page_first and page_rows', where)
    if (pageRows === 0 || pageRows % PANEL_ROWS !== 0)
      invalid('page_rows is not a multiple of 16', where, { got: pageRows })
    if (pageFirst !== next)
      invalid('page_first does not follow storage order', where, { expected: next, got: pageFirst })
    if (r.strides !== undefined && pageRows < r.rows) invalid('a strided tensor has more than one page', where)
    for (const range of r.ranges.slice(0, -1))
      if (range.rows % pageRows !== 0)
        invalid('a page spans two segments', where, { expected: `a multiple of ${pageRows} rows`, got: range.rows })
    next += Math.ceil(r.rows / pageRows)
  }
  if (pages !== undefined && next !== pages.count)
    invalid('page table has another number of pages', manifest, { expected: next, got: pages.count })
}

/** Aliases: to a tensor that exists and is none itself, with the same dtype and shape. */
export function checkAliases(records: ReadonlyMap<string, TensorRecord>, manifest: string): void {
  for (const r of records.values()) {
    if (r.alias === undefined) continue
    const where = `${manifest}, tensor ${r.name}`
    const target = records.get(r.alias)
    if (target === undefined) invalid('alias of a tensor that does not exist', where, { got: r.alias })
    if (target.alias !== undefined)
      invalid('alias of an alias', where, {
        got: r.alias,
        remedy: 'An alias names a stored tensor; circles cannot exist.',
      })
    if (
      target.dtype !== r.dtype ||
      target.shape.length !== r.shape.length ||
      target.shape.some((d, i) => d !== r.shape[i])
    )
      invalid('alias differs from its target', where, {
        expected: `${target.dtype} [${target.shape}]`,
        got: `${r.dtype} [${r.shape}]`,
      })
  }
}
