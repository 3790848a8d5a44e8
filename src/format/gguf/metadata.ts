// Metadata values: thirteen types, arrays of them, arrays of arrays. Scanning finds where a value ends and checks every length; decoding
// makes the value. Large arrays (a vocabulary of 128,000 tokens) are scanned when a file is opened and decoded when somebody asks.
//
// 64-bit integers beyond ±2^53 become decimal strings: no number would be right, and whoever needs a count refuses a string by its type.
// Source: ggml's docs/gguf.md.
import { ModelFormatError } from '../../base/errors.ts'
import type { JsonObject, JsonValue } from '../../base/json.ts'
import { decodeText, Window } from './window.ts'

/** Bytes a value of each type takes; strings and arrays vary. */
const FIXED: readonly (number | undefined)[] = [1, 1, 2, 2, 4, 4, 4, 1, undefined, undefined, 8, 8, 8]
const BOOL = 7
const STRING = 8
const ARRAY = 9
/** Nesting: the format allows any, files have one level. */
const MAX_NESTING = 8
/** Elements of all arrays of a file, which bounds what decoding them takes: large models have 1.5 million (tokens, scores, types, merges). */
const MAX_ELEMENTS = 8_000_000
/** Bytes of length and text that a token or merge takes on average: saves reading in many small steps. */
const TYPICAL_STRING = 16
/** Values above this are decoded when they are first looked at. */
const LAZY_BYTES = 4096

/** A scanned value: where its bytes are. */
export interface RawValue {
  readonly type: number
  /** Without the type number. Views the bytes the header was read into. */
  readonly bytes: Uint8Array
  readonly bigEndian: boolean
}

/** Reads type and extent of the value at the window. Throws FORMAT_INVALID, FORMAT_UNSUPPORTED, FORMAT_LIMIT, Incomplete. */
export function scanValue(w: Window, key: string): RawValue {
  const type = w.u32('value type')
  const start = w.at
  skipValue(w, type, key, 0)
  return { type, bytes: w.bytes.subarray(start, w.at), bigEndian: w.bigEndian }
}

function skipValue(w: Window, type: number, key: string, depth: number): void {
  if (type === STRING) w.skipString(`value of ${key}`)
  else if (type === ARRAY) skipArray(w, key, depth)
  else w.skip(fixedBytes(w, type, key), `value of ${key}`)
}

function skipArray(w: Window, key: string, depth: number): void {
  if (depth === MAX_NESTING) limit(w, 'arrays are nested too deeply', key, MAX_NESTING)
  const type = w.u32('element type')
  const what = `array ${key}`
  const bytes = type === STRING ? 8 : type === ARRAY ? 12 : fixedBytes(w, type, key)
  const n = w.countOf(what, bytes)
  w.elements += n
  if (w.elements > MAX_ELEMENTS) limit(w, 'arrays have too many elements', key, MAX_ELEMENTS)
  if (type === STRING) {
    w.hint(n * TYPICAL_STRING)
    for (let i = 0; i < n; i++) w.skipString(what)
  } else if (type === ARRAY) for (let i = 0; i < n; i++) skipArray(w, key, depth + 1)
  else w.skip(n * bytes, what)
}

function fixedBytes(w: Window, type: number, key: string): number {
  const bytes = FIXED[type]
  if (bytes === undefined)
    throw new ModelFormatError('FORMAT_UNSUPPORTED', {
      what: 'metadata value type is not known',
      where: `${w.where}, key ${key}`,
      expected: '0…12',
      got: type,
    })
  return bytes
}

function limit(w: Window, what: string, key: string, most: number): never {
  throw new ModelFormatError('FORMAT_LIMIT', {
    what,
    where: `${w.where}, key ${key}`,
    expected: `≤ ${most}`,
    got: 'more',
  })
}

/** The value. Throws FORMAT_INVALID for text that is not UTF-8 and a bool that is not 0 or 1. */
export function decodeValue(raw: RawValue, where: string): JsonValue {
  const w = new Window(raw.bytes, raw.bytes.length, where)
  w.bigEndian = raw.bigEndian
  const { buffer, byteOffset, length } = raw.bytes
  return decode(
    w,
    { view: new DataView(buffer, byteOffset, length), text: globalThis.Buffer?.from(buffer, byteOffset, length) },
    raw.type,
  )
}

/** The window's bytes, for numbers and for text. */
interface Faces {
  readonly view: DataView
  /** The same bytes as Node decodes them fastest; absent in a browser. */
  readonly text: Buffer | undefined
}

function decode(w: Window, faces: Faces, type: number): JsonValue {
  if (type === STRING) {
    const length = w.count('length')
    const start = w.skip(length, 'text')
    return textAt(w, faces.text, start)
  }
  if (type === ARRAY) {
    const element = w.u32('element type')
    const n = w.count('length')
    const out: JsonValue[] = []
    for (let i = 0; i < n; i++) out.push(decode(w, faces, element))
    return out
  }
  return decodeFixed(w, faces.view, type)
}

// Native decoding without a check is three times faster; what it could not read it shows as U+FFFD, and then we look again.
function textAt(w: Window, bytes: Buffer | undefined, start: number): string {
  const text = bytes?.toString('utf8', start, w.at)
  return text === undefined || text.includes('\ufffd') ? decodeText(w.bytes.subarray(start, w.at), w.where) : text
}

function decodeFixed(w: Window, view: DataView, type: number): JsonValue {
  const little = !w.bigEndian
  const at = w.skip(FIXED[type]!, 'value')
  switch (type) {
    case 0:
      return view.getUint8(at)
    case 1:
      return view.getInt8(at)
    case 2:
      return view.getUint16(at, little)
    case 3:
      return view.getInt16(at, little)
    case 4:
      return view.getUint32(at, little)
    case 5:
      return view.getInt32(at, little)
    case 6:
      return view.getFloat32(at, little)
    case BOOL: {
      const value = view.getUint8(at)
      if (value > 1) w.refuse('bool is not 0 or 1', { got: value })
      return value === 1
    }
    case 10:
      return integer(view.getBigUint64(at, little))
    case 11:
      return integer(view.getBigInt64(at, little))
    default:
      return view.getFloat64(at, little)
  }
}

function integer(value: bigint): number | string {
  const n = Number(value)
  return Number.isSafeInteger(n) ? n : String(value)
}

/**
 * All values as one object with own, enumerable keys. Small values are decoded now, so that what is wrong with them fails now;
 * large ones when they are first read, once.
 */
export function metadataObject(values: ReadonlyMap<string, RawValue>, where: string): JsonObject {
  const out: JsonObject = {}
  for (const [key, raw] of values) {
    const place = `${where}, key ${key}`
    if (raw.bytes.length <= LAZY_BYTES) {
      define(out, key, decodeValue(raw, place))
      continue
    }
    Object.defineProperty(out, key, {
      enumerable: true,
      configurable: true,
      get() {
        const value = decodeValue(raw, place)
        define(out, key, value)
        return value
      },
    })
  }
  return out
}

// Not an assignment: a key may be '__proto__'.
function define(object: JsonObject, key: string, value: JsonValue): void {
  Object.defineProperty(object, key, { value, enumerable: true, configurable: true, writable: true })
}
