// A checked record of the index as the TensorEntry that the rest of the package sees.
import type { PageTable, Segment, TensorEntry } from '../reader.ts'
import type { TensorRecord } from './tensorfield.ts'

type Writable<T> = { -readonly [K in keyof T]: T[K] }

/** `hashed` false leaves out what nobody is to check. */
export function tensorEntry(
  r: TensorRecord,
  segments: readonly Segment[],
  pages: PageTable | undefined,
  hashed: boolean,
): TensorEntry {
  const entry: Writable<TensorEntry> = {
    name: r.name,
    shape: r.shape,
    // LINEAR tensors store integers and mean real numbers.
    dtype: r.linear === undefined ? r.dtype : 'float32',
    encoding: r.encoding,
    rows: r.rows,
    cols: r.cols,
    byteLength: r.length,
    segments,
    layout: r.layout,
  }
  if (r.strides !== undefined) entry.strides = r.strides
  if (r.linear !== undefined) entry.linear = r.linear
  if (pages !== undefined) entry.pages = pages
  if (hashed) entry.checksum = r.checksum
  return entry
}
