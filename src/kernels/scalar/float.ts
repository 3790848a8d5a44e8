// Float conversions and functions, with the roundings of the SIMD kernels: every step is rounded to float32.

const f = Math.fround
const word = new Uint32Array(1)
const asFloat = new Float32Array(word.buffer)

function fromBits(bits: number): number {
  word[0] = bits
  return asFloat[0]!
}

/** IEEE binary16 → float32, exact; NaN stays NaN. */
export function halfToFloat(h: number): number {
  const sign = (h & 0x8000) << 16
  const exponent = (h >> 10) & 31
  const fraction = h & 0x3ff
  if (exponent === 31) return fromBits(sign | 0x7f800000 | (fraction << 13))
  if (exponent === 0) return (sign === 0 ? 1 : -1) * fraction * 2 ** -24
  return fromBits(sign | ((exponent + 112) << 23) | (fraction << 13))
}

/** halfToFloat for a factor of a product: a NaN becomes an infinity of its sign, which costs SIMD kernels less and shows as well. */
export function halfToFactor(h: number): number {
  const value = halfToFloat(h)
  return Number.isNaN(value) ? (h & 0x8000 ? -Infinity : Infinity) : value
}

/** float32 → IEEE binary16, to nearest even; overflow becomes infinity, NaN the quiet NaN 0x7e00 with its sign. */
export function floatToHalf(value: number): number {
  asFloat[0] = value
  const bits = word[0]!
  const sign = (bits >>> 16) & 0x8000
  const magnitude = bits & 0x7fffffff
  if (magnitude > 0x7f800000) return sign | 0x7e00
  if (magnitude >= 0x477ff000) return sign | 0x7c00
  if (magnitude < 0x38800000) {
    // Below the smallest normal: adding 0.5 lets the float unit round at bit 2^-24.
    asFloat[0] = f(fromBits(magnitude) + 0.5)
    return sign | (word[0]! - 0x3f000000)
  }
  return sign | ((magnitude - 0x38000000 + 0xfff + ((magnitude >>> 13) & 1)) >>> 13)
}

/** OCP FP8 E4M3 (finite only): bias 7, no infinities, 0x7f and 0xff are NaN. */
export function e4m3ToFloat(byte: number): number {
  const exponent = (byte >> 3) & 15
  const fraction = byte & 7
  const sign = (byte & 0x80) << 24
  if ((byte & 0x7f) === 0x7f) return Number.NaN
  if (exponent === 0) return (sign === 0 ? 1 : -1) * fraction * 2 ** -9
  return fromBits(sign | ((exponent + 120) << 23) | (fraction << 20))
}

/** OCP FP8 E5M2: the upper byte of a binary16. */
export function e5m2ToFloat(byte: number): number {
  return halfToFloat(byte << 8)
}

/** bfloat16 → float32. */
export function bfloatToFloat(bits: number): number {
  return fromBits(bits << 16)
}

/** To the nearest integer, ties to even; |x| < 2^22. */
export function nearest(x: number): number {
  return f(f(x + 12582912) - 12582912)
}

const EXP_LOW = f(-87.33654)
const EXP_HIGH = f(88.37626)
const LOG2E = f(Math.LOG2E)
const LN2_HIGH = f(0.693359375)
const LN2_LOW = f(-2.1219444e-4)
const EXP_POLY = [
  1.98756915e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1,
].map(f) as [number, number, number, number, number, number]

/**
 * e^x in float32, within 2 ulp: range reduction by ln 2 and the polynomial of Cephes' expf. Below -87.3 it is 0, above 88.37
 * it stays at e^88.37. NaN gives NaN.
 */
export function exp32(x: number): number {
  const c = Math.min(Math.max(x, EXP_LOW), EXP_HIGH)
  const n = nearest(f(c * LOG2E))
  const r = f(f(c - f(n * LN2_HIGH)) - f(n * LN2_LOW))
  const [p0, p1, p2, p3, p4, p5] = EXP_POLY
  let p = f(f(p0 * r) + p1)
  p = f(f(p * r) + p2)
  p = f(f(p * r) + p3)
  p = f(f(p * r) + p4)
  p = f(f(p * r) + p5)
  p = f(f(f(p * f(r * r)) + r) + 1)
  if (x < EXP_LOW) return 0
  return f(p * fromBits((n + 127) << 23))
}
