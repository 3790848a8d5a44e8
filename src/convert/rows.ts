// Rows of one source tensor, as numbers or as stored bytes: from disk, or from memory once the tensor was taken in.
import { throwIfAborted } from '../base/errors.ts'
import { codecOf, encodedBytes } from '../quant/codec.ts'
import type { RowCodec } from '../quant/scheme.ts'
import type { LazyTensor } from '../tensor/lazy.ts'
import { type Buffers, HELD_BYTES, rowRanges } from './buffers.ts'

export class RowInput {
  readonly #tensor: LazyTensor
  readonly #buffers: Buffers
  readonly #signal: AbortSignal | undefined
  #held: Uint8Array | undefined
  #codec: RowCodec | undefined

  constructor(tensor: LazyTensor, buffers: Buffers, signal: AbortSignal | undefined) {
    this.#tensor = tensor
    this.#buffers = buffers
    this.#signal = signal
  }

  /**
   * Takes the tensor into memory when it is small enough, so that what is looked at twice is read once. Strided and LINEAR
   * tensors, which are decoded by more than a codec, stay on disk.
   */
  async hold(): Promise<void> {
    const { entry } = this.#tensor
    if (entry.byteLength > HELD_BYTES || entry.strides !== undefined || entry.linear !== undefined) return
    const held = this.#buffers.held(entry.byteLength)
    for (const [a, b] of rowRanges(entry.rows, entry.cols)) {
      throwIfAborted(this.#signal)
      held.set(await this.stored(a, b), encodedBytes(entry.encoding, a, entry.cols))
    }
    this.#codec = codecOf(entry.encoding)
    this.#held = held
  }

  /** Rows [from, to) as float32 [to − from, cols]; `from` on whole panels. Valid until the next call. */
  async rows(from: number, to: number): Promise<Float32Array> {
    if (this.#held === undefined) return this.#tensor.rows(from, to, this.#signal && { signal: this.#signal })
    const { encoding, cols } = this.#tensor.entry
    const start = encodedBytes(encoding, from, cols)
    const values = this.#buffers.values((to - from) * cols)
    const bytes = this.#held.subarray(start, start + encodedBytes(encoding, to - from, cols))
    this.#codec!.decode(bytes, to - from, cols, values)
    return values
  }

  /** Ranges of rows that stored() gives: all at once where elements are not one after the other. */
  storedRanges(): Iterable<[number, number]> {
    const { rows, cols, strides } = this.#tensor.entry
    return strides === undefined ? rowRanges(rows, cols) : [[0, rows]]
  }

  /** Stored bytes of rows [from, to), in memory of their own. */
  stored(from: number, to: number): Promise<Uint8Array> {
    return this.#tensor.rowBytes(from, to, this.#signal && { signal: this.#signal })
  }
}
