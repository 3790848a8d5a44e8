// What a model is written through. Nothing stands under its final name before finish() returns.
import type { Encoding } from '../quant/scheme.ts'

/** One tensor to be written, in storage order. */
export interface PlannedTensor {
  readonly name: string
  readonly shape: readonly number[]
  readonly dtype: import('../base/dtype.ts').DType
  readonly encoding: Encoding
  readonly rows: number
  readonly cols: number
  /** Stored bytes. */
  readonly byteLength: number
  readonly aliasOf?: string
  readonly strides?: readonly number[]
  readonly layout?: string
  /** Standard LINEAR quantization: `encoding` is the stored integer type, `dtype` float32. */
  readonly linear?: import('./reader.ts').TensorEntry['linear']
  /** Store in the index instead of a shard: at most 1 MiB. Tensors without bytes always are. */
  readonly inline?: boolean
}

export interface ModelWriter {
  /** Fixes order, offsets and shards. Called once, before the first put. Returns the bytes the output will take. */
  plan(tensors: readonly PlannedTensor[]): { bytes: number; shards: number }
  /**
   * Streams a tensor's stored bytes, in plan order, in chunks of any size (a chunk may be reused when the next one is asked for).
   * `exponent` replaces the planned one of a panel encoding, which may be known only when the tensor was read.
   */
  put(
    name: string,
    chunks: AsyncIterable<Uint8Array> | Iterable<Uint8Array>,
    options?: { readonly exponent?: number },
  ): Promise<void>
  /** Writes index and side files, fsyncs, renames. */
  finish(): Promise<void>
  /** Removes what was written under temporary names. Safe at any time, twice. */
  abort(): Promise<void>
}
