// GGUF metadata and tensor names of the architecture "llama" (llama, mistral and mixtral models) → DecoderSpec and name map.
// Sources: the GGUF specification (ggml, docs/gguf.md) for keys and names; llama.cpp's converter for the row order of q and k.
import { ValidationError } from '../base/errors.ts'
import type { JsonValue } from '../base/json.ts'
import { MAX_TENSORS } from '../base/limits.ts'
import type { ArchInput } from './arch.ts'
import { Config } from './config.ts'
import { type DecoderSpec, EMBEDDING, FINAL_NORM, HEAD } from './decoder.ts'
import { NO_SCALING, type Rope } from './rope.ts'

/** Graph name of rope_freqs.weight: no Hugging Face model has such a tensor. */
export const ROPE_FACTORS = 'rope_freqs.weight'

/** Key after "llama." → values under which it changes nothing. */
const NEUTRAL: Readonly<Record<string, readonly JsonValue[]>> = {
  'rope.scaling.attn_factor': [1],
  'rope.scaling.yarn_log_multiplier': [],
  'rope.dimension_sections': [],
  'attention.causal': [true],
  'attention.clamp_kqv': [0],
  'attention.max_alibi_bias': [0],
  'attention.scale': [0],
  'attention.sliding_window': [0],
  'attention.temperature_scale': [0],
  attn_logit_softcapping: [0],
  final_logit_softcapping: [0],
  use_parallel_residual: [false, true],
  tensor_data_layout: ['Meta AI original pth'],
  logit_scale: [0, 1],
  residual_scale: [0, 1],
  embedding_scale: [0, 1],
  pooling_type: [0],
  expert_shared_count: [0],
  expert_weights_scale: [0, 1],
  expert_weights_norm: [true],
  expert_gating_func: [0, 1],
  expert_group_count: [0, 1],
  leading_dense_block_count: [0],
  interleave_moe_layer_step: [0, 1],
  swin_norm: [false],
}

/** Keys of other matters, and what only YaRN reads. */
const HARMLESS =
  /^(general|tokenizer|split|quantize|imatrix|GGUF)\.|^llama\.rope\.scaling\.(original_context_length|finetuned)$/

/** Module in a layer: graph name → GGUF name. */
const DENSE: Readonly<Record<string, string>> = {
  'self_attn.q_proj': 'attn_q',
  'self_attn.k_proj': 'attn_k',
  'self_attn.v_proj': 'attn_v',
  'self_attn.o_proj': 'attn_output',
  'mlp.gate_proj': 'ffn_gate',
  'mlp.up_proj': 'ffn_up',
  'mlp.down_proj': 'ffn_down',
  input_layernorm: 'attn_norm',
  post_attention_layernorm: 'ffn_norm',
  'block_sparse_moe.gate': 'ffn_gate_inp',
}
const EXPERT: Readonly<Record<string, string>> = { w1: 'ffn_gate', w2: 'ffn_down', w3: 'ffn_up' }

export function expertCount(input: ArchInput): number {
  const value = input.config['llama.expert_count']
  return typeof value === 'number' ? value : 0
}

/** Throws CONFIG_INVALID, ARCH_UNSUPPORTED, TENSOR_MISSING (token_embd.weight). */
export function readGguf(input: ArchInput, name: string): { spec: DecoderSpec; warnings: string[] } {
  const config = new Config(input.config, 'GGUF metadata')
  const key = (suffix: string) => `llama.${suffix}`
  for (const [suffix, values] of Object.entries(NEUTRAL)) config.require(key(suffix), values)
  config.require('general.type', ['model'])
  const embedding = input.tensors.get('token_embd.weight')?.shape
  if (embedding === undefined)
    throw new ValidationError('TENSOR_MISSING', {
      what: 'the model has no embedding',
      where: 'GGUF',
      expected: 'token_embd.weight',
    })
  const layers = config.count(key('block_count'))
  if (layers > input.tensors.size)
    config.invalid(key('block_count'), `at most ${input.tensors.size}, the number of tensors`, layers)
  const hidden = config.count(key('embedding_length'))
  const heads = config.perLayerCount(key('attention.head_count'), layers)
  const kvHeads = config.perLayerCount(key('attention.head_count_kv'), layers, heads)
  if (heads % kvHeads !== 0) config.invalid(key('attention.head_count_kv'), `a divisor of ${heads}`, kvHeads)
  if (!config.has(key('attention.key_length')) && hidden % heads !== 0)
    config.invalid(key('attention.head_count'), `a divisor of ${key('embedding_length')} ${hidden}`, heads)
  const headDim = config.count(key('attention.key_length'), hidden / heads)
  if (headDim % 2 !== 0) config.invalid(key('attention.key_length'), 'an even number', headDim)
  config.require(key('attention.value_length'), [headDim])
  config.require(key('rope.dimension_count'), [headDim])
  const vocabulary = config.count(key('vocab_size'), embedding[0])
  const inner = config.perLayerCount(key('feed_forward_length'), layers)
  const experts = readExperts(config, layers)
  if (experts !== undefined) config.require(key('expert_feed_forward_length'), [inner])
  const biases = new Set<string>()
  for (const [module, there] of Object.entries(DENSE))
    if (module.endsWith('_proj') && input.tensors.has(`blk.0.${there}.bias`)) biases.add(module.split('.')[1]!)
  const spec: DecoderSpec = {
    name,
    vocabulary,
    hidden,
    inner,
    layers,
    heads,
    kvHeads,
    headDim,
    epsilon: config.positive(key('attention.layer_norm_rms_epsilon')),
    contextLength: config.count(key('context_length')),
    rope: readRope(config),
    ...(input.tensors.has(ROPE_FACTORS) ? { ropeFactors: ROPE_FACTORS } : {}),
    interleaved: true,
    tied: !input.tensors.has('output.weight'),
    biases,
    ...(experts === undefined ? {} : { experts }),
  }
  return { spec, warnings: config.leftover((k) => HARMLESS.test(k)) }
}

function readExperts(config: Config, layers: number): { count: number; topK: number } | undefined {
  // Dense models may state 0 experts.
  if (!config.has('llama.expert_count') || config.equals('llama.expert_count', 0)) {
    config.require('llama.expert_used_count', [0])
    return undefined
  }
  const count = config.count('llama.expert_count')
  if (layers * count > MAX_TENSORS)
    config.invalid('llama.expert_count', `at most ${Math.floor(MAX_TENSORS / layers)}`, count)
  const topK = config.count('llama.expert_used_count')
  if (topK > count) config.invalid('llama.expert_used_count', `at most ${count}`, topK)
  return { count, topK }
}

function readRope(config: Config): Rope {
  const base = config.positive('llama.rope.freq_base', 10000)
  const type = config.text('llama.rope.scaling.type', 'none')
  if (type !== 'none' && type !== 'linear')
    config.unsupported('llama.rope.scaling.type is not implemented', type, ['none', 'linear'])
  // Older files have only scale_linear. A type "none" switches the factor off.
  const old = config.positive('llama.rope.scale_linear', 1)
  const factor = config.positive('llama.rope.scaling.factor', old)
  const stated = config.has('llama.rope.scaling.type')
  if (factor === 1 || (stated && type === 'none')) return { base, scaling: NO_SCALING }
  return { base, scaling: { ...NO_SCALING, type: 'linear', factor } }
}

/** Graph weight → tensor, for every weight of the graph. Experts are parts of stacked tensors, or tensors of their own in older files. */
export function ggufNames(
  input: ArchInput,
  weights: readonly { readonly name: string }[],
): ReadonlyMap<string, string> {
  const fixed: Readonly<Record<string, string>> = {
    [EMBEDDING]: 'token_embd.weight',
    [FINAL_NORM]: 'output_norm.weight',
    [HEAD]: 'output.weight',
    [ROPE_FACTORS]: ROPE_FACTORS,
  }
  return new Map(weights.map(({ name }) => [name, fixed[name] ?? layerName(input, name)]))
}

function layerName(input: ArchInput, name: string): string {
  const [, layer, module, kind] = /^model\.layers\.(\d+)\.(.+)\.(weight|bias)$/.exec(name)!
  const expert = /^block_sparse_moe\.experts\.(\d+)\.(w[123])$/.exec(module!)
  if (expert === null) return `blk.${layer}.${DENSE[module!]!}.${kind}`
  const base = `blk.${layer}.${EXPERT[expert[2]!]!}`
  const single = `${base}.${expert[1]}.weight`
  return input.tensors.has(single) ? single : `${base}_exps.weight#${expert[1]}`
}

/** Tensors llama.cpp keeps in files and does not use. */
export function ggufIgnored(input: ArchInput): ReadonlySet<string> {
  return new Set([...input.tensors.keys()].filter((name) => /^blk\.\d+\.attn_rot_embd(\.weight)?$/.test(name)))
}
