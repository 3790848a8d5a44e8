// A run of rows of a tensor as a tensor of its own: the same bytes, fewer rows. Experts stacked along axis 0, and projections stored as one
// matrix (query, key and value; gate and up).
import { SluiceError } from '../base/errors.ts'
import { encodedBytes } from '../quant/codec.ts'
import { PANEL_ROWS } from '../quant/scheme.ts'
import type { Segment, TensorEntry } from './reader.ts'

/** Rows [start, end) of a matrix. */
export interface RowRange {
  readonly start: number
  readonly end: number
}

/**
 * Part `part` of `entry` [parts, …], or rows of a matrix [rows, cols]. Throws TENSOR_RANGE; NOT_IMPLEMENTED for panels whose borders the
 * part does not share.
 */
export function partOf(entry: TensorEntry, part: number | RowRange): TensorEntry {
  return typeof part === 'number' ? stackedPart(entry, part) : matrixRows(entry, part)
}

function stackedPart(entry: TensorEntry, index: number): TensorEntry {
  const parts = entry.shape[0] ?? 0
  if (entry.shape.length < 2 || !(index < parts))
    throw new SluiceError('TENSOR_RANGE', {
      what: 'tensor has no such part',
      where: entry.name,
      expected: `0 … ${parts - 1}`,
      got: index,
    })
  const rows = entry.rows / parts
  return rowsOf(entry, `${entry.name}#${index}`, entry.shape.slice(1), index * rows, rows)
}

function matrixRows(entry: TensorEntry, range: RowRange): TensorEntry {
  const { start, end } = range
  const [rows, cols] = entry.shape
  if (entry.shape.length !== 2 || rows === undefined || cols === undefined || !(start < end && end <= rows))
    throw new SluiceError('TENSOR_RANGE', {
      what: 'tensor has no such rows',
      where: entry.name,
      expected: `rows of a matrix [${entry.shape.join(', ')}]`,
      got: `[${start}, ${end})`,
    })
  return rowsOf(entry, `${entry.name}[${start}:${end}]`, [end - start, cols], start, end - start)
}

function rowsOf(entry: TensorEntry, name: string, shape: readonly number[], first: number, rows: number): TensorEntry {
  // The last panel of a tensor may be padded, so a part that ends with the tensor need not end with a full panel.
  const whole = (row: number) => row % PANEL_ROWS === 0
  if (entry.encoding.kind === 'panel' && !(whole(first) && (whole(rows) || first + rows === entry.rows)))
    throw new SluiceError('NOT_IMPLEMENTED', {
      what: 'parts that begin or end inside a row panel are not implemented',
      where: name,
      expected: `multiples of ${PANEL_ROWS} rows`,
      got: `[${first}, ${first + rows})`,
    })
  if (entry.strides !== undefined || entry.linear !== undefined)
    throw new SluiceError('NOT_IMPLEMENTED', {
      what: 'parts of a strided or linearly quantized tensor are not implemented',
      where: name,
    })
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
    name,
    shape,
    dtype: entry.dtype,
    encoding: entry.encoding,
    rows,
    cols: entry.cols,
    byteLength: encodedBytes(entry.encoding, rows, entry.cols),
    segments,
  }
}
