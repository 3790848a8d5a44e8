// float16 (IEEE 754 binary16: 1 sign, 5 exponent, 10 mantissa bits, bias 15) to and from float32.
import { bitsToFloat, floatBits, narrowMagnitude, widenMagnitude } from './minifloat.ts'

let table: Float32Array | undefined

/** Value of each of the 65,536 codes. Made on first use (256 KiB). */
export function halfTable(): Float32Array {
  if (table !== undefined) return table
  const t = new Float32Array(65536)
  const bits = new Uint32Array(t.buffer)
  for (let code = 0; code < 0x7c00; code++) {
    t[code] = widenMagnitude(code, 10, 15)
    t[code | 0x8000] = -t[code]!
  }
  // Infinities, then NaNs with their payload.
  for (let code = 0x7c00; code < 0x8000; code++) {
    bits[code] = 0x7f800000 | ((code & 0x3ff) << 13)
    bits[code | 0x8000] = bits[code]! | 0x80000000
  }
  table = t
  return t
}

/** float16 code of a float32 given by its bits: nearest, ties to even; overflow becomes infinity, NaN stays a (quiet) NaN. */
export function halfFromFloatBits(bits: number): number {
  const sign = (bits >>> 16) & 0x8000
  const magnitude = bits & 0x7fffffff
  if (magnitude >= 0x47800000) return sign | (magnitude > 0x7f800000 ? 0x7e00 | ((magnitude >>> 13) & 0x3ff) : 0x7c00)
  return sign | narrowMagnitude(magnitude, 10, 15)
}

/** float16 code of x (taken as float32). */
export function floatToHalf(x: number): number {
  return halfFromFloatBits(floatBits(x))
}

/** Value of a float16 code. */
export function halfToFloat(code: number): number {
  const magnitude = code & 0x7fff
  if (magnitude >= 0x7c00) return bitsToFloat(((code & 0x8000) << 16) | 0x7f800000 | ((code & 0x3ff) << 13))
  const value = widenMagnitude(magnitude, 10, 15)
  return (code & 0x8000) === 0 ? value : -value
}

/** Decodes `count` float16 from `bytes` (any alignment) into `out`. */
export function decodeHalf(bytes: Uint8Array, count: number, out: Float32Array, bigEndian = false): void {
  const values = halfTable()
  const low = bigEndian ? 1 : 0
  const high = 1 - low
  for (let i = 0, p = 0; i < count; i++, p += 2) out[i] = values[bytes[p + low]! | (bytes[p + high]! << 8)]!
}

/**
 * Encodes `count` float32 as float16. Returns the index of the first finite value that overflowed to infinity (65,520 and
 * above), or -1. Infinities and NaNs are kept.
 */
export function encodeHalf(values: Float32Array, count: number, out: Uint8Array, bigEndian = false): number {
  const bits = new Uint32Array(values.buffer, values.byteOffset, values.length)
  const low = bigEndian ? 1 : 0
  const high = 1 - low
  let overflow = -1
  for (let i = 0, p = 0; i < count; i++, p += 2) {
    const h = halfFromFloatBits(bits[i]!)
    if ((h & 0x7fff) === 0x7c00 && overflow < 0 && (bits[i]! & 0x7fffffff) < 0x7f800000) overflow = i
    out[p + low] = h
    out[p + high] = h >>> 8
  }
  return overflow
}
