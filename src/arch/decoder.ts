// The decoder of all families here, as a graph: embedding, layers of (attention, feed-forward) with norms on a residual stream, norm,
// head. Written in ONNX operators where there are some; the compiler fuses. Weight names are Hugging Face's.
import type { Graph, GraphNode } from '../graph/graph.ts'
import { LOGIT_TOKENS, TOKENS } from '../graph/op.ts'
import { WRITTEN_OPSETS } from '../graph/registry.ts'
import { GraphBuilder } from './builder.ts'
import type { DecoderSpec, Experts } from './spec.ts'

export const EMBEDDING = 'model.embed_tokens.weight'
export const HEAD = 'lm_head.weight'
export const FINAL_NORM = 'model.norm.weight'

export function decoderGraph(spec: DecoderSpec): Graph {
  const g = new GraphBuilder()
  const { hidden, embeddingScale = 1, logitScale = 1 } = spec
  g.weight(EMBEDDING, [spec.vocabulary, hidden])
  if (embeddingScale === 1) g.node('ai.onnx', 'Gather', 'embed', ['input_ids'], [EMBEDDING])
  else g.node('ai.wia', 'Embedding', 'embed', ['input_ids'], [EMBEDDING], { scale: embeddingScale })
  const factors = spec.ropeFactors
  if (factors !== undefined) g.weight(factors, [spec.rope.dim / 2])
  g.push({
    name: 'rotary',
    op: 'RotaryCache',
    domain: 'ai.wia',
    inputs: ['position_ids'],
    outputs: ['cos', 'sin'],
    attributes: ropeAttributes(spec),
    weights: factors === undefined ? [] : [factors],
  })
  let x = 'embed'
  for (let i = 0; i < spec.layers; i++) x = new Layer(g, spec, i).build(x)
  g.node('ai.onnx', 'Gather', 'select', [x, 'logit_indices'])
  g.norm('norm', 'select', FINAL_NORM, hidden, spec.epsilon)
  if (!spec.tied) g.weight(HEAD, [spec.vocabulary, hidden])
  const scale = logitScale === 1 ? {} : { alpha: logitScale }
  g.node('ai.wia', 'Linear', 'logits', ['norm'], [spec.tied ? EMBEDDING : HEAD], scale)
  return {
    name: spec.name,
    opsets: WRITTEN_OPSETS,
    inputs: [
      { name: 'input_ids', dtype: 'int64', shape: [TOKENS] },
      { name: 'position_ids', dtype: 'int64', shape: [TOKENS] },
      { name: 'logit_indices', dtype: 'int64', shape: [LOGIT_TOKENS] },
    ],
    outputs: [{ name: 'logits', dtype: 'float32', shape: [LOGIT_TOKENS, spec.vocabulary] }],
    nodes: g.nodes,
    weights: g.weights,
    contextLength: spec.contextLength,
  }
}

class Layer {
  readonly #g: GraphBuilder
  readonly #spec: DecoderSpec
  readonly #i: number
  /** Prefix of node names and of weight names. */
  readonly #at: string
  readonly #weights: string

  constructor(g: GraphBuilder, spec: DecoderSpec, i: number) {
    this.#g = g
    this.#spec = spec
    this.#i = i
    this.#at = `layers.${i}`
    this.#weights = `model.layers.${i}`
  }

  /** The residual stream after the layer. */
  build(x: string): string {
    const after = this.#spec.norms === 'after'
    const attended = this.#attention(after ? x : this.#norm('attention.norm', x, 'input_layernorm'))
    const middle = this.#add(
      'attention.residual',
      x,
      after ? this.#norm('attention.norm', attended, 'post_attention_layernorm') : attended,
    )
    const sparse = this.#spec.experts?.sparse(this.#i) === true
    const fed = (input: string) => (sparse ? this.#mixture(input, this.#spec.experts!) : this.#feedForward(input))
    if (after) return this.#add('residual', middle, this.#norm('mlp.norm', fed(middle), 'post_feedforward_layernorm'))
    return this.#add('residual', middle, fed(this.#norm('mlp.norm', middle, 'post_attention_layernorm')))
  }

  #attention(x: string): string {
    const { hidden, heads, kvHeads, headDim, interleaved, attentionScale } = this.#spec
    const permuted = (n: number) => (interleaved ? { permuted_heads: n } : {})
    const q = this.#project('q', x, heads * headDim, hidden, 'self_attn.q_proj', permuted(heads))
    const k = this.#project('k', x, kvHeads * headDim, hidden, 'self_attn.k_proj', permuted(kvHeads))
    const v = this.#project('v', x, kvHeads * headDim, hidden, 'self_attn.v_proj')
    const window = this.#spec.windows?.[this.#i] ?? 0
    const inputs = [this.#position(q, heads, 'q_norm'), this.#position(k, kvHeads, 'k_norm'), v]
    const attention = this.#g.node('ai.onnx', 'Attention', `${this.#at}.attention`, inputs, [], {
      is_causal: 1,
      kv_num_heads: kvHeads,
      q_num_heads: heads,
      ...(attentionScale === undefined ? {} : { scale: attentionScale }),
      ...(window === 0 ? {} : { window }),
    })
    return this.#project('o', attention, hidden, heads * headDim, 'self_attn.o_proj', this.#residual())
  }

  /** Queries or keys of n heads, normed where the family norms them, rotated where the layer rotates. */
  #position(x: string, n: number, module: string): string {
    const { queryKeyNorm, headDim, epsilon, interleaved, rope } = this.#spec
    const groups = queryKeyNorm === 'head' ? n : 1
    const weight = `${this.#weights}.self_attn.${module}.weight`
    const normed = queryKeyNorm === undefined ? x : this.#g.norm(`${x}.norm`, x, weight, n * headDim, epsilon, groups)
    if (this.#spec.rotates?.[this.#i] === false) return normed
    return this.#g.node('ai.onnx', 'RotaryEmbedding', `${x}.rotated`, [normed, 'cos', 'sin'], [], {
      interleaved: interleaved ? 1 : 0,
      num_heads: n,
      ...(rope.dim === headDim ? {} : { rotary_embedding_dim: rope.dim }),
    })
  }

  #feedForward(x: string): string {
    const { hidden, inner } = this.#spec
    const gate = this.#project('gate', x, inner, hidden, 'mlp.gate_proj')
    const up = this.#project('up', x, inner, hidden, 'mlp.up_proj')
    const swish = this.#g.node('ai.onnx', 'Swish', `${gate}.swish`, [gate])
    const product = this.#g.node('ai.onnx', 'Mul', `${this.#at}.mlp.product`, [swish, up])
    return this.#project('down', product, hidden, inner, 'mlp.down_proj', this.#residual())
  }

  #mixture(x: string, experts: Experts): string {
    const { hidden } = this.#spec
    const module = `${this.#weights}.${experts.router}`
    const router = this.#g.linear(`${this.#at}.router`, x, module, experts.count, hidden, false, {})
    const names: string[] = []
    for (let e = 0; e < experts.count; e++)
      experts.expert(e).forEach((part, i) => {
        const name = `${this.#weights}.${part}.weight`
        this.#g.weight(name, i === 2 ? [hidden, experts.inner] : [experts.inner, hidden])
        names.push(name)
      })
    return this.#g.node('ai.wia', 'MoE', `${this.#at}.moe`, [x, router], names, {
      normalize: experts.normalize ? 1 : 0,
      top_k: experts.topK,
    })
  }

  #project(name: string, x: string, out: number, width: number, module: string, attributes = {}): string {
    const bias = this.#spec.biases?.has(module.split('.').at(-1)!) === true
    return this.#g.linear(`${this.#at}.${name}`, x, `${this.#weights}.${module}`, out, width, bias, attributes)
  }

  #norm(name: string, x: string, module: string): string {
    const { hidden, epsilon } = this.#spec
    return this.#g.norm(`${this.#at}.${name}`, x, `${this.#weights}.${module}.weight`, hidden, epsilon)
  }

  #add(name: string, a: string, b: string): string {
    return this.#g.node('ai.onnx', 'Add', `${this.#at}.${name}`, [a, b])
  }

  #residual(): GraphNode['attributes'] {
    const { residualScale = 1 } = this.#spec
    return residualScale === 1 ? {} : { alpha: residualScale }
  }
}

function ropeAttributes({ rope }: DecoderSpec): GraphNode['attributes'] {
  const { base, dim, scaling, attentionScale, divisors } = rope
  return {
    base,
    dim,
    scaling: scaling.type,
    ...(scaling.type === 'none' ? {} : { factor: scaling.factor }),
    ...(scaling.type === 'llama3'
      ? {
          high_freq_factor: scaling.highFreqFactor,
          low_freq_factor: scaling.lowFreqFactor,
          original_context_length: scaling.originalContextLength,
        }
      : {}),
    ...(scaling.type === 'yarn'
      ? {
          beta_fast: scaling.betaFast,
          beta_slow: scaling.betaSlow,
          original_context_length: scaling.originalContextLength,
          truncate: scaling.truncate ? 1 : 0,
        }
      : {}),
    ...(attentionScale === 1 ? {} : { attention_scale: attentionScale }),
    ...(divisors.length === 0 ? {} : { divisors: [...divisors] }),
  }
}
