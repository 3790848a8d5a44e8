// Scales and minima of panel blocks: what can be stored, rounded how, and the per-tensor exponent.
import { halfFromFloatBits, halfTable } from './half.ts'
import { bitsToFloat, floatBits } from './minifloat.ts'
import type { PanelLayout } from './panel-layout.ts'
import type { PanelEncoding, PanelSchemeName } from './scheme.ts'

/** Largest code magnitude of a scheme: the largest scale of a tensor is absmax divided by this. */
const LARGEST_CODE: Readonly<Record<PanelSchemeName, number>> = {
  int8: 127,
  int4: 7,
  // Minima are stored like scales, and are the larger of the two.
  int4m: 1,
  nf4: 1,
  fp8_e4m3: 448,
  fp8_e5m2: 57344,
}

/**
 * The exponent for a tensor whose largest magnitude is `absMax`: the largest stored float16 scale or minimum lands in
 * [2^13, 2^14), which leaves room above and keeps scales normal down to 2^-27 of the largest. 0 for float32 scales.
 */
export function choosePanelExponent(scheme: PanelSchemeName, scale: PanelEncoding['scale'], absMax: number): number {
  if (scale === 'f32' || absMax === 0) return 0
  const largest = Math.fround(absMax / LARGEST_CODE[scheme])
  // A denormal or zero quotient reads as exponent -127: the clamp below takes it.
  const exponent = ((floatBits(largest) >>> 23) & 0xff) - 127 - 13
  return Math.max(-126, Math.min(127, exponent))
}

/** Magnitude that no value of the tensor exceeds, as seen so far: feed it chunk by chunk. NaN and infinities are skipped. */
export function absMaxOf(values: Float32Array, soFar = 0): number {
  let max = soFar
  for (let i = 0; i < values.length; i++) {
    const a = Math.abs(values[i]!)
    if (a > max && a !== Number.POSITIVE_INFINITY) max = a
  }
  return max
}

/**
 * Scales of one encoding. Stored numbers are held as their bits (float16 or float32); `overflow` bits mean that the number is
 * too large to store. Encoders of integer and FP8 codes keep float32 scales to 16 significant bits, so that scale·code is
 * exact in float32 and encoding decoded values again finds the same scale.
 */
export class ScaleFormat {
  readonly #half: boolean
  readonly #divide: number
  readonly #multiply: number
  /** Low bits that a scale leaves zero. */
  readonly #spare: number

  constructor(layout: PanelLayout, exactProducts: boolean) {
    this.#half = layout.scaleBytes === 2
    this.#multiply = layout.multiplier
    this.#divide = 1 / layout.multiplier
    this.#spare = !this.#half && exactProducts ? 8 : 0
  }

  /** Bits of the nearest number that can be stored (ties to even). */
  nearest(x: number): number {
    const bits = floatBits(x * this.#divide)
    if (this.#half) return halfFromFloatBits(bits)
    if (this.#spare === 0) return bits
    const rounded = bits + 0x7f + ((bits >>> 8) & 1)
    return (rounded & 0xffffff00) >>> 0
  }

  /** Bits of the largest number that can be stored and is not above x. */
  floor(x: number): number {
    const bits = this.nearest(x)
    if (this.value(bits) <= x) return bits
    // Below a positive number lies the code before it, below a negative one (or zero) the code after it.
    return this.#isPositive(bits) ? bits - this.step : bits + this.step
  }

  /** Bits of a scale near x > 0 (within 2^-7, never 0 in float16) whose multiples by 0…15 can all be stored. */
  coarse(x: number): number {
    const bits = this.nearest(x)
    return this.#half ? Math.max(16, (bits + 8) & ~15) : bits
  }

  /** Distance between neighbouring codes. */
  get step(): number {
    return 1 << this.#spare
  }

  /** The number that is applied: float32, exponent included. */
  value(bits: number): number {
    return Math.fround((this.#half ? halfTable()[bits]! : bitsToFloat(bits)) * this.#multiply)
  }

  overflows(bits: number): boolean {
    return this.#half ? (bits & 0x7fff) >= 0x7c00 : (bits & 0x7fffffff) >= 0x7f800000
  }

  write(bits: number, out: Uint8Array, at: number): void {
    out[at] = bits
    out[at + 1] = bits >>> 8
    if (this.#half) return
    out[at + 2] = bits >>> 16
    out[at + 3] = bits >>> 24
  }

  #isPositive(bits: number): boolean {
    return this.#half ? bits !== 0 && bits < 0x8000 : bits !== 0 && bits < 0x80000000
  }
}
