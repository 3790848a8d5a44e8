// Where every byte of a package will lie: pure, from the list of tensors in storage order.
import { ConversionError } from '../../base/errors.ts'
import { addSafe, roundDown, roundUp } from '../../base/shape.ts'
import { encodedBytes } from '../../quant/codec.ts'
import { PANEL_ROWS } from '../../quant/scheme.ts'
import { matrixView } from '../matrixview.ts'
import type { PlannedTensor } from '../writer.ts'
import * as fmt from './layout.ts'
import { checkLinear } from './quantfield.ts'
import { invalid, unsupported } from './refuse.ts'
import { asLayout } from './strides.ts'
import {
  checkTensorName,
  expectedLength,
  plainEncoding,
  readShape,
  readStrides,
  type StoredRange,
  type TensorRecord,
} from './tensorfield.ts'

export interface PlanOptions {
  readonly maxShardBytes: number
  readonly pageBytes: number
}

/** A tensor with its place; checksum and inline bytes come with its data. */
export type PlacedTensor = Omit<TensorRecord, 'checksum' | 'inline'> & { readonly isInline: boolean }

export interface PackagePlan {
  readonly tensors: readonly PlacedTensor[]
  /** Bytes of each shard, a multiple of 4096. */
  readonly shards: readonly number[]
  readonly pages: number
}

/** Throws FORMAT_INVALID and its relatives for a tensor the format cannot hold, REQUEST_INVALID for one that no shard can. */
export function planPackage(tensors: readonly PlannedTensor[], options: PlanOptions): PackagePlan {
  const placed = new Map<string, PlacedTensor>()
  const shards: number[] = []
  let page = 0
  for (const t of tensors) {
    if (placed.has(t.name)) invalid('a tensor is planned twice', `tensor ${t.name}`)
    const checked = checkPlanned(t)
    if (checked.alias !== undefined) {
      const target = placed.get(checked.alias)
      if (target === undefined || target.alias !== undefined)
        invalid('alias of a tensor that is not stored before it', `tensor ${t.name}`, { got: checked.alias })
      if (target.dtype !== checked.dtype || `${target.shape}` !== `${checked.shape}`)
        invalid('alias differs from its target', `tensor ${t.name}`, { got: checked.alias })
    }
    if (checked.alias !== undefined || checked.isInline) {
      placed.set(t.name, checked)
      continue
    }
    const pageRows = choosePageRows(checked, options)
    placed.set(t.name, { ...checked, ranges: place(checked, shards, pageRows, options), pageFirst: page, pageRows })
    page += Math.ceil(checked.rows / pageRows)
  }
  return { tensors: [...placed.values()], shards: shards.map((bytes) => roundUp(bytes, fmt.PAGE_ALIGN)), pages: page }
}

/** The rules the reader will apply, applied before anything is written. */
function checkPlanned(t: PlannedTensor): PlacedTensor {
  const where = `tensor ${t.name}`
  checkTensorName(t.name, where)
  readShape(t.shape as number[], where)
  const { rows, cols } = matrixView(t.shape, where)
  if (rows !== t.rows || cols !== t.cols)
    invalid('planned rows and columns are not those of the shape', where, {
      expected: [rows, cols],
      got: [t.rows, t.cols],
    })
  if (t.encoding.kind !== 'plain' && t.encoding.kind !== 'panel')
    return unsupported(
      'packages hold plain numbers and row panels only',
      where,
      t.encoding.kind,
      'Decode and encode it again.',
    )
  if (t.encoding.kind === 'plain' && t.encoding.bigEndian)
    unsupported('packages are little-endian', where, 'big-endian')
  const layout = asLayout(t.layout ?? 'row-major', where)
  let dtype = t.dtype
  if (t.encoding.kind === 'panel' && dtype !== 'float32')
    invalid('block-quantized tensor has another dtype than it decodes to', where, { expected: 'float32', got: dtype })
  if (t.encoding.kind === 'plain') {
    if (t.linear !== undefined) {
      if (t.dtype !== 'float32') invalid('LINEAR tensor decodes to float32', where, { got: t.dtype })
      checkLinear(t.linear, t.encoding.dtype, t.shape, where)
      dtype = t.encoding.dtype
    } else if (t.encoding.dtype !== dtype)
      invalid('dtype and encoding differ', where, { expected: dtype, got: t.encoding.dtype })
  }
  const encoding = t.encoding.kind === 'plain' ? plainEncoding(t.encoding.dtype) : t.encoding
  // A channels-last tensor that was read carries the strides its layout gives.
  const given = layout === 'channels-last' ? undefined : (t.strides as number[] | undefined)
  const strides = readStrides(given, layout, t.shape, encoding, where)
  const base = { name: t.name, dtype, shape: t.shape, rows, cols, encoding, linear: t.linear, layout, strides }
  const none = { ranges: [], pageFirst: undefined, pageRows: undefined }
  if (t.aliasOf !== undefined) return { ...base, ...none, length: 0, alias: t.aliasOf, isInline: false }
  const length = expectedLength(t.shape, rows, cols, encoding, strides, where)
  if (length !== t.byteLength)
    invalid('planned length is not what dtype, shape and encoding take', where, { expected: length, got: t.byteLength })
  const isInline = t.inline === true || length === 0
  if (isInline && length > fmt.MAX_INLINE_BYTES)
    invalid('tensor is too large to stand in the index', where, { expected: `≤ ${fmt.MAX_INLINE_BYTES}`, got: length })
  return { ...base, ...none, length, alias: undefined, isInline }
}

/** Rows of a page: about pageBytes, a multiple of 16 rows, a multiple of 4096 bytes where one fits (FORMAT §6). */
function choosePageRows(t: PlacedTensor, { pageBytes, maxShardBytes }: PlanOptions): number {
  const groups = Math.max(1, Math.ceil(t.rows / PANEL_ROWS))
  const whole = groups * PANEL_ROWS
  const cap = Math.min(fmt.MAX_PAGE_BYTES, roundDown(maxShardBytes, fmt.PAGE_ALIGN))
  const target = Math.min(pageBytes, cap)
  if (t.strides !== undefined || t.length <= target) return whole
  const bytes = fmt.groupBytes(t.encoding, t.cols)
  const aligned = fmt.PAGE_ALIGN / powerOfTwoFactor(bytes, fmt.PAGE_ALIGN)
  const unit = aligned * bytes <= cap ? aligned : 1
  const best = Math.max(unit, roundDown(Math.floor(target / bytes), unit))
  return Math.min(groups, best) * PANEL_ROWS
}

/** Largest power of two, at most `limit`, that divides n. */
function powerOfTwoFactor(n: number, limit: number): number {
  let p = 1
  while (p < limit && n % (p * 2) === 0) p *= 2
  return p
}

/** Ranges of one tensor; grows `shards` (bytes used in each so far). */
function place(t: PlacedTensor, shards: number[], pageRows: number, options: PlanOptions): StoredRange[] {
  const cap = roundDown(options.maxShardBytes, fmt.PAGE_ALIGN)
  const fits = (length: number, align: number): boolean =>
    shards.length > 0 && addSafe(roundUp(shards.at(-1)!, align), length, t.name) <= cap
  const append = (length: number, rowStart: number, rows: number, align: number): StoredRange => {
    if (!fits(length, align)) shards.push(0)
    const source = shards.length - 1
    const offset = roundUp(shards[source]!, align)
    shards[source] = offset + length
    return { source, offset, length, rowStart, rows }
  }
  if (t.length <= cap) return [append(t.length, 0, t.rows, fmt.alignmentOf(t.length))]
  const pageLength = encodedBytes(t.encoding, pageRows, t.cols)
  if (t.strides !== undefined || t.layout !== 'row-major' || pageRows >= t.rows || pageLength > cap)
    throw new ConversionError('REQUEST_INVALID', {
      what: 'a tensor does not fit into a shard and cannot be split',
      where: `tensor ${t.name}`,
      expected: `≤ ${cap} bytes`,
      got: t.strides === undefined ? `${Math.min(pageLength, t.length)} bytes for 16 rows` : `${t.length} bytes`,
      remedy: 'Ask for larger shards.',
    })
  const rowsPerShard = Math.floor(cap / pageLength) * pageRows
  const ranges: StoredRange[] = []
  for (let row = 0; row < t.rows; row += rowsPerShard) {
    const rows = Math.min(rowsPerShard, t.rows - row)
    // A split tensor begins a shard, so that all its segments but the last fill theirs.
    if (row === 0 && shards.length > 0 && shards.at(-1)! > 0) shards.push(0)
    ranges.push(append(encodedBytes(t.encoding, rows, t.cols), row, rows, fmt.PAGE_ALIGN))
  }
  return ranges
}
