// How a matrix is cut into pages, and where a page's bytes lie. Pure: nothing is read.
//
// A page is a run of whole rows, a multiple of 16 but for the last one: the unit of reading, checking and residency.
// - A tensor with a page table (packages) is cut exactly as the table says, because a checksum covers a page.
// - Any other is cut into pages of about the target size, all equally large but the last.
// Cuts do not look at segments: a page that lies across two shards has several ranges, read one after the other.
import { ModelFormatError } from '../base/errors.ts'
import { roundDown, roundUp } from '../base/shape.ts'
import type { Segment, TensorEntry } from '../format/reader.ts'
import { refuseOpaque } from '../quant/codec.ts'
import { EXACT_FORM, exactBytes } from '../quant/ggml-form.ts'
import { type GgmlType, PANEL_ROWS } from '../quant/scheme.ts'

/** What happens to stored bytes before kernels can use them: byte order, a repack kernel, or toExactForm for other ggml types. */
export type Transcode = 'none' | 'swap2' | 'swap4' | 'q4_0' | 'q8_0' | 'q4_0be' | 'q8_0be' | GgmlTranscode
export type GgmlTranscode = `ggml:${GgmlType}` | `ggml-be:${GgmlType}`

/** A matrix cut into pages. Plain data: can be posted. */
export interface MatrixPages {
  /** Name of the tensor that has the bytes. */
  readonly name: string
  readonly rows: number
  readonly cols: number
  readonly rowsPerPage: number
  readonly pageCount: number
  /** Rows that are stored together (16 for panels, else 1) and the bytes they take. */
  readonly unitRows: number
  readonly unitBytes: number
  /** The same in memory: decoded ggml blocks take more bytes than they are stored in. */
  readonly memoryRows: number
  readonly memoryBytes: number
  readonly segments: readonly Segment[]
  readonly transcode: Transcode
}

export interface PageRange {
  /** Index into ModelReader.sources. */
  readonly source: number
  readonly offset: number
  readonly length: number
}

export interface PageExtent {
  readonly rowStart: number
  readonly rows: number
  /** Stored bytes. */
  readonly bytes: number
  /** Bytes in the form kernels compute with. */
  readonly computeBytes: number
  /** In row order, together `bytes` long. */
  readonly ranges: readonly PageRange[]
}

/** Bytes of a page where the format does not say. */
export const PAGE_BYTES = 1024 ** 2

/** Cuts a tensor. Throws FORMAT_INVALID when its segments are not the rows of the matrix, FORMAT_UNSUPPORTED for a page table off the grid of 16 rows. */
export function cutMatrix(entry: TensorEntry, targetBytes: number = PAGE_BYTES): MatrixPages {
  const unitRows = entry.encoding.kind === 'panel' ? PANEL_ROWS : 1
  const unitBytes = checkSegments(entry, unitRows)
  const transcode = transcodeOf(entry)
  const memory = memoryUnit(entry, transcode, unitRows, unitBytes)
  const rowsPerPage =
    entry.pages === undefined
      ? chooseRows(entry.rows, Math.max(unitBytes / unitRows, memory.memoryBytes / memory.memoryRows), targetBytes)
      : tableRows(entry, entry.pages)
  return {
    name: entry.name,
    rows: entry.rows,
    cols: entry.cols,
    rowsPerPage,
    pageCount: Math.ceil(entry.rows / rowsPerPage),
    unitRows,
    unitBytes,
    ...memory,
    segments: entry.segments,
    transcode,
  }
}

/** Page `page` (from 0) of a matrix. */
export function pageExtent(m: MatrixPages, page: number): PageExtent {
  const rowStart = page * m.rowsPerPage
  const rows = Math.min(m.rowsPerPage, m.rows - rowStart)
  const ranges: PageRange[] = []
  for (const s of m.segments) {
    const from = Math.max(rowStart, s.rowStart)
    const to = Math.min(rowStart + rows, s.rowStart + s.rows)
    if (from >= to) continue
    const skipped = ((from - s.rowStart) / m.unitRows) * m.unitBytes
    ranges.push({
      source: s.source,
      offset: s.offset + skipped,
      length: Math.ceil((to - from) / m.unitRows) * m.unitBytes,
    })
  }
  const bytes = ranges.reduce((sum, r) => sum + r.length, 0)
  // Rows across two shards are stored in whole units each; in memory only the last panel is filled up.
  const computeBytes = isRepacked(m.transcode) ? Math.ceil(rows / m.memoryRows) * m.memoryBytes : bytes
  return { rowStart, rows, bytes, computeBytes, ranges }
}

/** True for what arrives in a staging area and is laid out anew. */
export function isRepacked(transcode: Transcode): boolean {
  return transcode.startsWith('q') || isDecoded(transcode)
}

/** True for what toExactForm lays out, into any memory. */
export function isDecoded(transcode: Transcode): transcode is GgmlTranscode {
  return transcode.startsWith('ggml')
}

/** A read in whole blocks of `alignment` around a range: bytes of the range begin at `shift`. `size` is that of the source. */
export function alignedRange(
  range: PageRange,
  alignment: number,
  size: number,
): PageRange & { readonly shift: number } {
  const offset = roundDown(range.offset, alignment)
  const end = Math.min(roundUp(range.offset + range.length, alignment), size)
  return { source: range.source, offset, length: end - offset, shift: range.offset - offset }
}

function transcodeOf(entry: TensorEntry): Transcode {
  const e = entry.encoding
  if (e.kind === 'panel') return 'none'
  if (e.kind === 'opaque') return refuseOpaque(e.type, entry.name)
  if (e.kind === 'ggml') {
    const kernel = e.type === 'Q4_0' ? 'q4_0' : e.type === 'Q8_0' ? 'q8_0' : undefined
    if (kernel !== undefined) return e.bigEndian === true ? `${kernel}be` : kernel
    return e.bigEndian === true ? `ggml-be:${e.type}` : `ggml:${e.type}`
  }
  return e.bigEndian !== true ? 'none' : e.dtype === 'float32' ? 'swap4' : 'swap2'
}

/** Rows that lie together in memory and the bytes they take. */
function memoryUnit(
  entry: TensorEntry,
  transcode: Transcode,
  unitRows: number,
  unitBytes: number,
): Pick<MatrixPages, 'memoryRows' | 'memoryBytes'> {
  const e = entry.encoding
  if (e.kind !== 'ggml') return { memoryRows: unitRows, memoryBytes: unitBytes }
  // Q4_0 and Q8_0 take the same bytes in panels.
  if (!isDecoded(transcode)) return { memoryRows: PANEL_ROWS, memoryBytes: PANEL_ROWS * unitBytes }
  const memoryRows = EXACT_FORM[e.type].kind === 'panel' ? PANEL_ROWS : 1
  return { memoryRows, memoryBytes: exactBytes(e.type, memoryRows, entry.cols) }
}

function chooseRows(rows: number, rowBytes: number, targetBytes: number): number {
  const wanted = Math.max(PANEL_ROWS, roundDown(targetBytes / rowBytes, PANEL_ROWS))
  return roundUp(Math.ceil(rows / Math.ceil(rows / wanted)), PANEL_ROWS)
}

function tableRows(entry: TensorEntry, table: { rowsPerPage: number; count: number }): number {
  const { rowsPerPage, count } = table
  if (!Number.isSafeInteger(rowsPerPage) || rowsPerPage < 1 || Math.ceil(entry.rows / rowsPerPage) !== count)
    throw new ModelFormatError('FORMAT_INVALID', {
      what: 'page table does not cover the tensor',
      where: entry.name,
      expected: `${entry.rows} rows`,
      got: `${count} pages of ${rowsPerPage} rows`,
      details: { tensor: entry.name },
    })
  if (count === 1) return roundUp(rowsPerPage, PANEL_ROWS)
  if (rowsPerPage % PANEL_ROWS !== 0)
    throw new ModelFormatError('FORMAT_UNSUPPORTED', {
      what: 'pages of a matrix must be multiples of 16 rows',
      where: entry.name,
      got: rowsPerPage,
      remedy: 'Convert the model again.',
      details: { tensor: entry.name },
    })
  return rowsPerPage
}

/** Bytes of a unit, after checking that segments follow each other and are as long as their rows. */
function checkSegments(entry: TensorEntry, unitRows: number): number {
  const bad = (what: string, extra: object = {}): never => {
    throw new ModelFormatError('FORMAT_INVALID', { what, where: entry.name, details: { tensor: entry.name }, ...extra })
  }
  const first = entry.segments[0] ?? bad('tensor has no bytes')
  const unitBytes = first.length / Math.ceil(first.rows / unitRows)
  if (!Number.isSafeInteger(unitBytes) || unitBytes < 1)
    bad('rows do not divide the bytes of a segment', { got: `${first.length} bytes for ${first.rows} rows` })
  let row = 0
  for (const s of entry.segments) {
    const ok = Number.isSafeInteger(s.offset) && s.offset >= 0 && Number.isSafeInteger(s.rows) && s.rows > 0
    if (!ok || s.rowStart !== row || row % unitRows !== 0)
      bad('segments are not consecutive rows', { expected: `row ${row}`, got: `rows ${s.rowStart}+${s.rows}` })
    const length = Math.ceil(s.rows / unitRows) * unitBytes
    if (s.length !== length) bad('segment has another length than its rows', { expected: length, got: s.length })
    row += s.rows
  }
  if (row !== entry.rows) bad('segments do not cover the tensor', { expected: `${entry.rows} rows`, got: row })
  return unitBytes
}
