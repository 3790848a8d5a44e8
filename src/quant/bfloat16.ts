// bfloat16 (the upper half of a float32) to and from float32.
import { bitsToFloat, floatBits } from './minifloat.ts'

/** bfloat16 code of a float32 given by its bits: nearest, ties to even; overflow becomes infinity, NaN stays a (quiet) NaN. */
export function bfloat16FromFloatBits(bits: number): number {
  if ((bits & 0x7fffffff) > 0x7f800000) return (bits >>> 16) | 0x40
  return (bits + 0x7fff + ((bits >>> 16) & 1)) >>> 16
}

/** bfloat16 code of x (taken as float32). */
export function floatToBfloat16(x: number): number {
  return bfloat16FromFloatBits(floatBits(x))
}

/** Value of a bfloat16 code: exact. */
export function bfloat16ToFloat(code: number): number {
  return bitsToFloat(code << 16)
}

/** Decodes `count` bfloat16 from `bytes` (any alignment) into `out`. */
export function decodeBfloat16(bytes: Uint8Array, count: number, out: Float32Array, bigEndian = false): void {
  const bits = new Int32Array(out.buffer, out.byteOffset, out.length)
  const low = bigEndian ? 1 : 0
  const high = 1 - low
  for (let i = 0, p = 0; i < count; i++, p += 2) bits[i] = (bytes[p + low]! << 16) | (bytes[p + high]! << 24)
}

/**
 * Encodes `count` float32 as bfloat16. Returns the index of the first finite value that overflowed to infinity, or -1.
 * Infinities and NaNs are kept.
 */
export function encodeBfloat16(values: Float32Array, count: number, out: Uint8Array, bigEndian = false): number {
  const bits = new Uint32Array(values.buffer, values.byteOffset, values.length)
  const low = bigEndian ? 1 : 0
  const high = 1 - low
  let overflow = -1
  for (let i = 0, p = 0; i < count; i++, p += 2) {
    const h = bfloat16FromFloatBits(bits[i]!)
    if ((h & 0x7fff) === 0x7f80 && overflow < 0 && (bits[i]! & 0x7fffffff) < 0x7f800000) overflow = i
    out[p + low] = h
    out[p + high] = h >>> 8
  }
  return overflow
}
