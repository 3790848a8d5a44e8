// Toy models: a configuration, seeded random weights, and a straight-line forward pass written from the published formulas alone
// (no graph, no plan). GGUF twins are made by renaming tensors and reordering rows as llama.cpp's converter does.
import type { JsonObject } from '#sluice/base/json.js'
import type { Weight } from '../graph/interpreter.ts'
import type { SmallModel } from '../graph/models.ts'
import { randomFrom } from '../graph/random.ts'

export interface ToySize {
  hidden: number
  inner: number
  layers: number
  heads: number
  kvHeads: number
  headDim: number
  vocabulary: number
  experts?: number
  topK?: number
}

export const SIZE: ToySize = { hidden: 20, inner: 28, layers: 2, heads: 4, kvHeads: 2, headDim: 6, vocabulary: 23 }

export function toyConfig(size: ToySize, more: JsonObject = {}): JsonObject {
  return {
    architectures: [size.experts === undefined ? 'LlamaForCausalLM' : 'MixtralForCausalLM'],
    model_type: size.experts === undefined ? 'llama' : 'mixtral',
    hidden_size: size.hidden,
    intermediate_size: size.inner,
    num_hidden_layers: size.layers,
    num_attention_heads: size.heads,
    num_key_value_heads: size.kvHeads,
    head_dim: size.headDim,
    vocab_size: size.vocabulary,
    max_position_embeddings: 64,
    rms_norm_eps: 1e-5,
    rope_theta: 100,
    hidden_act: 'silu',
    tie_word_embeddings: false,
    ...(size.experts === undefined ? {} : { num_local_experts: size.experts, num_experts_per_tok: size.topK! }),
    ...more,
  }
}

export function toyModel(size: ToySize, config: JsonObject, seed: number): SmallModel {
  const random = randomFrom(seed)
  const tensors = new Map<string, Weight>()
  const add = (name: string, ...shape: number[]) => {
    const n = shape.reduce((a, b) => a * b, 1)
    const spread = shape.length === 1 ? 1 : 2 / Math.sqrt(shape[1]!)
    tensors.set(name, {
      shape,
      data: Float64Array.from({ length: n }, () => (random() - 0.5) * spread * 2 + (name.includes('norm') ? 1 : 0)),
    })
  }
  const { hidden, inner, heads, kvHeads, headDim } = size
  add('model.embed_tokens.weight', size.vocabulary, hidden)
  for (let i = 0; i < size.layers; i++) {
    const at = `model.layers.${i}`
    const linear = (name: string, out: number, width: number, bias: boolean) => {
      add(`${at}.${name}.weight`, out, width)
      if (bias) add(`${at}.${name}.bias`, out)
    }
    add(`${at}.input_layernorm.weight`, hidden)
    const attention = config.attention_bias === true
    linear('self_attn.q_proj', heads * headDim, hidden, attention)
    linear('self_attn.k_proj', kvHeads * headDim, hidden, attention)
    linear('self_attn.v_proj', kvHeads * headDim, hidden, attention)
    linear('self_attn.o_proj', hidden, heads * headDim, attention)
    add(`${at}.post_attention_layernorm.weight`, hidden)
    if (size.experts === undefined) {
      linear('mlp.gate_proj', inner, hidden, config.mlp_bias === true)
      linear('mlp.up_proj', inner, hidden, config.mlp_bias === true)
      linear('mlp.down_proj', hidden, inner, config.mlp_bias === true)
    } else {
      linear('block_sparse_moe.gate', size.experts, hidden, false)
      for (let e = 0; e < size.experts; e++) {
        linear(`block_sparse_moe.experts.${e}.w1`, inner, hidden, false)
        linear(`block_sparse_moe.experts.${e}.w3`, inner, hidden, false)
        linear(`block_sparse_moe.experts.${e}.w2`, hidden, inner, false)
      }
    }
  }
  add('model.norm.weight', hidden)
  if (config.tie_word_embeddings !== true) add('lm_head.weight', size.vocabulary, hidden)
  return { config, format: 'safetensors', tensors }
}

/** Logits of every token. frequencies: the rotary frequencies, headDim/2 of them. */
export function reference(
  size: ToySize,
  model: SmallModel,
  ids: readonly number[],
  frequencies: readonly number[],
): number[] {
  const w = (name: string) => model.tensors.get(name)!
  const product = (name: string, x: number[]): number[] => {
    const { data, shape } = w(`${name}.weight`)
    const bias = model.tensors.get(`${name}.bias`)?.data
    return Array.from({ length: shape[0]! }, (_, r) =>
      x.reduce((s, v, c) => s + v * data[r * shape[1]! + c]!, bias?.[r] ?? 0),
    )
  }
  const norm = (name: string, x: number[]) => {
    const r = 1 / Math.sqrt(x.reduce((s, v) => s + v * v, 0) / x.length + 1e-5)
    return x.map((v, i) => v * r * w(name).data[i]!)
  }
  const silu = (v: number) => v / (1 + Math.exp(-v))
  // rotate_half of Hugging Face: q·cos + rotate_half(q)·sin with the halves of a head as pairs.
  const rotate = (x: number[], position: number) =>
    x.map((v, i) => {
      const d = i % size.headDim
      const half = size.headDim / 2
      const angle = position * frequencies[d % half]!
      return v * Math.cos(angle) + (d < half ? -x[i + half]! : x[i - half]!) * Math.sin(angle)
    })
  const sum = (a: number[], b: number[]) => a.map((v, i) => v + b[i]!)
  let x = ids.map((id) => [...w('model.embed_tokens.weight').data.slice(id * size.hidden, (id + 1) * size.hidden)])
  for (let l = 0; l < size.layers; l++) {
    const at = `model.layers.${l}`
    const n = x.map((v) => norm(`${at}.input_layernorm.weight`, v))
    const q = n.map((v, t) => rotate(product(`${at}.self_attn.q_proj`, v), t))
    const k = n.map((v, t) => rotate(product(`${at}.self_attn.k_proj`, v), t))
    const values = n.map((v) => product(`${at}.self_attn.v_proj`, v))
    x = x.map((residual, t) => {
      const heads: number[] = []
      for (let h = 0; h < size.heads; h++) {
        const kv = Math.floor(h / (size.heads / size.kvHeads)) * size.headDim
        const e = k.slice(0, t + 1).map((key) => {
          let s = 0
          for (let i = 0; i < size.headDim; i++) s += q[t]![h * size.headDim + i]! * key[kv + i]!
          return Math.exp(s / Math.sqrt(size.headDim))
        })
        const total = e.reduce((a, b) => a + b, 0)
        for (let i = 0; i < size.headDim; i++)
          heads.push(e.reduce((s, p, j) => s + (p / total) * values[j]![kv + i]!, 0))
      }
      return sum(residual, product(`${at}.self_attn.o_proj`, heads))
    })
    x = x.map((residual) => {
      const v = norm(`${at}.post_attention_layernorm.weight`, residual)
      const ffn = (gate: string, up: string, down: string) => {
        const u = product(up, v)
        return product(
          down,
          product(gate, v).map((g, i) => silu(g) * u[i]!),
        )
      }
      if (size.experts === undefined)
        return sum(residual, ffn(`${at}.mlp.gate_proj`, `${at}.mlp.up_proj`, `${at}.mlp.down_proj`))
      const moe = `${at}.block_sparse_moe`
      const scores = product(`${moe}.gate`, v)
      const best = [...scores.keys()].sort((a, b) => scores[b]! - scores[a]! || a - b).slice(0, size.topK!)
      const total = best.reduce((s, e) => s + Math.exp(scores[e]!), 0)
      return best.reduce((y, e) => {
        const out = ffn(`${moe}.experts.${e}.w1`, `${moe}.experts.${e}.w3`, `${moe}.experts.${e}.w2`)
        return y.map((a, i) => a + (Math.exp(scores[e]!) / total) * out[i]!)
      }, residual)
    })
  }
  const head = model.config.tie_word_embeddings === true ? 'model.embed_tokens' : 'lm_head'
  return x.flatMap((v) => product(head, norm('model.norm.weight', v)))
}

const GGUF_NAMES: [string, string][] = [
  ['model.embed_tokens', 'token_embd'],
  ['model.norm', 'output_norm'],
  ['lm_head', 'output'],
  ['model.layers.', 'blk.'],
  ['input_layernorm', 'attn_norm'],
  ['post_attention_layernorm', 'ffn_norm'],
  ['self_attn.q_proj', 'attn_q'],
  ['self_attn.k_proj', 'attn_k'],
  ['self_attn.v_proj', 'attn_v'],
  ['self_attn.o_proj', 'attn_output'],
  ['mlp.gate_proj', 'ffn_gate'],
  ['mlp.up_proj', 'ffn_up'],
  ['mlp.down_proj', 'ffn_down'],
]

/** The GGUF twin of a dense toy model. */
export function toGguf(size: ToySize, model: SmallModel, more: JsonObject = {}): SmallModel {
  const tensors = new Map<string, Weight>()
  for (const [name, weight] of model.tensors) {
    const heads = name.includes('q_proj') ? size.heads : name.includes('k_proj') ? size.kvHeads : undefined
    const there = GGUF_NAMES.reduce((s, [from, to]) => s.replace(from, to), name)
    tensors.set(there, heads === undefined ? weight : interleave(weight, heads))
  }
  const config: JsonObject = {
    'general.architecture': 'llama',
    'llama.block_count': size.layers,
    'llama.embedding_length': size.hidden,
    'llama.feed_forward_length': size.inner,
    'llama.attention.head_count': size.heads,
    'llama.attention.head_count_kv': size.kvHeads,
    'llama.attention.key_length': size.headDim,
    'llama.attention.value_length': size.headDim,
    'llama.attention.layer_norm_rms_epsilon': 1e-5,
    'llama.rope.dimension_count': size.headDim,
    'llama.rope.freq_base': 100,
    'llama.context_length': 64,
    ...more,
  }
  return { config, format: 'gguf', tensors }
}

/** Row (i, half j) of a head goes to row 2i + j. Works for biases too. */
export function interleave(w: Weight, heads: number): Weight {
  const [rows, cols] = [w.shape[0]!, w.shape[1] ?? 1]
  const d = rows / heads
  const data = new Float64Array(w.data.length)
  for (let h = 0; h < heads; h++)
    for (let j = 0; j < 2; j++)
      for (let i = 0; i < d / 2; i++) {
        const from = (h * d + (j * d) / 2 + i) * cols
        data.set(w.data.subarray(from, from + cols), (h * d + 2 * i + j) * cols)
      }
  return { shape: w.shape, data }
}
