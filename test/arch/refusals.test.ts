// What a configuration may not say: refused by name, never ignored.
import { expect, test } from 'vitest'
import { buildArchitecture } from '#sluice/arch/registry.js'
import type { ErrorCode } from '#sluice/base/errors.js'
import { isSluiceError } from '#sluice/base/errors.js'
import type { JsonObject } from '#sluice/base/json.js'
import { checkTensors } from '#sluice/graph/tensors.js'
import type { SmallModel } from '../graph/models.ts'
import { SIZE, toGguf, toyConfig, toyModel } from './toy.ts'

const MOE = { ...SIZE, experts: 4, topK: 2 }

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

function without(config: JsonObject, key: string): JsonObject {
  return Object.fromEntries(Object.entries(config).filter(([k]) => k !== key))
}

const REFUSED: [ErrorCode, string, JsonObject][] = [
  ['ARCH_UNSUPPORTED', 'falcon', { model_type: 'falcon' }],
  ['ARCH_UNSUPPORTED', 'LlamaForSequenceClassification', { architectures: ['LlamaForSequenceClassification'] }],
  ['ARCH_UNSUPPORTED', 'gelu', { hidden_act: 'gelu' }],
  ['ARCH_UNSUPPORTED', 'gptq', { quantization_config: { quant_method: 'gptq', bits: 4 } }],
  ['ARCH_UNSUPPORTED', 'ntk', { rope_scaling: { rope_type: 'ntk', factor: 4 } }],
  [
    'ARCH_UNSUPPORTED',
    'longrope',
    { rope_scaling: { type: 'longrope', short_factor: [1, 1, 1], long_factor: [2, 2, 2] } },
  ],
  [
    'ARCH_UNSUPPORTED',
    'original_max_position_embeddings',
    { rope_scaling: { type: 'dynamic', factor: 4, original_max_position_embeddings: 32 } },
  ],
  ['ARCH_UNSUPPORTED', 'alpha', { rope_scaling: { type: 'dynamic', factor: 4, alpha: 1000 } }],
  ['CONFIG_INVALID', 'factor', { rope_scaling: { rope_type: 'yarn' } }],
  ['CONFIG_INVALID', 'beta_fast', { rope_scaling: { rope_type: 'yarn', factor: 4, beta_fast: 1 } }],
  [
    'ARCH_UNSUPPORTED',
    'extrapolation_factor',
    { rope_scaling: { rope_type: 'yarn', factor: 4, extrapolation_factor: 1 } },
  ],
  ['ARCH_UNSUPPORTED', 'beta_fast', { rope_scaling: { type: 'linear', factor: 4, beta_fast: 32 } }],
  ['ARCH_UNSUPPORTED', 'linear', { rope_scaling: { type: 'linear', rope_type: 'llama3', factor: 4 } }],
  [
    'ARCH_UNSUPPORTED',
    'rope_parameters',
    { rope_scaling: { type: 'linear', factor: 4 }, rope_parameters: { rope_type: 'default' } },
  ],
  ['ARCH_UNSUPPORTED', 'rope_theta', { rope_parameters: { rope_type: 'default', rope_theta: 5 } }],
  ['CONFIG_INVALID', 'factor', { rope_scaling: { type: 'linear' } }],
  ['CONFIG_INVALID', 'factor', { rope_scaling: { type: 'linear', factor: -1 } }],
  [
    'CONFIG_INVALID',
    'high_freq_factor',
    {
      rope_scaling: {
        rope_type: 'llama3',
        factor: 8,
        low_freq_factor: 4,
        high_freq_factor: 4,
        original_max_position_embeddings: 40,
      },
    },
  ],
  ['ARCH_UNSUPPORTED', 'partial_rotary_factor', { partial_rotary_factor: 0.5 }],
  ['ARCH_UNSUPPORTED', 'sliding_window', { sliding_window: 4096 }],
  ['ARCH_UNSUPPORTED', 'rope_interleaved', { rope_interleaved: true }],
  ['ARCH_UNSUPPORTED', 'final_logit_softcapping', { final_logit_softcapping: 30 }],
  ['ARCH_UNSUPPORTED', 'residual_multiplier', { residual_multiplier: 0.22 }],
  ['ARCH_UNSUPPORTED', 'num_local_experts', { num_local_experts: 8 }],
  ['CONFIG_INVALID', 'num_key_value_heads', { num_key_value_heads: 3 }],
  ['CONFIG_INVALID', 'head_dim', { head_dim: 7 }],
  ['CONFIG_INVALID', 'hidden_size', { hidden_size: 0 }],
  ['CONFIG_INVALID', 'hidden_size', { hidden_size: '20' }],
  ['CONFIG_INVALID', 'hidden_size', { hidden_size: null }],
  ['CONFIG_INVALID', 'num_hidden_layers', { num_hidden_layers: 1e9 }],
  ['CONFIG_INVALID', 'vocab_size', { vocab_size: 2 ** 40 }],
  ['CONFIG_INVALID', 'rms_norm_eps', { rms_norm_eps: 0 }],
  ['CONFIG_INVALID', 'tie_word_embeddings', { tie_word_embeddings: 'yes' }],
  ['CONFIG_INVALID', 'attention_bias', { attention_bias: 1 }],
  ['TENSOR_SHAPE', '[46, 20]', { vocab_size: 46 }],
  ['TENSOR_MISSING', 'q_proj.bias', { attention_bias: true }],
  ['TENSOR_UNEXPECTED', 'model.layers.1', { num_hidden_layers: 1 }],
]

test.each(REFUSED)('config.json: %s names %s', (code, name, more) => {
  const model = toyModel(SIZE, toyConfig(SIZE), 1)
  const got = refusal({ ...model, config: { ...model.config, ...more } })
  expect(got.code).toBe(code)
  expect(got.message).toContain(name)
})

test('the unchanged toy is accepted, and so is what Hugging Face writes for TinyLlama, SmolLM and Llama 3', () => {
  const model = toyModel(SIZE, toyConfig(SIZE), 1)
  expect(refusal(model).code).toBe('none')
  const config = {
    ...model.config,
    ...{ attention_bias: false, attention_dropout: 0, bos_token_id: 1, eos_token_id: [1, 2], initializer_range: 0.02 },
    ...{
      pretraining_tp: 1,
      rope_scaling: null,
      torch_dtype: 'bfloat16',
      transformers_version: '4.46.0',
      use_cache: true,
    },
    ...{ is_llama_config: true, rope_interleaved: false, 'transformers.js_config': { dtype: 'q4' }, mlp_bias: false },
  }
  expect(buildArchitecture({ ...model, config }).warnings).toEqual([])
})

test('fields nobody knows are warned of by name', () => {
  const model = toyModel(SIZE, toyConfig(SIZE, { attention_magic: 3, __proto: 1 }), 1)
  const { warnings } = buildArchitecture(model)
  expect(warnings.length).toBe(2)
  expect(warnings[0]).toContain('"attention_magic"')
})

test('a second head beside a tied one is left out with a warning; recomputed tables silently', () => {
  const model = toyModel(SIZE, toyConfig(SIZE), 1)
  model.tensors.set('model.layers.0.self_attn.rotary_emb.inv_freq', { shape: [3], data: new Float32Array(3) })
  const tied = { ...model, config: { ...model.config, tie_word_embeddings: true } }
  const arch = buildArchitecture(tied)
  expect(arch.warnings.length).toBe(1)
  expect(arch.warnings[0]).toContain('lm_head.weight')
  checkTensors(arch.graph, tied.tensors, arch)
  expect([...arch.ignored]).toEqual(['model.layers.0.self_attn.rotary_emb.inv_freq', 'lm_head.weight'])
})

test('a missing model_type, a missing field', () => {
  const model = toyModel(SIZE, toyConfig(SIZE), 1)
  expect(refusal({ ...model, config: without(model.config, 'model_type') }).code).toBe('CONFIG_INVALID')
  expect(refusal({ ...model, config: without(model.config, 'vocab_size') }).code).toBe('CONFIG_INVALID')
  expect(refusal({ ...model, config: without(model.config, 'head_dim') }).message).toContain('got 5')
  const odd = { ...without(model.config, 'head_dim'), num_attention_heads: 3, num_key_value_heads: 3 }
  expect(refusal({ ...model, config: odd }).code).toBe('CONFIG_INVALID')
  expect(refusal({ ...model, config: { model_type: '__proto__' } }).code).toBe('ARCH_UNSUPPORTED')
})

test('mixtral: impossible experts, a sliding window, a bias', () => {
  const model = toyModel(MOE, toyConfig(MOE), 1)
  expect(refusal(model).code).toBe('none')
  const change = (more: JsonObject) => refusal({ ...model, config: { ...model.config, ...more } }).code
  expect(change({ num_experts_per_tok: 5 })).toBe('CONFIG_INVALID')
  expect(change({ num_local_experts: 1e6 })).toBe('CONFIG_INVALID')
  expect(change({ num_local_experts: 3 })).toBe('TENSOR_SHAPE')
  expect(change({ sliding_window: 4096 })).toBe('ARCH_UNSUPPORTED')
  expect(change({ attention_bias: true })).toBe('ARCH_UNSUPPORTED')
})

const REFUSED_GGUF: [ErrorCode, string, JsonObject][] = [
  ['ARCH_UNSUPPORTED', 'gemma2', { 'general.architecture': 'gemma2' }],
  ['ARCH_UNSUPPORTED', 'adapter', { 'general.type': 'adapter' }],
  ['ARCH_UNSUPPORTED', 'yarn', { 'llama.rope.scaling.type': 'yarn' }],
  ['ARCH_UNSUPPORTED', 'attn_factor', { 'llama.rope.scaling.attn_factor': 2 }],
  ['ARCH_UNSUPPORTED', 'rope.dimension_count', { 'llama.rope.dimension_count': 4 }],
  ['ARCH_UNSUPPORTED', 'value_length', { 'llama.attention.value_length': 8 }],
  ['ARCH_UNSUPPORTED', 'sliding_window', { 'llama.attention.sliding_window': 4096 }],
  ['ARCH_UNSUPPORTED', 'head_count_kv differs', { 'llama.attention.head_count_kv': [2, 1] }],
  ['CONFIG_INVALID', 'head_count_kv', { 'llama.attention.head_count_kv': [2] }],
  ['ARCH_UNSUPPORTED', 'logit_scale', { 'llama.logit_scale': 0.5 }],
  ['ARCH_UNSUPPORTED', 'expert_used_count', { 'llama.expert_used_count': 2 }],
  ['CONFIG_INVALID', 'expert_used_count', { 'llama.expert_count': 2, 'llama.expert_used_count': 3 }],
  ['CONFIG_INVALID', 'expert_count', { 'llama.expert_count': 1e8, 'llama.expert_used_count': 3 }],
  ['TENSOR_MISSING', 'ffn_gate_inp', { 'llama.expert_count': 4, 'llama.expert_used_count': 2 }],
  ['CONFIG_INVALID', 'block_count', { 'llama.block_count': 1e9 }],
  ['CONFIG_INVALID', 'layer_norm_rms_epsilon', { 'llama.attention.layer_norm_rms_epsilon': null }],
  ['TENSOR_SHAPE', 'token_embd', { 'llama.vocab_size': 99 }],
]

test.each(REFUSED_GGUF)('GGUF: %s names %s', (code, name, more) => {
  const got = refusal(toGguf(SIZE, toyModel(SIZE, toyConfig(SIZE), 1), more))
  expect(got.code).toBe(code)
  expect(got.message).toContain(name)
})

test('GGUF: unknown llama keys are warned of, other namespaces are not ours', () => {
  const model = toGguf(SIZE, toyModel(SIZE, toyConfig(SIZE), 1), {
    'llama.secret': 1,
    'tokenizer.ggml.model': 'gpt2',
    'general.name': 'x',
  })
  const { warnings } = buildArchitecture(model)
  expect(warnings.length).toBe(1)
  expect(warnings[0]).toContain('llama.secret')
  model.tensors.delete('token_embd.weight')
  expect(refusal(model).code).toBe('TENSOR_MISSING')
})
