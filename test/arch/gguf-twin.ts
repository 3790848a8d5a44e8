// The GGUF twin of a family's checkpoint: tensors renamed, reordered and stacked, metadata written, as llama.cpp's converter does it.
// Sources: llama.cpp conversion/*.py and gguf-py/gguf/constants.py.
import type { JsonObject } from '#sluice/base/json.js'
import type { Weight } from '../graph/interpreter.ts'
import type { SmallModel } from '../graph/models.ts'
import { interleave } from './toy.ts'

const ARCHITECTURES: Record<string, string> = { qwen3_moe: 'qwen3moe' }

const RENAMED: [RegExp, string][] = [
  [/^model\.embed_tokens\./, 'token_embd.'],
  [/^model\.norm\./, 'output_norm.'],
  [/^lm_head\./, 'output.'],
  [/^model\.layers\./, 'blk.'],
  [/self_attn\.([qkv])_proj\./, 'attn_$1.'],
  [/self_attn\.qkv_proj\./, 'attn_qkv.'],
  [/self_attn\.o_proj\./, 'attn_output.'],
  [/self_attn\.([qk])_norm\./, 'attn_$1_norm.'],
  [/mlp\.gate_up_proj\./, 'ffn_up.'],
  [/mlp\.(gate|up|down)_proj\./, 'ffn_$1.'],
  [/mlp\.gate\./, 'ffn_gate_inp.'],
  [/input_layernorm\./, 'attn_norm.'],
]

export function gguf(model: SmallModel): SmallModel {
  const c = model.config as Record<string, number>
  const type = model.config.model_type as string
  const architecture = ARCHITECTURES[type] ?? type
  const permuted = type === 'smollm3' || type === 'granite'
  const stacks = new Map<string, Weight[]>()
  const tensors = new Map<string, Weight>()
  for (const [name, weight] of model.tensors) {
    const expert = /^model\.layers\.(\d+)\.mlp\.experts\.(\d+)\.(gate|up|down)_proj\.weight$/.exec(name)
    if (expert !== null) {
      const stack = `blk.${expert[1]}.ffn_${expert[3]}_exps.weight`
      stacks.set(stack, [...(stacks.get(stack) ?? []), weight])
      continue
    }
    let there = RENAMED.reduce((s, [from, to]) => s.replace(from, to), name)
    there = there.replace('post_attention_layernorm.', type === 'olmo2' ? 'post_attention_norm.' : 'ffn_norm.')
    there = there.replace('post_feedforward_layernorm.', 'post_ffw_norm.')
    const heads = there.includes('attn_q.') ? c.num_attention_heads! : c.num_key_value_heads!
    tensors.set(there, permuted && /attn_[qk]\./.test(there) ? interleave(weight, heads) : weight)
  }
  for (const [name, list] of stacks) {
    const data = new Float32Array(list.reduce((n, w) => n + w.data.length, 0))
    for (const [i, w] of list.entries()) data.set(w.data, i * w.data.length)
    tensors.set(name, { shape: [list.length, ...list[0]!.shape], data })
  }
  const own: JsonObject = {
    block_count: c.num_hidden_layers!,
    context_length: c.max_position_embeddings!,
    embedding_length: c.hidden_size!,
    feed_forward_length: c.intermediate_size!,
    'attention.head_count': c.num_attention_heads!,
    'attention.head_count_kv': c.num_key_value_heads!,
    'attention.layer_norm_rms_epsilon': c.rms_norm_eps!,
    'rope.freq_base': c.rope_theta!,
    ...(c.head_dim == null ? {} : { 'attention.key_length': c.head_dim, 'attention.value_length': c.head_dim }),
    ...special(model, tensors),
  }
  const config: JsonObject = { 'general.architecture': architecture, 'general.name': type }
  for (const [key, value] of Object.entries(own)) config[`${architecture}.${key}`] = value
  return { config, format: 'gguf', tensors }
}

function special(model: SmallModel, tensors: Map<string, Weight>): JsonObject {
  const c = model.config as Record<string, number>
  if (model.config.model_type === 'qwen3_moe')
    return {
      expert_count: c.num_experts!,
      expert_used_count: c.num_experts_per_tok!,
      expert_feed_forward_length: c.moe_intermediate_size!,
    }
  if (model.config.model_type === 'granite')
    return {
      'attention.scale': c.attention_multiplier!,
      embedding_scale: c.embedding_multiplier!,
      residual_scale: c.residual_multiplier!,
      logit_scale: c.logits_scaling!,
    }
  if (model.config.model_type !== 'phi3') return {}
  const { short_factor: short, long_factor: long } = model.config.rope_scaling as {
    short_factor: number[]
    long_factor: number[]
  }
  tensors.set('rope_factors_short.weight', { shape: [short.length], data: Float32Array.from(short) })
  tensors.set('rope_factors_long.weight', { shape: [long.length], data: Float32Array.from(long) })
  const original = c.original_max_position_embeddings!
  return {
    'attention.sliding_window': c.sliding_window!,
    'rope.dimension_count': (c.hidden_size! / c.num_attention_heads!) * c.partial_rotary_factor!,
    'rope.scaling.original_context_length': original,
    'rope.scaling.attn_factor': Math.sqrt(1 + Math.log(c.max_position_embeddings! / original) / Math.log(original)),
  }
}
