// The header of a GGUF file: magic, version, metadata, tensor list. Pure: the first bytes in, facts out (or Incomplete).
// Source: ggml's docs/gguf.md and the checks of its reference reader (ggml/src/gguf.cpp). Where this is stricter: docs/VERDICTS.md.
import { ModelFormatError } from '../../base/errors.ts'
import { MAX_TENSORS } from '../../base/limits.ts'
import { addSafe, elementCount, mulSafe, roundUp } from '../../base/shape.ts'
import { decodeValue, type RawValue, scanValue } from './metadata.ts'
import { type GgmlTensorType, ggmlType } from './types.ts'
import { Window } from './window.ts'

const MAX_DIMS = 4
/** Bytes of a tensor name: ggml keeps 63 and a NUL. */
const MAX_TENSOR_NAME = 63
/** Bytes of a key, by the format's text. */
const MAX_KEY = 65535
/** Keys: real files have under 200. */
const MAX_KEYS = 65536
/** Smallest records: key length + 1 byte + type + value; name length + 1 byte + dimensions + type + offset. */
const MIN_KEY_BYTES = 14
const MIN_TENSOR_BYTES = 25
const DEFAULT_ALIGNMENT = 32
const MAX_ALIGNMENT = 2 ** 30
const UINT32 = 4

export interface GgufTensor {
  readonly name: string
  readonly type: GgmlTensorType
  /** Row-major, as everywhere else here: the file's dimensions reversed. */
  readonly shape: readonly number[]
  /** Bytes from the start of the file. */
  readonly offset: number
  readonly length: number
}

export interface GgufHeader {
  readonly version: 2 | 3
  readonly bigEndian: boolean
  readonly metadata: ReadonlyMap<string, RawValue>
  readonly alignment: number
  /** In storage order. */
  readonly tensors: readonly GgufTensor[]
  /** Bytes before the padding that precedes the data. */
  readonly length: number
}

/**
 * Parses from `bytes`, the first bytes of a file of `fileSize`. Throws FORMAT_INVALID, FORMAT_UNSUPPORTED, FORMAT_LIMIT, and Incomplete
 * when more bytes are needed.
 */
export function parseGguf(bytes: Uint8Array, fileSize: number, where: string): GgufHeader {
  const w = new Window(bytes, fileSize, where)
  const magic = w.skip(4, 'magic')
  const text = String.fromCharCode(...bytes.subarray(magic, w.at))
  if (text !== 'GGUF')
    throw new ModelFormatError('FORMAT_INVALID', { what: 'not a GGUF file', where, expected: 'GGUF', got: text })
  const version = readVersion(w)
  const tensorCount = w.countOf('tensor count', MIN_TENSOR_BYTES)
  const keyCount = w.countOf('metadata count', MIN_KEY_BYTES)
  if (tensorCount > MAX_TENSORS) limit('too many tensors', where, MAX_TENSORS, tensorCount)
  if (keyCount > MAX_KEYS) limit('too many metadata keys', where, MAX_KEYS, keyCount)
  const metadata = readMetadata(w, keyCount)
  const alignment = readAlignment(metadata, where)
  const infos = Array.from({ length: tensorCount }, () => readInfo(w))
  return { version, bigEndian: w.bigEndian, metadata, alignment, tensors: place(infos, w, alignment), length: w.at }
}

function limit(what: string, where: string, most: number, got: number): never {
  throw new ModelFormatError('FORMAT_LIMIT', { what, where, expected: `≤ ${most}`, got })
}

// The byte order is not written down: a version that would be 2^16 or more the other way round tells it.
function readVersion(w: Window): 2 | 3 {
  const at = w.at
  let version = w.u32('version')
  if (version !== 0 && version % 65536 === 0) {
    w.at = at
    w.bigEndian = true
    version = w.u32('version')
  }
  if (version !== 2 && version !== 3)
    throw new ModelFormatError('FORMAT_UNSUPPORTED', {
      what: version === 1 ? 'GGUF version 1 is obsolete' : 'GGUF version is not known',
      where: w.where,
      expected: '2 or 3',
      got: version,
      remedy:
        version === 1 ? 'Convert the original model again, or fetch a newer file.' : 'A newer release may read it.',
    })
  return version
}

function readMetadata(w: Window, count: number): Map<string, RawValue> {
  const out = new Map<string, RawValue>()
  for (let i = 0; i < count; i++) {
    const key = w.string('metadata key', MAX_KEY)
    if (key === '') w.refuse('metadata key is empty')
    if (out.has(key)) w.refuse('metadata key comes twice', { got: key })
    out.set(key, scanValue(w, key))
  }
  return out
}

function readAlignment(metadata: ReadonlyMap<string, RawValue>, where: string): number {
  const raw = metadata.get('general.alignment')
  if (raw === undefined) return DEFAULT_ALIGNMENT
  const value = raw.type === UINT32 ? decodeValue(raw, where) : undefined
  if (typeof value !== 'number' || value < 1 || value > MAX_ALIGNMENT || !Number.isInteger(Math.log2(value)))
    throw new ModelFormatError('FORMAT_INVALID', {
      what: 'general.alignment is not a power of two (uint32)',
      where,
      expected: `1 … ${MAX_ALIGNMENT}`,
      got: value ?? `type ${raw.type}`,
    })
  return value
}

interface Info {
  readonly name: string
  readonly type: GgmlTensorType
  readonly shape: readonly number[]
  readonly length: number
  /** From the start of the data. */
  readonly offset: number
}

function readInfo(w: Window): Info {
  const name = w.string('tensor name', MAX_TENSOR_NAME)
  const where = `${w.where}, tensor ${name}`
  const bad = (what: string, extra: object): never => {
    throw new ModelFormatError('FORMAT_INVALID', { what, where, details: { file: w.where, tensor: name }, ...extra })
  }
  const dims = w.u32('number of dimensions')
  if (dims > MAX_DIMS) bad('too many dimensions', { expected: `≤ ${MAX_DIMS}`, got: dims })
  const shape: number[] = []
  for (let i = 0; i < dims; i++) shape.unshift(w.count(`dimension of ${name}`))
  const type = ggmlType(w.u32('tensor type'), where)
  const cols = shape.at(-1) ?? 1
  if (cols % type.block !== 0)
    bad(`rows of ${type.name} are not whole blocks`, { expected: `a multiple of ${type.block}`, got: cols })
  elementCount(shape, where)
  const blocks = mulSafe(elementCount(shape.slice(0, -1), where), cols / type.block, where)
  const length = mulSafe(blocks, type.blockBytes, where)
  return { name, type, shape, length, offset: w.count(`offset of ${name}`) }
}

/** Tensors lie one after the other in the order of the list, each at the next multiple of the alignment: the reference refuses any other. */
function place(infos: readonly Info[], w: Window, alignment: number): GgufTensor[] {
  const dataStart = roundUp(w.at, alignment)
  const names = new Set<string>()
  let expected = 0
  return infos.map(({ name, type, shape, length, offset }) => {
    const where = `${w.where}, tensor ${name}`
    const bad = (what: string, extra: object): never => {
      throw new ModelFormatError('FORMAT_INVALID', { what, where, details: { file: w.where, tensor: name }, ...extra })
    }
    if (names.size === names.add(name).size) bad('tensor name comes twice', { got: name })
    if (offset !== expected)
      bad(
        offset < expected
          ? 'tensors overlap'
          : 'bytes between tensors belong to none of them, or an offset is not aligned',
        {
          expected: `offset ${expected}`,
          got: offset,
        },
      )
    const start = addSafe(dataStart, offset, where)
    if (addSafe(start, length, where) > w.fileSize)
      bad('tensor runs past the end of the file', {
        expected: `≥ ${start + length} bytes`,
        got: w.fileSize,
        remedy: 'The file is cut short: fetch it again.',
      })
    expected = roundUp(addSafe(offset, length, where), alignment)
    return { name, type, shape, offset: start, length }
  })
}
