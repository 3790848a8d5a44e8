// The decoder that llama and mixtral share, as a graph: embedding, layers of (norm, attention, norm, feed-forward) on a residual
// stream, norm, head. Written in ONNX operators where there are some; the compiler fuses. Weight names are Hugging Face's.
import type { Graph, GraphNode } from '../graph/graph.ts'
import { LOGIT_TOKENS, TOKENS } from '../graph/op.ts'
import { WRITTEN_OPSETS } from '../graph/registry.ts'
import type { Rope } from './rope.ts'

export interface DecoderSpec {
  readonly name: string
  readonly vocabulary: number
  readonly hidden: number
  readonly inner: number
  readonly layers: number
  readonly heads: number
  readonly kvHeads: number
  readonly headDim: number
  readonly epsilon: number
  readonly contextLength: number
  readonly rope: Rope
  /** A weight [headDim/2] that divides the rotary frequencies. */
  readonly ropeFactors?: string
  /** Pairs (2i, 2i+1) instead of (i, i + headDim/2): rows of q and k were reordered by the GGUF converter. */
  readonly interleaved: boolean
  readonly tied: boolean
  /** Projections with a bias: q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj, down_proj. */
  readonly biases: ReadonlySet<string>
  readonly experts?: { readonly count: number; readonly topK: number }
}

export const EMBEDDING = 'model.embed_tokens.weight'
export const HEAD = 'lm_head.weight'
export const FINAL_NORM = 'model.norm.weight'

export function decoderGraph(spec: DecoderSpec): Graph {
  const g = new Builder()
  const { hidden } = spec
  g.weight(EMBEDDING, [spec.vocabulary, hidden])
  g.node('ai.onnx', 'Gather', 'embed', ['input_ids'], [EMBEDDING])
  const factors = spec.ropeFactors
  if (factors !== undefined) g.weight(factors, [spec.headDim / 2])
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
  for (let i = 0; i < spec.layers; i++) x = layer(g, spec, i, x)
  g.node('ai.onnx', 'Gather', 'select', [x, 'logit_indices'])
  g.norm('norm', 'select', FINAL_NORM, spec)
  if (!spec.tied) g.weight(HEAD, [spec.vocabulary, hidden])
  g.node('ai.wia', 'Linear', 'logits', ['norm'], [spec.tied ? EMBEDDING : HEAD])
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

function layer(g: Builder, spec: DecoderSpec, i: number, x: string): string {
  const at = `layers.${i}`
  const { hidden, headDim, heads, kvHeads, interleaved } = spec
  const weights = `model.layers.${i}`
  const project = (name: string, from: string, out: number, width: number, module: string, attributes = {}) =>
    g.linear(
      `${at}.${name}`,
      from,
      `${weights}.${module}`,
      out,
      width,
      spec.biases.has(module.split('.').at(-1)!),
      attributes,
    )
  const rotate = (from: string, n: number) =>
    g.node('ai.onnx', 'RotaryEmbedding', `${from}.rotated`, [from, 'cos', 'sin'], [], {
      interleaved: interleaved ? 1 : 0,
      num_heads: n,
    })
  const permuted = (n: number) => (interleaved ? { permuted_heads: n } : {})

  const normed = g.norm(`${at}.attention.norm`, x, `${weights}.input_layernorm.weight`, spec)
  const q = project('q', normed, heads * headDim, hidden, 'self_attn.q_proj', permuted(heads))
  const k = project('k', normed, kvHeads * headDim, hidden, 'self_attn.k_proj', permuted(kvHeads))
  const v = project('v', normed, kvHeads * headDim, hidden, 'self_attn.v_proj')
  const attention = g.node('ai.onnx', 'Attention', `${at}.attention`, [rotate(q, heads), rotate(k, kvHeads), v], [], {
    is_causal: 1,
    kv_num_heads: kvHeads,
    q_num_heads: heads,
  })
  const o = project('o', attention, hidden, heads * headDim, 'self_attn.o_proj')
  const middle = g.node('ai.onnx', 'Add', `${at}.attention.residual`, [x, o])

  const second = g.norm(`${at}.mlp.norm`, middle, `${weights}.post_attention_layernorm.weight`, spec)
  let mlp: string
  if (spec.experts === undefined) {
    const gate = project('gate', second, spec.inner, hidden, 'mlp.gate_proj')
    const up = project('up', second, spec.inner, hidden, 'mlp.up_proj')
    const swish = g.node('ai.onnx', 'Swish', `${gate}.swish`, [gate])
    const product = g.node('ai.onnx', 'Mul', `${at}.mlp.product`, [swish, up])
    mlp = project('down', product, hidden, spec.inner, 'mlp.down_proj')
  } else {
    const router = g.linear(
      `${at}.router`,
      second,
      `${weights}.block_sparse_moe.gate`,
      spec.experts.count,
      hidden,
      false,
      {},
    )
    const names: string[] = []
    for (let e = 0; e < spec.experts.count; e++)
      for (const part of ['w1', 'w3', 'w2']) {
        const name = `${weights}.block_sparse_moe.experts.${e}.${part}.weight`
        g.weight(name, part === 'w2' ? [hidden, spec.inner] : [spec.inner, hidden])
        names.push(name)
      }
    mlp = g.node('ai.wia', 'MoE', `${at}.moe`, [second, router], names, { normalize: 1, top_k: spec.experts.topK })
  }
  return g.node('ai.onnx', 'Add', `${at}.residual`, [middle, mlp])
}

function ropeAttributes(spec: DecoderSpec): GraphNode['attributes'] {
  const { base, scaling } = spec.rope
  return {
    base,
    dim: spec.headDim,
    scaling: scaling.type,
    ...(scaling.type === 'none' ? {} : { factor: scaling.factor }),
    ...(scaling.type === 'llama3'
      ? {
          high_freq_factor: scaling.highFreqFactor,
          low_freq_factor: scaling.lowFreqFactor,
          original_context_length: scaling.originalContextLength,
        }
      : {}),
  }
}

/** Collects nodes and weights. A node with one output gives it its own name. */
class Builder {
  readonly nodes: GraphNode[] = []
  readonly weights: { name: string; shape: number[] }[] = []

  push(node: GraphNode): void {
    this.nodes.push(node)
  }

  weight(name: string, shape: number[]): void {
    this.weights.push({ name, shape })
  }

  node(
    domain: string,
    op: string,
    name: string,
    inputs: string[],
    weights: string[] = [],
    attributes: GraphNode['attributes'] = {},
  ): string {
    this.nodes.push({ name, op, domain, inputs, outputs: [name], attributes, weights })
    return name
  }

  norm(name: string, x: string, weight: string, spec: DecoderSpec): string {
    this.weight(weight, [spec.hidden])
    return this.node('ai.onnx', 'RMSNormalization', name, [x], [weight], { axis: -1, epsilon: spec.epsilon })
  }

  linear(
    name: string,
    x: string,
    module: string,
    out: number,
    width: number,
    bias: boolean,
    attributes: GraphNode['attributes'],
  ): string {
    this.weight(`${module}.weight`, [out, width])
    if (bias) this.weight(`${module}.bias`, [out])
    return this.node(
      'ai.wia',
      'Linear',
      name,
      [x],
      [`${module}.weight`, ...(bias ? [`${module}.bias`] : [])],
      attributes,
    )
  }
}
