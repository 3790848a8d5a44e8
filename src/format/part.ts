// A part of a tensor stacked along axis 0 (experts in one tensor) as a tensor of its own: the same bytes, fewer rows.
import { SluiceError } from '../base/errors.ts'
import { encodedBytes } from '../quant/codec.ts'
import { PANEL_ROWS } from '../quant/scheme.ts'
import type { Segment, TensorEntry } from './reader.ts'

/** Part `index` of `entry` [parts, …]. Throws TENSOR_RANGE; NOT_IMPLEMENTED for panels whose borders the part does not share. */
export function partOf(entry: TensorEntry, index: number): TensorEntry {
  const parts = entry.shape[0] ?? 0
  if (entry.shape.length < 2 || !(index < parts))
    throw new SluiceError('TENSOR_RANGE', {
      what: 'tensor has no such part',
      where: entry.name,
      expected: `0 … ${parts - 1}`,
      got: index,
    })
  const rows = entry.rows / parts
  if (entry.encoding.kind === 'panel' && rows % PANEL_ROWS !== 0)
    throw new SluiceError('NOT_IMPLEMENTED', {
      what: 'parts that end inside a row panel are not implemented',
      where: entry.name,
    })
  const first = index * rows
  const segments: Segment[] = []
  for (const s of entry.segments) {
    const from = Math.max(first, s.rowStart)
    const to = Math.min(first + rows, s.rowStart + s.rows)
    if (to <= from) continue
    const skip = encodedBytes(entry.encoding, from - s.rowStart, entry.cols)
    segments.push({
      source: s.source,
      offset: s.offset + skip,
      length: encodedBytes(entry.encoding, to - from, entry.cols),
      rowStart: from - first,
      rows: to - from,
    })
  }
  return {
    name: `${entry.name}#${index}`,
    shape: entry.shape.slice(1),
    dtype: entry.dtype,
    encoding: entry.encoding,
    rows,
    cols: entry.cols,
    byteLength: encodedBytes(entry.encoding, rows, entry.cols),
    segments,
  }
}
