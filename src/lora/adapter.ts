// The contract of adapters: what a file became, before and after matching.

/** A low-rank pair for one Linear weight: y += scale·B(A x). */
export interface LoraPair {
  /** Weight name in the graph, e.g. model.layers.0.self_attn.q_proj.weight. */
  readonly target: string
  readonly rank: number
  /** alpha/r, or alpha/√r for rsLoRA, with patterns applied; without the request's own scale. */
  readonly scale: number
  /** Tensor names in the adapter's reader: A [rank, in], B [out, rank]. */
  readonly a: string
  readonly b: string
}

/** Which modules of an adapter belong to which weights of a model. */
export interface MatchReport {
  /** Graph weights that got a pair. */
  readonly matched: readonly string[]
  /** Modules the adapter has tensors for and the model does not know, or its own configuration does not target. */
  readonly unmatched: readonly string[]
  /** Modules the adapter's configuration targets and its file has no tensors for. */
  readonly missing: readonly string[]
  /** Prefixes that were removed to match, e.g. "base_model.model.". */
  readonly prefix: string
}
