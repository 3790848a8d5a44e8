// What the configuration of a family may not say: refused by name. The fixtures are the models of families.test.ts.
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { buildArchitecture } from '#sluice/arch/registry.js'
import { type ErrorCode, isSluiceError } from '#sluice/base/errors.js'
import type { JsonObject } from '#sluice/base/json.js'
import { checkTensors } from '#sluice/graph/tensors.js'
import { readCheckpoint, type SmallModel } from '../graph/models.ts'
import { gguf } from './gguf-twin.ts'

const FIXTURES = join(import.meta.dirname, '../fixtures/families')
const fixture = (name: string) => readCheckpoint(join(FIXTURES, name))

function refusal(model: SmallModel): { code: ErrorCode | 'none'; message: string } {
  try {
    const arch = buildArchitecture(model)
    checkTensors(arch.graph, model.tensors, arch)
  } catch (err) {
    if (isSluiceError(err)) return { code: err.code, message: err.message }
    throw err
  }
  return { code: 'none', message: '' }
}

const LONG = { type: 'longrope', short_factor: [1, 1, 1, 1, 1, 1], long_factor: [2, 2, 2, 2, 2, 2] }

const REFUSED: [string, ErrorCode, string, JsonObject][] = [
  ['qwen2', 'ARCH_UNSUPPORTED', 'gelu', { hidden_act: 'gelu' }],
  ['qwen2', 'ARCH_UNSUPPORTED', 'partial_rotary_factor', { partial_rotary_factor: 0.5 }],
  ['qwen2', 'ARCH_UNSUPPORTED', 'mlp_bias', { mlp_bias: true }],
  [
    'qwen2',
    'ARCH_UNSUPPORTED',
    'layer_types',
    { layer_types: ['sliding_attention', 'full_attention', 'full_attention'] },
  ],
  ['qwen2', 'ARCH_UNSUPPORTED', 'num_experts', { num_experts: 60 }],
  ['qwen2', 'CONFIG_INVALID', 'max_window_layers', { max_window_layers: -1 }],
  ['qwen2-tied-window', 'CONFIG_INVALID', 'layer_types', { layer_types: ['full_attention'] }],
  [
    'qwen2-tied-window',
    'CONFIG_INVALID',
    'layer_types',
    { layer_types: ['chunked_attention', 'full_attention', 'full_attention'] },
  ],
  ['qwen2-tied-window', 'CONFIG_INVALID', 'sliding_window', { sliding_window: 0 }],
  ['qwen3', 'TENSOR_SHAPE', 'q_proj', { head_dim: 16 }],
  ['qwen3', 'TENSOR_MISSING', 'q_proj.bias', { attention_bias: true }],
  // transformers assumes 128 where the field is not there.
  ['qwen3', 'CONFIG_INVALID', 'head_dim', { head_dim: 7 }],
  [
    'mistral',
    'ARCH_UNSUPPORTED',
    'layer_types',
    { layer_types: ['full_attention', 'full_attention', 'full_attention'] },
  ],
  ['mistral', 'CONFIG_INVALID', 'sliding_window', { sliding_window: 'all' }],
  ['qwen3-moe', 'ARCH_UNSUPPORTED', 'use_sliding_window', { use_sliding_window: true, sliding_window: 8 }],
  ['qwen3-moe', 'ARCH_UNSUPPORTED', 'num_local_experts', { num_local_experts: 8 }],
  ['qwen3-moe', 'CONFIG_INVALID', 'num_experts_per_tok', { num_experts_per_tok: 6 }],
  ['qwen3-moe', 'CONFIG_INVALID', 'mlp_only_layers', { mlp_only_layers: [3] }],
  ['qwen3-moe', 'CONFIG_INVALID', 'num_experts', { num_experts: 2 ** 30 }],
  ['qwen3-moe', 'ARCH_UNSUPPORTED', 'n_shared_experts', { n_shared_experts: 1 }],
  ['qwen3-moe', 'TENSOR_MISSING', 'mlp.gate_proj', { mlp_only_layers: [0] }],
  ['olmo2', 'ARCH_UNSUPPORTED', 'clip_qkv', { clip_qkv: 8 }],
  [
    'olmo2',
    'ARCH_UNSUPPORTED',
    'layer_types',
    { layer_types: ['sliding_attention', 'full_attention', 'full_attention'] },
  ],
  ['smollm3', 'CONFIG_INVALID', 'no_rope_layers', { no_rope_layers: [1, 2, 1] }],
  ['smollm3', 'CONFIG_INVALID', 'no_rope_layers', { no_rope_layers: [1, 0] }],
  ['smollm3', 'ARCH_UNSUPPORTED', 'layer_types', { use_sliding_window: false }],
  ['smollm3', 'TENSOR_UNEXPECTED', 'mlp.gate_proj.bias', { mlp_bias: false }],
  ['granite', 'ARCH_UNSUPPORTED', 'attention_bias', { attention_bias: true }],
  ['granite', 'CONFIG_INVALID', 'logits_scaling', { logits_scaling: 0 }],
  ['granite', 'ARCH_UNSUPPORTED', 'num_local_experts', { num_local_experts: 4 }],
  ['phi3', 'ARCH_UNSUPPORTED', 'yarn', { rope_scaling: { ...LONG, type: 'yarn' } }],
  ['phi3', 'ARCH_UNSUPPORTED', 'linear', { rope_scaling: { type: 'linear', factor: 2 } }],
  ['phi3', 'CONFIG_INVALID', 'short_factor', { rope_scaling: { ...LONG, short_factor: [1, 1, 1] } }],
  ['phi3', 'CONFIG_INVALID', 'long_factor', { rope_scaling: { ...LONG, long_factor: [1, 1, 1, 1, 1, 0] } }],
  ['phi3', 'ARCH_UNSUPPORTED', 'factor', { rope_scaling: { ...LONG, factor: 32 } }],
  ['phi3', 'ARCH_UNSUPPORTED', 'original_max', { rope_scaling: { ...LONG, original_max_position_embeddings: 32 } }],
  ['phi3', 'ARCH_UNSUPPORTED', 'short_mscale', { rope_scaling: { ...LONG, short_mscale: 1.1 } }],
  ['phi3', 'CONFIG_INVALID', 'partial_rotary_factor', { partial_rotary_factor: 1.5 }],
  ['phi3', 'CONFIG_INVALID', 'partial_rotary_factor', { partial_rotary_factor: 0.7 }],
  ['phi3', 'TENSOR_SHAPE', 'qkv_proj', { num_key_value_heads: 1 }],
  ['phi3', 'TENSOR_SHAPE', 'down_proj', { intermediate_size: 64 }],
  ['phi3', 'ARCH_UNSUPPORTED', 'lm_head_bias', { lm_head_bias: true }],
  [
    'llama-yarn',
    'CONFIG_INVALID',
    'factor',
    { rope_parameters: { rope_type: 'yarn', factor: 1e300, original_max_position_embeddings: 64 } },
  ],
]

test.each(REFUSED)('%s: %s names %s', (name, code, text, more) => {
  const model = fixture(name)
  expect(refusal(model).code).toBe('none')
  const got = refusal({ ...model, config: { ...model.config, ...more } })
  expect(got.code).toBe(code)
  expect(got.message).toContain(text)
})

const REFUSED_GGUF: [string, ErrorCode, string, JsonObject][] = [
  ['qwen2', 'ARCH_UNSUPPORTED', 'sliding_window', { 'qwen2.attention.sliding_window': 8 }],
  ['qwen2', 'ARCH_UNSUPPORTED', 'yarn', { 'qwen2.rope.scaling.type': 'yarn', 'qwen2.rope.scaling.factor': 4 }],
  ['qwen2', 'ARCH_UNSUPPORTED', 'expert_count', { 'qwen2.expert_count': 4 }],
  ['qwen3', 'ARCH_UNSUPPORTED', 'qwen3vl', { 'general.architecture': 'qwen3vl' }],
  ['qwen3', 'ARCH_UNSUPPORTED', 'attention.scale', { 'qwen3.attention.scale': 0.5 }],
  ['qwen3-moe', 'CONFIG_INVALID', 'expert_feed_forward_length', { 'qwen3moe.expert_feed_forward_length': null }],
  ['qwen3-moe', 'ARCH_UNSUPPORTED', 'expert_weights_norm', { 'qwen3moe.expert_weights_norm': false }],
  ['qwen3-moe', 'ARCH_UNSUPPORTED', 'expert_shared_count', { 'qwen3moe.expert_shared_count': 1 }],
  // OLMo 3 calls itself olmo2 and has windows.
  ['olmo2', 'ARCH_UNSUPPORTED', 'sliding_window', { 'olmo2.attention.sliding_window': 4096 }],
  ['granite', 'ARCH_UNSUPPORTED', 'finetuned', { 'granite.rope.scaling.finetuned': false }],
  ['granite', 'CONFIG_INVALID', 'logit_scale', { 'granite.logit_scale': null }],
  ['granite', 'ARCH_UNSUPPORTED', 'expert_count', { 'granite.expert_count': 4 }],
  ['phi3', 'ARCH_UNSUPPORTED', 'yarn', { 'phi3.rope.scaling.type': 'yarn' }],
  ['phi3', 'CONFIG_INVALID', 'original_context_length', { 'phi3.rope.scaling.original_context_length': null }],
  ['phi3', 'CONFIG_INVALID', 'dimension_count', { 'phi3.rope.dimension_count': 18 }],
  ['phi3', 'TENSOR_SHAPE', 'ffn_up', { 'phi3.feed_forward_length': 96 }],
]

test.each(REFUSED_GGUF)('%s as GGUF: %s names %s', (name, code, text, more) => {
  const model = gguf(fixture(name))
  expect(refusal(model).code).toBe('none')
  const got = refusal({ ...model, config: { ...model.config, ...more } })
  expect(got.code).toBe(code)
  expect(got.message).toContain(text)
})

test('absent fields are what transformers assumes', () => {
  const windowOf = (model: SmallModel) =>
    buildArchitecture(model).graph.nodes.find((n) => n.op === 'Attention')!.attributes.window
  const mistral = fixture('mistral')
  const { sliding_window: _, ...config } = mistral.config
  expect(windowOf({ ...mistral, config })).toBe(4096)
  expect(windowOf({ ...mistral, config: { ...config, sliding_window: null } })).toBeUndefined()
  const qwen3 = fixture('qwen3')
  const { head_dim: __, ...rest } = qwen3.config
  expect(refusal({ ...qwen3, config: rest }).message).toContain('[512, 48]')
  const llama = fixture('llama-yarn')
  expect(buildArchitecture(llama).graph.contextLength).toBe(8192)
  const short = { ...llama.config, max_position_embeddings: 1024 }
  expect(buildArchitecture({ ...llama, config: short }).graph.contextLength).toBe(8192)
})
