// What a graph compiles to: plain data that every compute thread runs from top to bottom, once a pass.
//
// Buffers are float32 [tokens, stride]; the memory plan gives each an offset in floats *per token* into one activation area
// (buffer b of width w starts at area + offset_b·tokensMax, stride = w rounded up to 64). Weights are named; the engine resolves
// names to pages (matrices) or resident addresses (vectors, adapters).

export type BufferId = number

export interface PlanBuffer {
  readonly name: string
  /** Columns. */
  readonly width: number
  /** width rounded up to a multiple of 64. */
  readonly stride: number
  /**
   * Floats per token before this buffer in the activation area; a multiple of 64. Buffers that are never alive together may share.
   * A buffer with padding (width < stride) shares only with buffers of the same width at the same offset: an area that is zeroed
   * once keeps zeros in every padding column, because steps write only their own columns.
   */
  readonly offset: number
}

/** Which rows of the buffers a step works on. */
export type TokenSet =
  /** All tokens of the pass. */
  | { readonly kind: 'all' }
  /** Only tokens whose logits are wanted (gathered to the front by `selectLogits`). */
  | { readonly kind: 'logits' }
  /** Only tokens that `route` sent to this expert (gathered to the front by `gatherExpert`). */
  | { readonly kind: 'expert'; readonly route: number; readonly expert: number }

export type PlanStep =
  /** y = rows of the embedding, scaled. Done before the pass by reading single rows. Always the first step. */
  | { readonly op: 'embed'; readonly weight: string; readonly y: BufferId; readonly scale: number }
  | {
      readonly op: 'rmsNorm'
      readonly x: BufferId
      readonly y: BufferId
      readonly weight: string
      readonly epsilon: number
      readonly offset: number
      readonly tokens: TokenSet /** > 1: each token is that many vectors of width/groups (a norm per head). */
      readonly groups: number
    }
  /** y = [y +] alpha·W x. `weight` has shape [out, in]. */
  | {
      readonly op: 'linear'
      readonly weight: string
      readonly x: BufferId
      readonly y: BufferId
      readonly accumulate: boolean
      readonly alpha: number
      readonly tokens: TokenSet
    }
  /** y[t] += bias for all tokens of the set. */
  | { readonly op: 'bias'; readonly weight: string; readonly y: BufferId; readonly tokens: TokenSet }
  | {
      readonly op: 'rope'
      readonly x: BufferId
      readonly heads: number
      readonly headDim: number
      readonly rotaryDim: number
      readonly interleaved: boolean /** Index into Plan.ropes. */
      readonly rope: number
    }
  /** Appends k and v of this pass to the cache of `layer`, then attends. */
  | {
      readonly op: 'attention'
      readonly layer: number
      readonly q: BufferId
      readonly k: BufferId
      readonly v: BufferId
      readonly y: BufferId
      readonly heads: number
      readonly kvHeads: number
      readonly headDim: number
      readonly scale: number /** 0: none. */
      readonly window: number
    }
  | {
      /** y = silu(gate)·up, element by element; y may be the buffer of gate or of up. */
      readonly op: 'swiglu'
      readonly gate: BufferId
      readonly up: BufferId
      readonly y: BufferId
      readonly tokens: TokenSet
    }
  /** y += x. */
  | { readonly op: 'add'; readonly x: BufferId; readonly y: BufferId; readonly tokens: TokenSet }
  /** logits [tokens, experts] → the topK experts of each token and their weights (softmax over all, then chosen ones renormalized when `normalize`). Ties: lower index. Result is kept under `route`. */
  | {
      readonly op: 'route'
      readonly logits: BufferId
      readonly experts: number
      readonly topK: number
      readonly normalize: boolean
      readonly route: number
    }
  /** y[i] = x[i-th token of the expert]. */
  | {
      readonly op: 'gatherExpert'
      readonly x: BufferId
      readonly y: BufferId
      readonly route: number
      readonly expert: number
    }
  /** y[i-th token of the expert] += weight·x[i]. Experts come in ascending order, so sums have one order. */
  | {
      readonly op: 'scatterExpert'
      readonly x: BufferId
      readonly y: BufferId
      readonly route: number
      readonly expert: number
    }
  /** y = zeros. */
  | { readonly op: 'zero'; readonly y: BufferId; readonly tokens: TokenSet }
  /** y[i] = x[i-th token whose logits are wanted]. */
  | { readonly op: 'selectLogits'; readonly x: BufferId; readonly y: BufferId }

/** A rotary table: angle(position, i) = position·inverseFrequencies[i]; cos and sin are multiplied by `attentionScale`. Computed in float64. */
export interface PlanRope {
  readonly inverseFrequencies: readonly number[]
  readonly attentionScale: number
  /** A float32 weight [inverseFrequencies.length] the engine reads: frequency i is inverseFrequencies[i] / factors[i] (GGUF rope_freqs.weight). */
  readonly factorsWeight?: string
}

export interface Plan {
  readonly buffers: readonly PlanBuffer[]
  /** Floats per token of the whole activation area. */
  readonly activationFloats: number
  /**
   * Buffers at offsets from here on hold only tokens whose logits are wanted, and share nothing with those before: an area of
   * logitsFrom·tokensMax + (activationFloats − logitsFrom)·logitTokensMax floats is enough, when the engine places them so.
   */
  readonly logitsFrom: number
  readonly steps: readonly PlanStep[]
  readonly ropes: readonly PlanRope[]
  /** Attention layers, for the cache: layer i has kvHeads·headDim keys and values a position. */
  readonly kv: readonly { readonly kvHeads: number; readonly headDim: number; readonly window: number }[]
  /** Buffer that holds the logits [logit tokens, vocabulary] after the pass. */
  readonly logits: BufferId
  readonly vocabulary: number
  /** Positions the model was made for. */
  readonly contextLength: number
  /** MoE routes: experts and topK of route i. */
  readonly routes: readonly { readonly experts: number; readonly topK: number }[]
  /** Buffer with the residual stream after each layer, for tests that compare hidden states: step index after which it holds layer i's output. */
  readonly layerEnds: readonly { readonly step: number; readonly buffer: BufferId }[]
}
