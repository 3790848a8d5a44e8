// The contract of the maths. A kernel set is bound to one memory; every pointer is a byte offset into it, every matrix and
// activation lives there. scalar/ (plain TypeScript, the truth), wasm/ (baseline and relaxed SIMD) and later native/ implement it
// under the same names.
//
// Rules that make results independent of threads, chunking and page borders:
// - one call computes whole dot products, in an order that depends on `cols` and the encoding alone, never on `rows` or `tokens`;
// - no kernel keeps state between calls.
//
// Activations: float32 [tokens, stride], stride in floats ≥ cols rounded up to 64, the padding holds zeros. Outputs write only
// their own columns. Pointers are multiples of 4; activation rows start at multiples of 64 bytes. Weights may start anywhere.

export type KernelSetName = 'scalar' | 'wasm-baseline' | 'wasm-relaxed'

/** Encodings that kernels compute with. `rows` formats are plain row-major; `panel` formats as in docs/FORMAT.md. */
export const COMPUTE = {
  f32: 0,
  f16: 1,
  bf16: 2,
  int8: 3,
  int4: 4,
  int4m: 5,
  nf4: 6,
  fp8_e4m3: 7,
  fp8_e5m2: 8,
} as const
export type ComputeName = keyof typeof COMPUTE
export type ComputeId = (typeof COMPUTE)[ComputeName]

/** A run of rows of a matrix in memory: the rows of a page, or a thread's share of them. */
export interface MatrixBlock {
  encoding: ComputeId
  /** Address of the first row (rows formats) or of the first panel (panel formats: row 0 is row 0 of that panel). */
  address: number
  /** Rows to compute; panel formats may end inside the last panel. */
  rows: number
  cols: number
  /** Panel formats: columns a block, 32 or 64. */
  block: number
  /** Panel formats: 1 when scales are float32, else float16. */
  scaleF32: number
  /** Panel formats: 2^exponent of PanelEncoding. */
  multiplier: number
}

export interface AttentionCall {
  /** float32 [tokens, qStride], heads of headDim side by side; already rotated. */
  q: number
  qStride: number
  /** Output, float32 [tokens, yStride]. */
  y: number
  yStride: number
  heads: number
  kvHeads: number
  headDim: number
  /** Heads this call computes: [headStart, headEnd). */
  headStart: number
  headEnd: number
  tokens: number
  /** Position of the first token; token t attends to positions ≤ position + t. */
  position: number
  /** Address of uint32 page addresses: page i holds positions [i·pageTokens, …). A page: keys [kvHeads, pageTokens, headDim], then values the same. */
  pages: number
  pageTokens: number
  /** Cache element: 0 float32, 1 float16. */
  kvF16: number
  /** Scores are multiplied by this (1/√headDim). */
  scale: number
  /** 0 = none, else only the last `window` positions. */
  window: number
  /** Scratch for scores, for this thread alone: attentionScratch(position + tokens) bytes (compute.ts). */
  scratch: number
}

export interface Kernels {
  readonly set: KernelSetName

  /** Rows to float32 [rows, outStride]. */
  decode(m: MatrixBlock, out: number, outStride: number): void

  /**
   * exact: y[t, r] = (accumulate ? y[t, r] : 0) + alpha·Σ_c W[r, c]·x[t, c] for r < rows, t < tokens; float32 activations and accumulation.
   * y points at the column of row 0; yStride in floats. alpha is applied once, to the finished sum.
   */
  matMul(
    m: MatrixBlock,
    x: number,
    xStride: number,
    y: number,
    yStride: number,
    tokens: number,
    accumulate: number,
    alpha: number,
  ): void

  /** Bytes that quantized activations of `cols` columns take for a token, with the given block (32 or 64). A multiple of 64. */
  quantizedStride(cols: number, block: number): number
  /** fast: activations as int8 blocks with a float32 scale (and what the integer kernels want precomputed), to `out`. */
  quantize(x: number, xStride: number, cols: number, block: number, tokens: number, out: number): void
  /** fast: like matMul, over quantized activations; panel formats only (others use matMul). Integer dot products in a block, float32 between blocks. */
  matMulQ(
    m: MatrixBlock,
    xq: number,
    y: number,
    yStride: number,
    tokens: number,
    accumulate: number,
    alpha: number,
  ): void

  /** y[t] = x[t] / sqrt(mean(x[t]²) + epsilon) · (offset + weight); weight float32 [dim]. x and y may be the same. */
  rmsNorm(
    x: number,
    xStride: number,
    weight: number,
    y: number,
    yStride: number,
    dim: number,
    epsilon: number,
    offset: number,
    tokens: number,
  ): void
  /**
   * Rotates in place. table: float32 [tokens, rotaryDim/2, 2] (cos, sin). interleaved = 1 pairs (2i, 2i+1), 0 pairs (i, i+rotaryDim/2).
   * Dimensions from rotaryDim on stay as they are.
   */
  rope(
    x: number,
    xStride: number,
    heads: number,
    headDim: number,
    rotaryDim: number,
    interleaved: number,
    table: number,
    tokens: number,
  ): void
  /** Writes keys and values (float32 [tokens, stride], rotated) of positions position…position+tokens-1 into their pages, for kv heads [headStart, headEnd). */
  kvAppend(
    k: number,
    v: number,
    stride: number,
    pages: number,
    pageTokens: number,
    kvF16: number,
    kvHeads: number,
    headDim: number,
    headStart: number,
    headEnd: number,
    position: number,
    tokens: number,
  ): void
  attention(call: AttentionCall): void
  /** y = silu(gate)·up over columns [from, to). */
  swiglu(gate: number, up: number, y: number, stride: number, from: number, to: number, tokens: number): void
  /** y += alpha·x over columns [from, to). */
  add(
    x: number,
    xStride: number,
    y: number,
    yStride: number,
    from: number,
    to: number,
    tokens: number,
    alpha: number,
  ): void
  /** x = softmax(x) over n values, in place. */
  softmax(x: number, n: number): void

  /** Re-lays ggml rows into panels: Q4_0 → int4 block 32, Q8_0 → int8 block 32 (bit-equal numbers). rows may end inside a panel; missing rows become zero. src and dst do not overlap. */
  repackQ4_0(src: number, dst: number, rows: number, cols: number): void
  repackQ8_0(src: number, dst: number, rows: number, cols: number): void
}
