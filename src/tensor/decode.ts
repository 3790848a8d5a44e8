// Units to float32: block formats, plain types, and the standard's scale and zero point.
import { DTYPE_BYTES } from '../base/dtype.ts'
import { notImplemented, ValidationError } from '../base/errors.ts'
import { elementCount } from '../base/shape.ts'
import type { TensorEntry } from '../format/reader.ts'
import { codecOf, refuseOpaque } from '../quant/codec.ts'
import { PANEL_ROWS } from '../quant/scheme.ts'
import { asArray, HOST_BIG_ENDIAN, swapBytes, type TensorArray } from './array.ts'
import type { UnitLayout } from './plan.ts'
import { CHUNK_BYTES, type StoredTensor } from './stored.ts'

/** Decodes `count` units, the first being number `unit`, to their elements (those the tensor has: the last panel may be cut). */
export type UnitDecoder = (bytes: Uint8Array, unit: number, count: number, out: Float32Array) => void

/** Throws QUANT_UNSUPPORTED for types without float32 values or without a decoder. */
export function unitDecoder(entry: TensorEntry, layout: UnitLayout): UnitDecoder {
  const e = entry.encoding
  if (e.kind === 'opaque') return refuseOpaque(e.type, entry.name)
  if (entry.linear !== undefined) return linearDecoder(entry)
  const codec = codecOf(e)
  if (e.kind !== 'panel') return (bytes, _, count, out) => codec.decode(bytes, 1, count * layout.unitElements, out)
  return (bytes, unit, count, out) =>
    codec.decode(bytes, Math.min(count * PANEL_ROWS, entry.rows - unit * PANEL_ROWS), entry.cols, out)
}

/** Elements that units [unit, unit + count) hold. */
export function unitElements(entry: TensorEntry, layout: UnitLayout, unit: number, count: number): number {
  return Math.min(count * layout.unitElements, entry.rows * entry.cols - unit * layout.unitElements)
}

/** r = (q − zeroPoint)·scale in float64, rounded once (WIA-AI-014, "Quantization"). Units are elements, in order of the shape. */
function linearDecoder(entry: TensorEntry): UnitDecoder {
  const { scales, zeroPoints, axis, scheme } = entry.linear!
  if (scheme !== 'linear') notImplemented('LOGARITHMIC quantization', `tensor ${entry.name}`)
  const inner = axis === undefined ? 1 : elementCount(entry.shape.slice(axis + 1))
  const channels = scales.length
  return (bytes, unit, count, out) => {
    const codes = codesOf(entry, bytes, count)
    for (let i = 0; i < count; i++) {
      const channel = axis === undefined ? 0 : Math.floor((unit + i) / inner) % channels
      out[i] = (Number(codes[i]) - zeroPoints[channel]!) * Math.fround(scales[channel]!)
    }
  }
}

/** Plain elements in this machine's byte order, in memory of their own. */
export function codesOf(entry: TensorEntry, bytes: Uint8Array, count: number): TensorArray {
  const e = entry.encoding
  if (e.kind !== 'plain')
    throw new ValidationError('TENSOR_RANGE', { what: 'tensor has no plain elements', where: `tensor ${entry.name}` })
  const own = bytes.slice(0, count * DTYPE_BYTES[e.dtype])
  if ((e.bigEndian === true) !== HOST_BIG_ENDIAN) swapBytes(own, DTYPE_BYTES[e.dtype])
  return asArray(e.dtype, own, count)!
}

/** Ranges of elements of one tensor as float32. */
export class RangeDecoder {
  readonly stored: StoredTensor
  #decoder: UnitDecoder | undefined

  constructor(stored: StoredTensor) {
    this.stored = stored
  }

  /** Reads and decodes elements [from, to). Throws what reading throws, QUANT_UNSUPPORTED. */
  async range(from: number, to: number, out: Float32Array, signal?: AbortSignal): Promise<void> {
    const size = this.stored.layout.unitElements
    const units = this.stored.units(Math.floor(from / size), Math.ceil(to / size), CHUNK_BYTES, signal)
    for await (const { unit, count, bytes } of units) {
      const a = Math.max(from, unit * size)
      const b = Math.min(to, (unit + count) * size)
      this.part(bytes, unit, count, a, b, out.subarray(a - from, b - from))
    }
  }

  /** Elements [from, to) out of units that hold them. Units that are wanted whole decode in place, others through a copy. */
  part(bytes: Uint8Array, unit: number, count: number, from: number, to: number, out: Float32Array): void {
    const { entry, layout } = this.stored
    const { unitElements: size, unitBytes } = layout
    this.#decoder ??= unitDecoder(entry, layout)
    for (let i = 0; i < count; ) {
      const start = (unit + i) * size
      const wholes = start >= from ? Math.min(count - i, Math.floor((to - start) / size)) : 0
      const n = Math.max(1, wholes)
      const part = bytes.subarray(i * unitBytes, (i + n) * unitBytes)
      const elements = unitElements(entry, layout, unit + i, n)
      if (wholes > 0) this.#decoder(part, unit + i, n, out.subarray(start - from, start - from + elements))
      else {
        const values = new Float32Array(elements)
        this.#decoder(part, unit + i, 1, values)
        const a = Math.max(from, start)
        out.set(values.subarray(a - start, Math.min(to, start + elements) - start), a - from)
      }
      i += n
    }
  }
}
