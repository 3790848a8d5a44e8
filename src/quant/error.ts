// How far a quantized tensor is from the original, counted chunk by chunk in float64.
import { SluiceError } from '../base/errors.ts'

/** How far decoded numbers are from the original ones. */
export interface QuantError {
  readonly count: number
  /** Square root of the mean squared error. */
  readonly rmse: number
  /** RMSE divided by the RMS of the original: 0 when both are 0, Infinity when only the original is. */
  readonly relativeRmse: number
  readonly maxAbs: number
  /** Element (in the order pushed) with the largest error; -1 when there is none. */
  readonly maxAt: number
}

/** Adds up the error of a tensor chunk by chunk. */
export class QuantErrorMeter {
  #count = 0
  #squares = 0
  #originalSquares = 0
  #maxAbs = 0
  #maxAt = -1

  /** Adds a chunk: the same elements before and after. A NaN on either side makes the result NaN. */
  push(original: Float32Array, decoded: Float32Array): void {
    if (original.length !== decoded.length)
      throw new SluiceError('INTERNAL', {
        what: 'chunks of different length',
        expected: original.length,
        got: decoded.length,
      })
    let squares = 0
    let originalSquares = 0
    let maxAbs = this.#maxAbs
    for (let i = 0; i < original.length; i++) {
      const x = original[i]!
      const d = Math.abs(decoded[i]! - x)
      squares += d * d
      originalSquares += x * x
      if (d > maxAbs) {
        maxAbs = d
        this.#maxAt = this.#count + i
      }
    }
    this.#count += original.length
    this.#squares += squares
    this.#originalSquares += originalSquares
    this.#maxAbs = maxAbs
  }

  result(): QuantError {
    const count = this.#count
    const rmse = count === 0 ? 0 : Math.sqrt(this.#squares / count)
    const rms = count === 0 ? 0 : Math.sqrt(this.#originalSquares / count)
    return {
      count,
      rmse,
      relativeRmse: rmse === 0 ? 0 : rmse / rms,
      maxAbs: Number.isNaN(this.#squares) ? Number.NaN : this.#maxAbs,
      maxAt: this.#maxAt,
    }
  }
}
