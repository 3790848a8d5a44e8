// What a decoder of the Llama shape is made of: everything its families differ in, as plain data. A family's reader fills it in,
// decoder.ts turns it into a graph.
import type { Rope } from './rope.ts'

export interface Dimensions {
  readonly vocabulary: number
  readonly hidden: number
  readonly inner: number
  readonly layers: number
  readonly heads: number
  readonly kvHeads: number
  readonly headDim: number
}

/** What a family may change of a plain Llama. Left out: as in Llama. */
export interface Features {
  /** Projections with a bias: q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj, down_proj. */
  readonly biases?: ReadonlySet<string>
  /** RMS norms of queries and keys before rotation: one scale for every head, or one over the whole width. */
  readonly queryKeyNorm?: 'head' | 'width'
  /** Where a layer's two norms stand: before attention and feed-forward (default), or on their results, before they are added. */
  readonly norms?: 'before' | 'after'
  /** Positions a layer's attention sees, itself included; 0 all. One a layer. */
  readonly windows?: readonly number[]
  /** Layers whose queries and keys are rotated. One a layer; left out: all. */
  readonly rotates?: readonly boolean[]
  /** Factor of the embedding, of what a layer adds to the residual stream (twice), of attention scores (instead of 1/√headDim), of the logits. */
  readonly embeddingScale?: number
  readonly residualScale?: number
  readonly attentionScale?: number
  readonly logitScale?: number
  readonly experts?: Experts
}

export interface Experts {
  readonly count: number
  readonly topK: number
  /** The chosen experts' shares are divided by their sum. */
  readonly normalize: boolean
  /** Width inside an expert. */
  readonly inner: number
  /** Hugging Face names under model.layers.i: the router's module, and an expert's gate, up and down. */
  readonly router: string
  readonly expert: (index: number) => readonly [gate: string, up: string, down: string]
  /** Layers with a mixture; the others have one feed-forward of width `inner` of the model. */
  readonly sparse: (layer: number) => boolean
}

export interface DecoderSpec extends Dimensions, Features {
  readonly name: string
  readonly epsilon: number
  readonly contextLength: number
  readonly rope: Rope
  /** A weight [rotaryDim/2] that divides the rotary frequencies. */
  readonly ropeFactors?: string
  /** Pairs (2i, 2i+1) instead of (i, i + headDim/2): rows of q and k were reordered by the GGUF converter. */
  readonly interleaved: boolean
  readonly tied: boolean
}

/** mixtral's names: w1, w3, w2 are gate, up and down. */
export const MIXTRAL_EXPERTS = {
  router: 'block_sparse_moe.gate',
  expert: (e: number) =>
    [
      `block_sparse_moe.experts.${e}.w1`,
      `block_sparse_moe.experts.${e}.w3`,
      `block_sparse_moe.experts.${e}.w2`,
    ] as const,
}
export const QWEN_EXPERTS = {
  router: 'mlp.gate',
  expert: (e: number) =>
    [`mlp.experts.${e}.gate_proj`, `mlp.experts.${e}.up_proj`, `mlp.experts.${e}.down_proj`] as const,
}
