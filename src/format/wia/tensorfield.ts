// One tensor object of the index: which keys it has, and what they say (FORMAT §4). Whether its ranges fit together is ranges.ts.
import { DTYPE_BYTES, type DType, isDType } from '../../base/dtype.ts'
import type { JsonObject, JsonValue } from '../../base/json.ts'
import { isJsonObject } from '../../base/json.ts'
import { MAX_NAME_LENGTH, MAX_RANK } from '../../base/limits.ts'
import { addSafe, elementCount, mulSafe } from '../../base/shape.ts'
import { encodedBytes } from '../../quant/codec.ts'
import { PANEL_ROWS } from '../../quant/scheme.ts'
import type { Segment } from '../reader.ts'
import { decodeInline } from './inline.ts'
import * as fmt from './layout.ts'
import { type Linear, readQuant } from './quantfield.ts'
import { invalid, tooMany, unsupported } from './refuse.ts'
import { asLayout, channelsLastStrides, checkDisjoint, type Layout, spannedElements } from './strides.ts'

/** A segment whose source is the number of its shard: shards are the first sources of a reader. */
export type StoredRange = Segment

/** A tensor as the manifest has it, checked by itself. Exactly one of ranges, inline, alias is set. */
export interface TensorRecord {
  readonly name: string
  /** As stored: float32 for block-quantized, the integer type for LINEAR. */
  readonly dtype: DType
  readonly shape: readonly number[]
  readonly rows: number
  readonly cols: number
  readonly encoding: fmt.StoredEncoding
  readonly linear: Linear | undefined
  readonly layout: Layout
  /** Also for channels-last: consumers need to honour strides only. */
  readonly strides: readonly number[] | undefined
  readonly length: number
  readonly checksum: string
  readonly ranges: readonly StoredRange[]
  readonly pageFirst: number | undefined
  readonly pageRows: number | undefined
  readonly inline: Uint8Array | undefined
  readonly alias: string | undefined
}

// biome-ignore lint/suspicious/noControlCharactersInRegex: control characters are what is refused
const CONTROL = /[\u0000-\u001f\u007f]/
const CHECKSUM = /^sha256:[0-9a-f]{64}$/
const PLAIN = new Map<DType, { kind: 'plain'; dtype: DType }>()

/** One object a dtype: an index of 100,000 tensors shares them. */
export function plainEncoding(dtype: DType): { kind: 'plain'; dtype: DType } {
  const known = PLAIN.get(dtype)
  if (known !== undefined) return known
  const encoding = Object.freeze({ kind: 'plain' as const, dtype })
  PLAIN.set(dtype, encoding)
  return encoding
}

/** Throws FORMAT_INVALID, FORMAT_LIMIT. */
export function checkTensorName(name: string, where: string): void {
  if (name === '') invalid('a tensor has an empty name', where)
  if (name.length > MAX_NAME_LENGTH) tooMany('a tensor name is too long', where, MAX_NAME_LENGTH, name.length)
  if (CONTROL.test(name) || !name.isWellFormed())
    invalid('a tensor name has control characters or is not valid Unicode', where, { got: name })
}

/** Stored bytes that shape and encoding give; strides add holes. */
export function expectedLength(
  shape: readonly number[],
  rows: number,
  cols: number,
  encoding: fmt.StoredEncoding,
  strides: readonly number[] | undefined,
  where: string,
): number {
  if (strides !== undefined && encoding.kind === 'plain')
    return mulSafe(spannedElements(shape, strides, where), DTYPE_BYTES[encoding.dtype], where)
  return encodedBytes(encoding, rows, cols)
}

/**
 * Checks one entry. `extensions` are those the package requires. Written without spreads and closures: an index may have
 * 100,000 entries, and copies of objects were most of the time it took to open one.
 */
export function readTensor(
  name: string,
  value: JsonValue | undefined,
  extensions: ReadonlySet<string>,
  manifest: string,
): TensorRecord {
  const where = `${manifest}, tensor ${name}`
  checkTensorName(name, where)
  if (!isJsonObject(value)) invalid('tensor is not an object', where)
  const f = value
  const kind = kindOf(f)
  checkKeys(f, kind, where)
  const shape = readShape(f.shape, where)
  const dtype = readDtype(f.dtype, extensions, where)
  const cols = shape.length === 0 ? 1 : shape[shape.length - 1]!
  const rows = rowsOf(shape, where)
  let encoding: TensorRecord['encoding'] = plainEncoding(dtype)
  let linear: Linear | undefined
  if (f.quant !== undefined) {
    if (!isJsonObject(f.quant)) invalid("field 'quant' is not an object", where)
    const quant = readQuant(f.quant, dtype, shape, where)
    encoding = quant.encoding
    linear = quant.linear
    if (encoding.kind === 'panel' && !extensions.has(fmt.BLOCK_QUANT))
      invalid('block quantization without its extension in extensionsRequired', where, { expected: fmt.BLOCK_QUANT })
  }
  const layout = f.layout === undefined ? 'row-major' : asLayout(f.layout, where)
  const strides = readStrides(f.strides, layout, shape, encoding, where)
  const alias = kind === 'alias' ? readAlias(f.alias, where) : undefined
  const length = alias === undefined ? expectedLength(shape, rows, cols, encoding, strides, where) : 0
  const inline = kind === 'inline' ? decodeInline(f.inline, length, where) : undefined
  const contiguous = strides === undefined && layout === 'row-major'
  return {
    name,
    dtype,
    shape,
    rows,
    cols,
    encoding,
    linear,
    layout,
    strides,
    length,
    checksum: alias === undefined ? readChecksum(f.checksum, where) : '',
    ranges:
      kind === 'range'
        ? readRange(f, rows, length, where)
        : kind === 'segments'
          ? readSegments(f, rows, length, encoding, contiguous, where)
          : NO_RANGES,
    pageFirst: optionalCount(f.page_first, 'page_first', where),
    pageRows: optionalCount(f.page_rows, 'page_rows', where),
    inline,
    alias,
  }
}

type Kind = keyof typeof KINDS
const NO_RANGES: readonly StoredRange[] = []

function kindOf(f: JsonObject): Kind {
  if (f.alias !== undefined) return 'alias'
  if (f.inline !== undefined) return 'inline'
  return f.segments !== undefined ? 'segments' : 'range'
}

function checkKeys(f: JsonObject, kind: Kind, where: string): void {
  const allowed = KINDS[kind]
  for (const key in f)
    if (!allowed.has(key)) {
      if (!KEYS.has(key)) unsupported('unknown field of a tensor', where, key)
      invalid(`a tensor stored as ${kind} has a field that does not belong there`, where, { got: key })
    }
}

function readAlias(value: JsonValue | undefined, where: string): string {
  if (typeof value !== 'string') invalid("field 'alias' is not a name", where)
  return value
}

function readChecksum(value: JsonValue | undefined, where: string): string {
  if (typeof value !== 'string' || !CHECKSUM.test(value))
    invalid('checksum is missing or not "sha256:" and 64 lower-case hexadecimal digits', where, { got: value })
  return value.slice(7)
}

/** Rows of the matrix view (see matrixview.ts), without copying the shape. */
function rowsOf(shape: readonly number[], where: string): number {
  let rows = 1
  let zero = false
  for (let k = 0; k < shape.length - 1; k++) {
    if (shape[k] === 0) zero = true
    else rows = mulSafe(rows, shape[k]!, where)
  }
  return zero ? 0 : rows
}

const KINDS = {
  range: new Set([
    'dtype',
    'shape',
    'shard',
    'offset',
    'length',
    'checksum',
    'layout',
    'strides',
    'quant',
    'page_first',
    'page_rows',
  ]),
  segments: new Set(['dtype', 'shape', 'segments', 'length', 'checksum', 'layout', 'quant', 'page_first', 'page_rows']),
  inline: new Set(['dtype', 'shape', 'inline', 'checksum', 'layout', 'strides', 'quant']),
  alias: new Set(['dtype', 'shape', 'alias']),
}
const KEYS = new Set(Object.values(KINDS).flatMap((keys) => [...keys]))
const SEGMENT_KEYS = new Set(['shard', 'offset', 'length', 'rows'])

function count(value: JsonValue | undefined, key: string, where: string): number {
  if (typeof value !== 'number' || !Number.isSafeInteger(value) || value < 0)
    invalid(`field '${key}' is missing or not a count`, where, { got: JSON.stringify(value) })
  return value
}

function optionalCount(value: JsonValue | undefined, key: string, where: string): number | undefined {
  return value === undefined ? undefined : count(value, key, where)
}

export function readShape(value: JsonValue | undefined, where: string): number[] {
  if (!Array.isArray(value)) invalid("field 'shape' is missing or not an array", where)
  if (value.length > MAX_RANK) tooMany('too many dimensions', where, MAX_RANK, value.length)
  elementCount(value as number[], where)
  return value as number[]
}

function readDtype(value: JsonValue | undefined, extensions: ReadonlySet<string>, where: string): DType {
  if (typeof value !== 'string') invalid("field 'dtype' is missing or not a name", where)
  if (!isDType(value)) unsupported('unknown dtype', where, value)
  if (!fmt.STANDARD_DTYPES.has(value) && !extensions.has(fmt.EXTRA_DTYPES))
    unsupported(`dtype is not one of the standard's and ${fmt.EXTRA_DTYPES} is not required`, where, value)
  return value
}

/** What a layout and strides may be together. Returns the strides consumers follow, none when contiguous. */
export function readStrides(
  value: JsonValue | undefined,
  layout: Layout,
  shape: readonly number[],
  encoding: TensorRecord['encoding'],
  where: string,
): readonly number[] | undefined {
  if (layout !== 'row-major') {
    if (encoding.kind !== 'plain') invalid('a block-quantized tensor has a layout', where, { got: layout })
    if (value !== undefined) invalid('strides and a layout that gives them', where, { got: layout })
    if (layout === 'channels-last') return channelsLastStrides(shape, where)
    if (layout === 'nd-hwc' && shape.length < 3) invalid('nd-hwc needs three dimensions', where, { got: shape })
    if (layout === 'packed-int8' && encoding.dtype !== 'int8' && encoding.dtype !== 'uint8')
      invalid('packed-int8 needs int8 or uint8', where, { got: encoding.dtype })
    return undefined
  }
  if (value === undefined) return undefined
  if (!Array.isArray(value)) invalid("field 'strides' is not an array", where)
  if (encoding.kind !== 'plain') invalid('a block-quantized tensor has strides', where)
  const strides = value as number[]
  spannedElements(shape, strides, where)
  checkDisjoint(shape, strides, where)
  return strides
}

function checkLength(value: JsonValue | undefined, expected: number, where: string): void {
  const length = count(value, 'length', where)
  if (length !== expected)
    invalid('length is not what dtype, shape and encoding take', where, { expected, got: length })
  if (length === 0)
    invalid('a tensor without bytes is stored in a shard', where, { remedy: 'It belongs inline, as "".' })
}

function readRange(f: JsonObject, rows: number, length: number, where: string): StoredRange[] {
  checkLength(f.length, length, where)
  return [
    { source: count(f.shard, 'shard', where), offset: count(f.offset, 'offset', where), length, rowStart: 0, rows },
  ]
}

function readSegments(
  f: JsonObject,
  rows: number,
  length: number,
  encoding: fmt.StoredEncoding,
  contiguous: boolean,
  where: string,
): StoredRange[] {
  checkLength(f.length, length, where)
  const list = f.segments
  if (!Array.isArray(list) || list.length < 2) invalid('segments are not an array of two or more', where)
  if (!contiguous) invalid('only a contiguous row-major tensor has segments', where)
  const group = encoding.kind === 'panel' ? PANEL_ROWS : 1
  const perGroup = length / Math.ceil(rows / group)
  let rowStart = 0
  const ranges = list.map((s, i): StoredRange => {
    const at = `${where}, segments[${i}]`
    if (!isJsonObject(s)) invalid('segment is not an object', at)
    for (const key of Object.keys(s)) if (!SEGMENT_KEYS.has(key)) unsupported('unknown field of a segment', at, key)
    const range = {
      source: count(s.shard, 'shard', at),
      offset: count(s.offset, 'offset', at),
      length: count(s.length, 'length', at),
      rowStart,
      rows: count(s.rows, 'rows', at),
    }
    if (range.rows === 0 || (i < list.length - 1 && range.rows % PANEL_ROWS !== 0))
      invalid('segment is not a multiple of 16 rows', at, { got: range.rows })
    const expected = mulSafe(Math.ceil(range.rows / group), perGroup, at)
    if (range.length !== expected)
      invalid('segment length is not that of its rows', at, { expected, got: range.length })
    rowStart = addSafe(rowStart, range.rows, at)
    return range
  })
  if (rowStart !== rows)
    invalid('segments do not cover the rows of the tensor', where, { expected: rows, got: rowStart })
  return ranges
}
