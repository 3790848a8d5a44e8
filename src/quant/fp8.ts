// 8-bit floating point as in "FP8 Formats for Deep Learning" (arXiv:2209.05433) and the OCP 8-bit specification:
// E4M3FN (bias 7, largest 448, no infinities, NaN = 0x7f and 0xff) and E5M2 (bias 15, largest 57344, IEEE infinities and NaNs).
import { ConversionError } from '../base/errors.ts'
import { floatBits, narrowMagnitude, widenMagnitude } from './minifloat.ts'

/** One of the two 8-bit floating-point formats. */
export interface Fp8Format {
  readonly name: 'fp8_e4m3' | 'fp8_e5m2'
  readonly mantissaBits: number
  readonly bias: number
  /** Largest finite code, and its value. */
  readonly maxCode: number
  readonly max: number
  /** Value of each of the 256 codes. */
  readonly values: Float32Array
}

function fp8Format(name: Fp8Format['name'], mantissaBits: number, bias: number, maxCode: number): Fp8Format {
  const values = new Float32Array(256).fill(Number.NaN)
  for (let code = 0; code <= maxCode; code++) {
    values[code] = widenMagnitude(code, mantissaBits, bias)
    values[code | 0x80] = -values[code]!
  }
  if (name === 'fp8_e5m2') {
    values[0x7c] = Number.POSITIVE_INFINITY
    values[0xfc] = Number.NEGATIVE_INFINITY
  }
  return { name, mantissaBits, bias, maxCode, max: values[maxCode]!, values }
}

/** OCP E4M3 (E4M3FN): finite up to 448, no infinities. */
export const E4M3 = fp8Format('fp8_e4m3', 3, 7, 0x7e)
/** OCP E5M2: finite up to 57344, with infinities. */
export const E5M2 = fp8Format('fp8_e5m2', 2, 15, 0x7b)

/** Code of a finite float32 given by its bits: nearest, ties to even; magnitudes above the largest become the largest. */
export function fp8Saturating(format: Fp8Format, bits: number): number {
  const code = narrowMagnitude(bits & 0x7fffffff, format.mantissaBits, format.bias)
  return ((bits >>> 24) & 0x80) | Math.min(code, format.maxCode)
}

/** Code of x (taken as float32). Throws QUANT_RANGE for NaN, infinities and what would round past the largest value. */
export function encodeFp8(format: Fp8Format, x: number): number {
  const bits = floatBits(x)
  const magnitude = bits & 0x7fffffff
  const finite = magnitude < 0x7f800000
  if (!finite || narrowMagnitude(magnitude, format.mantissaBits, format.bias) > format.maxCode)
    throw new ConversionError('QUANT_RANGE', {
      what: `value cannot be represented in ${format.name}`,
      expected: `a number of magnitude up to ${format.max}`,
      got: String(x),
      details: { value: x },
    })
  return fp8Saturating(format, bits)
}

/** Decodes `count` codes into `out`. */
export function decodeFp8(format: Fp8Format, bytes: Uint8Array, count: number, out: Float32Array): void {
  const values = format.values
  for (let i = 0; i < count; i++) out[i] = values[bytes[i]!]!
}
