// Memory a conversion works in: the same few buffers for every tensor, so that its peak does not depend on the model.
import { PANEL_ROWS } from '../quant/scheme.ts'

/** float32 bytes worked on at a time. */
const CHUNK_BYTES = 4 * 1024 * 1024

/** Tensors stored in at most this are read once and kept while they are measured and encoded; larger ones are read twice. */
export const HELD_BYTES = 64 * 1024 * 1024

/** Ranges of rows worked on at a time: whole panels. */
export function* rowRanges(rows: number, cols: number): Generator<[number, number]> {
  const at = Math.max(PANEL_ROWS, Math.floor(CHUNK_BYTES / Math.max(1, cols * 4) / PANEL_ROWS) * PANEL_ROWS)
  for (let r = 0; r < rows; r += at) yield [r, Math.min(rows, r + at)]
}

/** Each grows to the largest size asked for. What one returns is valid until it is asked again. */
export class Buffers {
  #held = new Uint8Array(0)
  #encoded = new Uint8Array(0)
  #values = new Float32Array(0)
  #decoded = new Float32Array(0)

  held(length: number): Uint8Array {
    if (this.#held.length < length) this.#held = new Uint8Array(length)
    return this.#held.subarray(0, length)
  }

  encoded(length: number): Uint8Array {
    if (this.#encoded.length < length) this.#encoded = new Uint8Array(length)
    return this.#encoded.subarray(0, length)
  }

  values(length: number): Float32Array {
    if (this.#values.length < length) this.#values = new Float32Array(length)
    return this.#values.subarray(0, length)
  }

  decoded(length: number): Float32Array {
    if (this.#decoded.length < length) this.#decoded = new Float32Array(length)
    return this.#decoded.subarray(0, length)
  }
}
