// The contract of number formats: how a matrix's numbers lie in bytes. Implementations are siblings, one file a format.

/** Block formats of wia.block_quant, in row panels (docs/FORMAT.md, "Row panels"). */
export type PanelSchemeName = 'int8' | 'int4' | 'int4m' | 'nf4' | 'fp8_e4m3' | 'fp8_e5m2'

/** Rows in a panel: the unit of quantized layout, partial loading and work division. */
export const PANEL_ROWS = 16

/**
 * How a matrix's numbers are stored.
 * - `plain`: one element after another, row-major, little-endian unless `bigEndian`.
 * - `panel`: 16-row panels of blocks: codes, 16 scales, 16 minima if the scheme has them.
 * - `ggml`: rows of ggml blocks, as GGUF files have them.
 * - `opaque`: rows of blocks of a known size and no decoder yet: can be listed and copied, not read as numbers.
 */
export type Encoding =
  | { readonly kind: 'plain'; readonly dtype: import('../base/dtype.ts').DType; readonly bigEndian?: boolean }
  | PanelEncoding
  | { readonly kind: 'ggml'; readonly type: GgmlType; readonly bigEndian?: boolean }
  | OpaqueEncoding

/** Rows of blocks that have no decoder yet. */
export interface OpaqueEncoding {
  readonly kind: 'opaque'
  /** As its format names it: 'Q4_K'. */
  readonly type: string
  /** Columns and bytes of a block. */
  readonly block: number
  readonly blockBytes: number
  readonly bigEndian?: boolean
}

/** Row panels of quantized blocks (docs/FORMAT.md). */
export interface PanelEncoding {
  readonly kind: 'panel'
  readonly scheme: PanelSchemeName
  /** Columns a block has: 32 or 64. */
  readonly block: 32 | 64
  /** Scales and minima as float16 or float32. */
  readonly scale: 'f16' | 'f32'
  /** Every scale and minimum is to be multiplied by 2^exponent: keeps float16 scales out of the denormals. */
  readonly exponent: number
}

/** ggml block types with a decoder: all that files have (Q8_1 and Q8_K exist in memory only). */
export type GgmlType =
  | 'Q4_0'
  | 'Q4_1'
  | 'Q5_0'
  | 'Q5_1'
  | 'Q8_0'
  | 'Q2_K'
  | 'Q3_K'
  | 'Q4_K'
  | 'Q5_K'
  | 'Q6_K'
  | 'IQ1_S'
  | 'IQ1_M'
  | 'IQ2_XXS'
  | 'IQ2_XS'
  | 'IQ2_S'
  | 'IQ3_XXS'
  | 'IQ3_S'
  | 'IQ4_NL'
  | 'IQ4_XS'
  | 'TQ1_0'
  | 'TQ2_0'
  | 'MXFP4'
  | 'NVFP4'
  | 'Q1_0'
  | 'Q2_0'

/** A matrix format: pure functions over whole row groups. */
export interface RowCodec {
  /** Rows that are encoded together (16 for panels, 1 for rows of ggml blocks and plain rows). */
  readonly rowGroup: number
  /** Bytes that `rows` rows (a multiple of rowGroup, or the last rows of a matrix) of `cols` columns take. */
  byteLength(rows: number, cols: number): number
  /** Decodes rows 0…rows-1 to float32, row-major [rows, cols]. */
  decode(bytes: Uint8Array, rows: number, cols: number, out: Float32Array): void
  /** Encodes float32 [rows, cols]. Absent where only reading is implemented. Throws QUANT_RANGE for what cannot be represented (NaN, infinities, overflow). */
  encode?(values: Float32Array, rows: number, cols: number, out: Uint8Array): void
}
