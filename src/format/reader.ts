// What every model on disk looks like to the rest of the package: an index, nothing else. No tensor byte is read by opening.
import type { DType } from '../base/dtype.ts'
import type { JsonObject } from '../base/json.ts'
import type { Encoding } from '../quant/scheme.ts'
import type { ByteSource } from '../source/source.ts'

/** A run of whole rows of a tensor in one source. A tensor split over shards has several, in row order. */
export interface Segment {
  /** Index into ModelReader.sources. */
  readonly source: number
  /** Bytes from the start of the source. */
  readonly offset: number
  readonly length: number
  /** First row (index along axis 0 of the matrix view, see TensorEntry.rows) and how many. */
  readonly rowStart: number
  readonly rows: number
}

/** Checksums of a tensor's pages: page i covers rows [i·rowsPerPage, (i+1)·rowsPerPage) of the tensor. */
export interface PageTable {
  readonly rowsPerPage: number
  readonly count: number
  /** SHA-256 of page i, 32 bytes. The table is read on first use. */
  sha256(page: number): import('../source/source.ts').MaybePromise<Uint8Array>
}

export interface TensorEntry {
  readonly name: string
  readonly shape: readonly number[]
  /** What an element is to a reader: a quantized tensor decodes to float32. */
  readonly dtype: DType
  readonly encoding: Encoding
  /** Matrix view: all leading axes flattened to rows, last axis = cols. A vector is 1 row; a scalar is 1×1. */
  readonly rows: number
  readonly cols: number
  /** Stored bytes, all segments. */
  readonly byteLength: number
  readonly segments: readonly Segment[]
  /** In elements, when not contiguous row-major (WIA strides). */
  readonly strides?: readonly number[]
  readonly layout?: 'row-major' | 'channels-last' | 'nd-hwc' | 'packed-int8'
  /** Standard quantization of the WIA text: r = (q − zeroPoint)·scale, per tensor or per channel. */
  readonly linear?: {
    readonly scales: readonly number[]
    readonly zeroPoints: readonly number[]
    readonly axis?: number
    readonly scheme: 'linear' | 'logarithmic'
  }
  readonly pages?: PageTable
  /** SHA-256 (hex) of the whole tensor's stored bytes, where the format has one. */
  readonly checksum?: string
  /** This tensor shares the bytes of another one. */
  readonly aliasOf?: string
  /** Its bytes stand in the index itself. */
  readonly inline?: boolean
}

/** An adapter packaged with a model. */
export interface PackagedAdapter {
  readonly name: string
  /** Directory that holds adapter_config.json and adapter_model.safetensors. */
  readonly path: string
  /** Reads the adapter's files and compares them with the SHA-256 the package states. Absent where there are none. Throws CHECKSUM_MISMATCH. */
  check?(): Promise<void>
}

export type ModelFormatName = 'wia' | 'safetensors' | 'gguf'

export interface ModelReader {
  readonly format: ModelFormatName
  /** The path or URL that was opened. */
  readonly path: string
  readonly sources: readonly ByteSource[]
  /** In storage order. Aliases come after what they alias. */
  readonly tensors: ReadonlyMap<string, TensorEntry>
  /** config.json of a checkpoint, key/value metadata of a GGUF, or the model's own configuration in a package. */
  readonly config: JsonObject
  /** Model metadata (name, licence, …) as far as the format has it. */
  readonly metadata: JsonObject
  /** architecture.json, where the format has a graph of its own. */
  readonly architecture?: JsonObject
  /** Tokenizer files by name (tokenizer.json, tokenizer_config.json, chat_template.jinja …), read on demand. GGUF vocabularies are in `config`. */
  readonly tokenizerFiles: ReadonlyMap<string, () => Promise<Uint8Array>>
  readonly adapters: readonly PackagedAdapter[]
  /** What a package's manifest says of its numbers beyond the tensors: extensions (which a reader may ignore, with their data) and quantization. */
  readonly remarks?: {
    readonly extensions: { readonly used: readonly string[]; readonly data?: JsonObject }
    readonly quantization?: JsonObject
  }
  /** Further files that belong to the model, by path from its root (a package's config/, metadata/ and adapters/), read on demand. */
  readonly sideFiles?: ReadonlyMap<string, () => Promise<Uint8Array>>
  /** SHA-256 (hex) that identifies the model: of the canonical manifest for a package, of the index for others. */
  readonly identity: string
  /** Bytes read by opening. */
  readonly bytesRead: number
  close(): Promise<void>
}
