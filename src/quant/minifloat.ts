// Small binary floating-point formats (float16, FP8): rounding float32 bits to fewer bits, and the value of a code.

const SCRATCH = new Float32Array(1)
const SCRATCH_BITS = new Uint32Array(SCRATCH.buffer)

/** Bits of x as float32. */
export function floatBits(x: number): number {
  SCRATCH[0] = x
  return SCRATCH_BITS[0]!
}

/** The float32 that has these bits. */
export function bitsToFloat(bits: number): number {
  SCRATCH_BITS[0] = bits
  return SCRATCH[0]!
}

/**
 * Rounds the magnitude of a finite float32 (its bits without the sign) to a format with `mantissaBits` and the given exponent
 * bias: nearest, ties to even, denormals included. The result is not limited: it may run past the largest finite code, and the
 * caller decides what that means.
 */
export function narrowMagnitude(magnitude: number, mantissaBits: number, bias: number): number {
  const shift = 23 - mantissaBits
  const deficit = 128 - bias - (magnitude >>> 23)
  if (deficit <= 0)
    return (magnitude - ((127 - bias) << 23) + ((1 << (shift - 1)) - 1) + ((magnitude >>> shift) & 1)) >>> shift
  // Denormal in the target: units of 2^(1 - bias - mantissaBits). Below half a unit everything is 0.
  const drop = shift + deficit
  if (drop > 24) return 0
  const m = (magnitude & 0x7fffff) | 0x800000
  const q = m >>> drop
  const rest = m & ((1 << drop) - 1)
  const half = 1 << (drop - 1)
  return rest > half || (rest === half && (q & 1) === 1) ? q + 1 : q
}

/** Value of a finite code without its sign. */
export function widenMagnitude(code: number, mantissaBits: number, bias: number): number {
  const exponent = code >>> mantissaBits
  const mantissa = (code & ((1 << mantissaBits) - 1)) / 2 ** mantissaBits
  return exponent === 0 ? mantissa * 2 ** (1 - bias) : (1 + mantissa) * 2 ** (exponent - bias)
}
