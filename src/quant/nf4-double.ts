// NF4 as QLoRA checkpoints hold it (arXiv:2305.14314 §3; the layout of bitsandbytes): flat blocks of 64 values, two codes a byte
// with the first in the high nibble, and absmax scales that are themselves quantized to 8 bits in blocks of 256.
//
// value = NF4[code]·absmax      absmax = map[q]·nestedAbsmax + offset      every step rounded to float32; offset is the mean of
// all absmax of the tensor, map the 256-entry "dynamic" map below.
import { ConversionError, ModelFormatError } from '../base/errors.ts'
import { checkMatrix, findNonFinite, refuseValue } from './bounds.ts'
import { encodeNf4, NF4 } from './nf4.ts'

/** Absmax values that share a nested scale. */
export const NESTED_BLOCK = 256

/** Quantized absmax: one code a block of values, one float32 every NESTED_BLOCK codes. */
export interface NestedAbsmax {
  readonly codes: Uint8Array
  readonly nestedAbsmax: Float32Array
  readonly offset: number
  /** Value of each code, ascending. Checkpoints carry their own; it is DYNAMIC_MAP unless they say otherwise. */
  readonly map?: Float32Array
}

/**
 * The signed dynamic 8-bit map: decade 10^(i-6), i = 0…6, is cut into 2^i steps over [0.1, 1] and their centres are the values,
 * with both signs; and 0 and 1. Computed in float32 in the order that gives the bits checkpoints hold.
 */
export const DYNAMIC_MAP: Float32Array = dynamicMap()

function dynamicMap(): Float32Array {
  const fround = Math.fround
  const values = [0, 1]
  for (let i = 0; i < 7; i++) {
    const start = fround(0.1)
    const step = fround(fround(1 - start) / 2 ** i)
    const decade = fround(10 ** (i - 6))
    for (let k = 0; k < 2 ** i; k++) {
      const from = fround(start + fround(step * k))
      const to = fround(start + fround(step * (k + 1)))
      const value = fround(decade * fround(fround(from + to) / 2))
      values.push(value, -value)
    }
  }
  return Float32Array.from(values).sort()
}

/** absmax of every block. Throws FORMAT_INVALID when the parts do not belong together. */
export function decodeNestedAbsmax(nested: NestedAbsmax): Float32Array {
  const { codes, nestedAbsmax, offset, map = DYNAMIC_MAP } = nested
  const groups = Math.ceil(codes.length / NESTED_BLOCK)
  if (nestedAbsmax.length !== groups)
    throw new ModelFormatError('FORMAT_INVALID', {
      what: `nested absmax has another length than its ${codes.length} codes need`,
      expected: groups,
      got: nestedAbsmax.length,
    })
  if (map.length !== 256)
    throw new ModelFormatError('FORMAT_INVALID', {
      what: 'nested map has not 256 entries',
      expected: 256,
      got: map.length,
    })
  const shift = Math.fround(offset)
  const absmax = new Float32Array(codes.length)
  for (let i = 0; i < codes.length; i++)
    absmax[i] = Math.fround(map[codes[i]!]! * nestedAbsmax[Math.floor(i / NESTED_BLOCK)]!) + shift
  return absmax
}

/** Quantizes the absmax of a whole tensor. Throws QUANT_RANGE for values that are not finite. */
export function encodeNestedAbsmax(absmax: Float32Array): NestedAbsmax {
  const bad = findNonFinite(absmax, 0, absmax.length)
  if (bad >= 0) refuseValue('nested absmax', absmax, bad, Math.max(1, absmax.length))
  let sum = 0
  for (let i = 0; i < absmax.length; i++) sum += absmax[i]!
  const offset = absmax.length === 0 ? 0 : Math.fround(sum / absmax.length)
  const codes = new Uint8Array(absmax.length)
  const nestedAbsmax = new Float32Array(Math.ceil(absmax.length / NESTED_BLOCK))
  for (let group = 0; group < nestedAbsmax.length; group++) {
    const from = group * NESTED_BLOCK
    const to = Math.min(from + NESTED_BLOCK, absmax.length)
    let max = 0
    for (let i = from; i < to; i++) max = Math.max(max, Math.abs(Math.fround(absmax[i]! - offset)))
    if (max === Number.POSITIVE_INFINITY)
      throw new ConversionError('QUANT_RANGE', { what: 'absmax values span more than float32', where: `block ${from}` })
    nestedAbsmax[group] = max
    for (let i = from; i < to; i++) codes[i] = nearestDynamic(max === 0 ? 0 : Math.fround(absmax[i]! - offset) / max)
  }
  return { codes, nestedAbsmax, offset }
}

/** Nearest entry of DYNAMIC_MAP; a tie goes to the lower one. */
function nearestDynamic(x: number): number {
  let low = 0
  let high = 255
  while (low < high) {
    const middle = (low + high) >> 1
    if (x > (DYNAMIC_MAP[middle]! + DYNAMIC_MAP[middle + 1]!) / 2) low = middle + 1
    else high = middle
  }
  return low
}

/** Decodes `count` values from two-in-a-byte codes and the absmax of every `blockSize` values. */
export function decodeNf4Packed(
  packed: Uint8Array,
  count: number,
  absmax: Float32Array,
  blockSize: number,
  out: Float32Array,
): void {
  checkPacked(packed, count, absmax, blockSize, out)
  for (let i = 0; i < count; i += blockSize) {
    const scale = absmax[i / blockSize]!
    const end = Math.min(i + blockSize, count)
    for (let k = i, p = i / 2; k < end; k += 2, p++) {
      const byte = packed[p]!
      out[k] = scale * NF4[byte >>> 4]!
      if (k + 1 < end) out[k + 1] = scale * NF4[byte & 15]!
    }
  }
}

/**
 * Encodes `count` values to two-in-a-byte codes and absmax, which encodeNestedAbsmax can then quantize. As in bitsandbytes, codes are chosen
 * with the absmax before it is quantized. An odd last nibble is 7 (zero). Throws QUANT_RANGE for NaN and infinities.
 */
export function encodeNf4Packed(
  values: Float32Array,
  count: number,
  blockSize: number,
  packed: Uint8Array,
  absmax: Float32Array,
): void {
  checkPacked(packed, count, absmax, blockSize, values)
  const bad = findNonFinite(values, 0, count)
  if (bad >= 0) refuseValue('nf4', values, bad, count)
  for (let i = 0; i < count; i += blockSize) {
    const end = Math.min(i + blockSize, count)
    let max = 0
    for (let k = i; k < end; k++) max = Math.max(max, Math.abs(values[k]!))
    absmax[i / blockSize] = max
    const divisor = max === 0 ? 1 : max
    for (let k = i, p = i / 2; k < end; k += 2, p++) {
      const high = encodeNf4(values[k]! / divisor)
      packed[p] = (high << 4) | (k + 1 < end ? encodeNf4(values[k + 1]! / divisor) : 7)
    }
  }
}

function checkPacked(
  packed: Uint8Array,
  count: number,
  absmax: Float32Array,
  blockSize: number,
  floats: Float32Array,
): void {
  if (!Number.isSafeInteger(blockSize) || blockSize < 2 || blockSize % 2 !== 0)
    throw new ModelFormatError('QUANT_UNSUPPORTED', {
      what: 'NF4 block size is not a positive even number',
      got: blockSize,
    })
  checkMatrix('nf4', packed.length, Math.ceil(count / 2), floats.length, count)
  checkMatrix('nf4 absmax', absmax.length * 4, Math.ceil(count / blockSize) * 4, 0, 0)
}
