// GGUF metadata and tensor names → DecoderSpec and name map. Sources: the GGUF specification (ggml, docs/gguf.md) for keys and names;
// llama.cpp's converter (conversion/*.py) for the row order of q and k, and its src/models/*.cpp for what a family's keys mean.
import { ValidationError } from '../base/errors.ts'
import type { JsonValue } from '../base/json.ts'
import { MAX_TENSORS } from '../base/limits.ts'
import type { ArchInput } from './arch.ts'
import { Config } from './config.ts'
import { EMBEDDING, FINAL_NORM, HEAD } from './decoder.ts'
import { NO_SCALING, type Rope } from './rope.ts'
import { type DecoderSpec, type Dimensions, type Experts, type Features, MIXTRAL_EXPERTS } from './spec.ts'

/** Graph name of rope_freqs.weight: no Hugging Face model has such a tensor. */
export const ROPE_FACTORS = 'rope_freqs.weight'
/** Factors of longrope for texts up to the original length, and beyond. */
export const SHORT_FACTORS = 'rope_factors_short.weight'
export const LONG_FACTORS = 'rope_factors_long.weight'

/** Key after the architecture's name → values under which it changes nothing. */
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
  /^(general|tokenizer|split|quantize|imatrix|GGUF)\.|^\w+\.rope\.scaling\.(original_context_length|finetuned)$/

/** Module in a layer: graph name → GGUF name. */
const MODULES: Readonly<Record<string, string>> = {
  'self_attn.q_proj': 'attn_q',
  'self_attn.k_proj': 'attn_k',
  'self_attn.v_proj': 'attn_v',
  'self_attn.qkv_proj': 'attn_qkv',
  'self_attn.o_proj': 'attn_output',
  'self_attn.q_norm': 'attn_q_norm',
  'self_attn.k_norm': 'attn_k_norm',
  'mlp.gate_proj': 'ffn_gate',
  'mlp.up_proj': 'ffn_up',
  'mlp.down_proj': 'ffn_down',
  // One matrix, the rows of gate before those of up, under the name of up.
  'mlp.gate_up_proj': 'ffn_up',
  input_layernorm: 'attn_norm',
  post_attention_layernorm: 'ffn_norm',
  post_feedforward_layernorm: 'post_ffw_norm',
  'block_sparse_moe.gate': 'ffn_gate_inp',
  'mlp.gate': 'ffn_gate_inp',
}
const BIASED = ['q_proj', 'k_proj', 'v_proj', 'o_proj'].map((p) => `self_attn.${p}`)
const EXPERT: Readonly<Record<string, string>> = {
  w1: 'ffn_gate',
  w2: 'ffn_down',
  w3: 'ffn_up',
  gate_proj: 'ffn_gate',
  down_proj: 'ffn_down',
  up_proj: 'ffn_up',
}

/** A GGUF architecture. */
export interface GgufFamily {
  readonly architecture: string
  /** The converter reordered the rows of q and k, for rotation in pairs (2i, 2i+1). */
  readonly interleaved: boolean
  /** Modules whose GGUF name is another than in MODULES. */
  readonly modules?: Readonly<Record<string, string>>
  /** Keys of NEUTRAL (after the architecture's name) that `features` or `rope` give their meaning. */
  readonly honours?: readonly string[]
  features?(config: Config, key: (suffix: string) => string, dimensions: Dimensions): Features
  /** Left out: all dimensions of a head turn, unscaled or linearly scaled. */
  rope?(config: Config, key: (suffix: string) => string, dimensions: Dimensions, input: ArchInput): GgufRope
}

export interface GgufRope {
  readonly rope: Rope
  readonly ropeFactors?: string
  /** Positions for which the table holds. */
  readonly context?: number
  readonly warnings?: readonly string[]
}

export function expertCount(input: ArchInput): number {
  const value = input.config['llama.expert_count']
  return typeof value === 'number' ? value : 0
}

/** Throws CONFIG_INVALID, ARCH_UNSUPPORTED, TENSOR_MISSING (token_embd.weight). */
export function readGguf(
  input: ArchInput,
  name: string,
  family: GgufFamily,
): { spec: DecoderSpec; warnings: readonly string[] } {
  const config = new Config(input.config, 'GGUF metadata')
  const key = (suffix: string) => `${family.architecture}.${suffix}`
  for (const [suffix, values] of Object.entries(NEUTRAL))
    if (family.honours?.includes(suffix) !== true) config.require(key(suffix), values)
  config.require('general.type', ['model'])
  const dimensions = readDimensions(config, key, input)
  const features = family.features?.(config, key, dimensions) ?? {}
  if (features.experts === undefined) refuseExperts(config, key)
  const context = config.count(key('context_length'))
  const { rope, ropeFactors, ...limits } =
    family.rope?.(config, key, dimensions, input) ?? readRope(config, key, dimensions, input)
  const spec: DecoderSpec = {
    name,
    ...dimensions,
    ...features,
    epsilon: config.positive(key('attention.layer_norm_rms_epsilon')),
    contextLength: Math.min(context, limits.context ?? context),
    rope,
    ...(ropeFactors === undefined ? {} : { ropeFactors }),
    interleaved: family.interleaved,
    tied: !input.tensors.has('output.weight'),
    biases: readBiases(input),
  }
  return { spec, warnings: [...(limits.warnings ?? []), ...config.leftover((k) => HARMLESS.test(k))] }
}

function readDimensions(config: Config, key: (suffix: string) => string, input: ArchInput): Dimensions {
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
  const vocabulary = config.count(key('vocab_size'), embedding[0])
  const inner = config.perLayerCount(key('feed_forward_length'), layers)
  return { vocabulary, hidden, inner, layers, heads, kvHeads, headDim }
}

/** Files do not say which projections have a bias; the tensors of the first layer do, and the others must agree. */
function readBiases(input: ArchInput): Set<string> {
  const modules = [...BIASED, 'mlp.gate_proj', 'mlp.up_proj', 'mlp.down_proj']
  return new Set(modules.filter((m) => input.tensors.has(`blk.0.${MODULES[m]!}.bias`)).map((m) => m.split('.')[1]!))
}

function refuseExperts(config: Config, key: (suffix: string) => string): void {
  // Dense models may state 0 experts.
  for (const suffix of ['expert_count', 'expert_used_count']) config.require(key(suffix), [0])
}

/** expert_count and expert_used_count, which must be there. */
export function readExperts(
  config: Config,
  key: (suffix: string) => string,
  layers: number,
): { count: number; topK: number } {
  const count = config.count(key('expert_count'))
  if (layers * count > MAX_TENSORS)
    config.invalid(key('expert_count'), `at most ${Math.floor(MAX_TENSORS / layers)}`, count)
  const topK = config.count(key('expert_used_count'))
  if (topK > count) config.invalid(key('expert_used_count'), `at most ${count}`, topK)
  return { count, topK }
}

/** mixtral: experts as wide as the model's feed_forward_length says. */
export function mixtralExperts(config: Config, key: (suffix: string) => string, dimensions: Dimensions): Experts {
  const { inner, layers } = dimensions
  config.require(key('expert_feed_forward_length'), [inner])
  return { ...readExperts(config, key, layers), ...MIXTRAL_EXPERTS, inner, normalize: true, sparse: () => true }
}

function readRope(
  config: Config,
  key: (suffix: string) => string,
  { headDim }: Dimensions,
  input: ArchInput,
): GgufRope {
  config.require(key('rope.dimension_count'), [headDim])
  const base = config.positive(key('rope.freq_base'), 10000)
  const plain = { base, dim: headDim, scaling: NO_SCALING, divisors: [], attentionScale: 1 }
  const factors = input.tensors.has(ROPE_FACTORS) ? { ropeFactors: ROPE_FACTORS } : {}
  const type = config.text(key('rope.scaling.type'), 'none')
  if (type !== 'none' && type !== 'linear')
    config.unsupported(`${key('rope.scaling.type')} is not implemented`, type, ['none', 'linear'])
  // Older files have only scale_linear. A type "none" switches the factor off.
  const old = config.positive(key('rope.scale_linear'), 1)
  const factor = config.positive(key('rope.scaling.factor'), old)
  const stated = config.has(key('rope.scaling.type'))
  if (factor === 1 || (stated && type === 'none')) return { rope: plain, ...factors }
  return { rope: { ...plain, scaling: { ...NO_SCALING, type: 'linear', factor } }, ...factors }
}

/**
 * Graph weight → tensor, for every weight of the graph. `stored` is the name under which a family's checkpoint stores it. Experts are
 * parts of stacked tensors, or tensors of their own in older files.
 */
export function ggufNames(
  input: ArchInput,
  weights: readonly { readonly name: string }[],
  family: GgufFamily,
  stored: (weight: string) => string = (weight) => weight,
): ReadonlyMap<string, string> {
  const fixed: Readonly<Record<string, string>> = {
    [EMBEDDING]: 'token_embd.weight',
    [FINAL_NORM]: 'output_norm.weight',
    [HEAD]: 'output.weight',
  }
  return new Map(weights.map(({ name }) => [name, fixed[name] ?? layerName(input, stored(name), family)]))
}

function layerName(input: ArchInput, name: string, family: GgufFamily): string {
  const found = /^model\.layers\.(\d+)\.(.+)\.(weight|bias)(\[\d+:\d+\])?$/.exec(name)
  // Tensors of the model as a whole, such as rotary factors, have their GGUF name in the graph.
  if (found === null) return name
  const [, layer, module, kind, rows = ''] = found as unknown as [string, string, string, string, string?]
  const expert = /^(?:block_sparse_moe|mlp)\.experts\.(\d+)\.(\w+)$/.exec(module)
  if (expert === null) return `blk.${layer}.${family.modules?.[module] ?? MODULES[module]!}.${kind}${rows}`
  const base = `blk.${layer}.${EXPERT[expert[2]!]!}`
  const single = `${base}.${expert[1]}.weight`
  return input.tensors.has(single) ? single : `${base}_exps.weight#${expert[1]}`
}

/** Tensors llama.cpp keeps in files and does not use, and long factors where short ones are used. */
export function ggufIgnored(input: ArchInput, spec: DecoderSpec): ReadonlySet<string> {
  const unused = (name: string) =>
    /^blk\.\d+\.attn_rot_embd(\.weight)?$/.test(name) || (name === LONG_FACTORS && spec.ropeFactors === SHORT_FACTORS)
  return new Set([...input.tensors.keys()].filter(unused))
}
