// One tensor object of the index: which keys it has, and what they say (FORMAT §4). Whether its ranges fit together is ranges.ts.
import { DTYPE_BYTES, type DType, isDType } from '../../base/dtype.ts'
import type { JsonObject, JsonValue } from '../../base/json.ts'
import { isJsonObject } from '../../base/json.ts'
import { MAX_NAME_LENGTH, MAX_RANK } from '../../base/limits.ts'
import { addSafe, elementCount, mulSafe } from '../../base/shape.ts'
import { encodedBytes } from '../../quant/codec.ts'
import { PANEL_ROWS } from '../../quant/scheme.ts'
import { matrixView } from '../matrixview.ts'
import { decodeInline } from './inline.ts'
import * as fmt from './layout.ts'
import { type Linear, readQuant } from './quantfield.ts'
import { invalid, tooMany, unsupported } from './refuse.ts'
import { asLayout, channelsLastStrides, checkDisjoint, type Layout, spannedElements } from './strides.ts'

/** Where bytes lie, before shards are opened. */
export interface StoredRange {
  readonly shard: number
  readonly offset: number
  readonly length: number
  readonly rows: number
}

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
  r: Pick<TensorRecord, 'shape' | 'encoding' | 'strides' | 'rows' | 'cols'>,
  where: string,
): number {
  if (r.strides !== undefined && r.encoding.kind === 'plain')
    return mulSafe(spannedElements(r.shape, r.strides, where), DTYPE_BYTES[r.encoding.dtype], where)
  return encodedBytes(r.encoding, r.rows, r.cols)
}

/** Checks one entry. `extensions` are those the package requires. */
export function readTensor(
  name: string,
  value: JsonValue | undefined,
  extensions: ReadonlySet<string>,
  manifest: string,
): TensorRecord {
  const where = `${manifest}, tensor ${name}`
  checkTensorName(name, where)
  if (!isJsonObject(value)) invalid('tensor is not an object', where)
  for (const key in value) if (!KEYS.has(key)) unsupported('unknown field of a tensor', where, key)
  const f = value
  const shape = readShape(f.shape, where)
  const dtype = readDtype(f.dtype, extensions, where)
  const { rows, cols } = matrixView(shape, where)
  const kind =
    f.alias !== undefined
      ? 'alias'
      : f.inline !== undefined
        ? 'inline'
        : f.segments !== undefined
          ? 'segments'
          : 'range'
  const allowed = KINDS[kind]
  for (const key in f)
    if (!allowed.has(key))
      invalid(`a tensor stored as ${kind} has a field that does not belong there`, where, { got: key })

  let encoding: TensorRecord['encoding'] = plainEncoding(dtype)
  let linear: Linear | undefined
  if (f.quant !== undefined) {
    if (!isJsonObject(f.quant)) invalid("field 'quant' is not an object", where)
    ;({ encoding, linear } = { linear: undefined, ...readQuant(f.quant, dtype, shape, where) })
    if (encoding.kind === 'panel' && !extensions.has(fmt.BLOCK_QUANT))
      invalid('block quantization without its extension in extensionsRequired', where, { expected: fmt.BLOCK_QUANT })
  }
  const layout = f.layout === undefined ? 'row-major' : asLayout(f.layout, where)
  const strides = readStrides(f.strides, layout, shape, encoding, where)
  const base = { name, dtype, shape, rows, cols, encoding, linear, layout, strides }
  if (kind === 'alias') {
    if (typeof f.alias !== 'string') invalid("field 'alias' is not a name", where)
    return {
      ...base,
      length: 0,
      checksum: '',
      ranges: [],
      pageFirst: undefined,
      pageRows: undefined,
      inline: undefined,
      alias: f.alias,
    }
  }
  const length = expectedLength(base, where)
  const checksum = f.checksum
  if (typeof checksum !== 'string' || !CHECKSUM.test(checksum))
    invalid('checksum is missing or not "sha256:" and 64 lower-case hexadecimal digits', where, { got: checksum })
  const inline = kind === 'inline' ? decodeInline(f.inline, length, where) : undefined
  const ranges = inline === undefined ? readRanges(f, kind, { rows, length, encoding, strides, layout }, where) : []
  const pageFirst = optionalCount(f.page_first, 'page_first', where)
  const pageRows = optionalCount(f.page_rows, 'page_rows', where)
  return { ...base, length, checksum: checksum.slice(7), ranges, pageFirst, pageRows, inline, alias: undefined }
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

type Extent = Pick<TensorRecord, 'rows' | 'length' | 'encoding' | 'strides' | 'layout'>

function readRanges(f: JsonObject, kind: string, t: Extent, where: string): StoredRange[] {
  const length = count(f.length, 'length', where)
  if (length !== t.length)
    invalid('length is not what dtype, shape and encoding take', where, { expected: t.length, got: length })
  if (length === 0)
    invalid('a tensor without bytes is stored in a shard', where, { remedy: 'It belongs inline, as "".' })
  if (kind === 'range')
    return [{ shard: count(f.shard, 'shard', where), offset: count(f.offset, 'offset', where), length, rows: t.rows }]
  return readSegments(f.segments, t, where)
}

function readSegments(value: JsonValue | undefined, t: Extent, where: string): StoredRange[] {
  if (!Array.isArray(value) || value.length < 2) invalid('segments are not an array of two or more', where)
  if (t.strides !== undefined || t.layout !== 'row-major')
    invalid('only a contiguous row-major tensor has segments', where)
  const group = t.encoding.kind === 'panel' ? PANEL_ROWS : 1
  const perGroup = t.length / Math.ceil(t.rows / group)
  let rows = 0
  const ranges = value.map((s, i): StoredRange => {
    const at = `${where}, segments[${i}]`
    if (!isJsonObject(s)) invalid('segment is not an object', at)
    for (const key of Object.keys(s)) if (!SEGMENT_KEYS.has(key)) unsupported('unknown field of a segment', at, key)
    const range = {
      shard: count(s.shard, 'shard', at),
      offset: count(s.offset, 'offset', at),
      length: count(s.length, 'length', at),
      rows: count(s.rows, 'rows', at),
    }
    if (range.rows === 0 || (i < value.length - 1 && range.rows % PANEL_ROWS !== 0))
      invalid('segment is not a multiple of 16 rows', at, { got: range.rows })
    const expected = mulSafe(Math.ceil(range.rows / group), perGroup, at)
    if (range.length !== expected)
      invalid('segment length is not that of its rows', at, { expected, got: range.length })
    rows = addSafe(rows, range.rows, at)
    return range
  })
  if (rows !== t.rows) invalid('segments do not cover the rows of the tensor', where, { expected: t.rows, got: rows })
  return ranges
}
