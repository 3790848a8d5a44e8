// config.json and checkpoint names (Hugging Face transformers, models/*/configuration_*.py) → DecoderSpec. What families share is read here;
// what a family has of its own is read by its `features`.
import type { ArchInput } from './arch.ts'
import { Config } from './config.ts'
import { HEAD } from './decoder.ts'
import { isHarmless, NEUTRAL } from './fields.ts'
import { type RopeOptions, readRope } from './rope.ts'
import type { DecoderSpec, Dimensions, Features } from './spec.ts'

/** A family's configuration: what transformers assumes when a field is absent, and what the family has of its own. */
export interface Family {
  readonly architecture: string
  readonly ropeTheta: number
  readonly rmsNormEps: number
  readonly contextLength: number
  /** Left out: as many as heads. */
  readonly kvHeads?: number
  /** Left out: hidden / heads. */
  readonly headDim?: number
  readonly tied?: boolean
  /** RoPE types and partial rotation beyond those of every family. */
  readonly rope?: Pick<RopeOptions, 'partial' | 'longrope'>
  /** Fields of NEUTRAL that `features` gives their meaning. */
  readonly honours?: readonly string[]
  features?(config: Config, dimensions: Dimensions): Features
}

export interface ReadConfig {
  readonly spec: DecoderSpec
  readonly ignored: ReadonlySet<string>
  readonly warnings: readonly string[]
}

/** Throws CONFIG_INVALID, ARCH_UNSUPPORTED. */
export function readHuggingFace(input: ArchInput, family: Family): ReadConfig {
  const config = new Config(input.config, 'config.json')
  const name = config.text('model_type')
  checkArchitectures(config, input, family.architecture)
  for (const [field, values] of Object.entries(NEUTRAL))
    if (family.honours?.includes(field) !== true) config.require(field, values)
  const dimensions = readDimensions(config, family)
  if (dimensions.layers > input.tensors.size)
    config.invalid('num_hidden_layers', `at most ${input.tensors.size}, the number of tensors`, dimensions.layers)
  const context = config.count('max_position_embeddings', family.contextLength)
  const rope = readRope(config, { ...family.rope, base: family.ropeTheta, headDim: dimensions.headDim, context })
  const features = family.features?.(config, dimensions) ?? {}
  const tied = config.flag('tie_word_embeddings', family.tied ?? false)
  const spec: DecoderSpec = {
    name,
    ...dimensions,
    ...features,
    epsilon: config.positive('rms_norm_eps', family.rmsNormEps),
    contextLength: rope.context,
    rope: rope.rope,
    interleaved: false,
    tied,
  }
  if (features.experts === undefined)
    for (const field of ['num_local_experts', 'num_experts', 'num_experts_per_tok']) config.require(field, [0])
  checkExperts(config, spec, input)
  const warnings = [...rope.warnings, ...config.leftover(isHarmless)]
  return { spec, ...leaveOut(input, tied, warnings) }
}

function readDimensions(config: Config, family: Family): Dimensions {
  const hidden = config.count('hidden_size')
  const heads = config.count('num_attention_heads')
  // transformers reads a null as "as many as heads" and an absent field as the family's default.
  const kvDefault = config.states('num_key_value_heads') ? heads : (family.kvHeads ?? heads)
  const kvHeads = config.count('num_key_value_heads', kvDefault)
  if (heads % kvHeads !== 0) config.invalid('num_key_value_heads', `a divisor of ${heads}`, kvHeads)
  const assumed = config.states('head_dim') ? undefined : family.headDim
  if (!config.has('head_dim') && assumed === undefined && hidden % heads !== 0)
    config.invalid('num_attention_heads', `a divisor of hidden_size ${hidden}`, heads)
  const headDim = config.count('head_dim', assumed ?? hidden / heads)
  if (headDim % 2 !== 0) config.invalid('head_dim', 'an even number', headDim)
  return {
    vocabulary: config.count('vocab_size'),
    hidden,
    inner: config.count('intermediate_size'),
    layers: config.count('num_hidden_layers'),
    heads,
    kvHeads,
    headDim,
  }
}

function checkArchitectures(config: Config, input: ArchInput, expected: string): void {
  const value = input.config.architectures
  if (value === undefined || value === null) return
  if (!Array.isArray(value) || !value.includes(expected))
    config.unsupported('architectures is not implemented', value, [expected])
}

/** An expert needs tensors, so more of them than tensors cannot be: refused before a graph of that size is built. */
function checkExperts(config: Config, spec: DecoderSpec, input: ArchInput): void {
  if (spec.experts === undefined) return
  const { count, topK, sparse } = spec.experts
  if (topK > count) config.invalid('num_experts_per_tok', `at most ${count}`, topK)
  const layers = Array.from({ length: spec.layers }, (_, i) => sparse(i)).filter(Boolean).length
  if (count * layers > input.tensors.size)
    config.invalid(
      config.has('num_experts') ? 'num_experts' : 'num_local_experts',
      `at most ${Math.floor(input.tensors.size / layers)}: there are ${input.tensors.size} tensors for ${layers} layers`,
      count,
    )
}

function leaveOut(input: ArchInput, tied: boolean, warnings: string[]): { ignored: Set<string>; warnings: string[] } {
  const ignored = new Set<string>()
  for (const name of input.tensors.keys())
    if (/^model\.layers\.\d+\.self_attn\.rotary_emb\.inv_freq$|^model\.rotary_emb\.inv_freq$/.test(name))
      ignored.add(name)
  if (tied && input.tensors.has(HEAD)) {
    ignored.add(HEAD)
    warnings.push(`config.json: tie_word_embeddings is true, so the tensor ${HEAD} was not used`)
  }
  return { ignored, warnings }
}

/** attention_bias and mlp_bias, as Llama has them. */
export function llamaBiases(config: Config): Set<string> {
  const biases = new Set<string>()
  if (config.flag('attention_bias', false)) for (const p of ['q_proj', 'k_proj', 'v_proj', 'o_proj']) biases.add(p)
  if (config.flag('mlp_bias', false)) for (const p of ['gate_proj', 'up_proj', 'down_proj']) biases.add(p)
  return biases
}

/** Of a family without such fields: a checkpoint that states a bias is refused. */
export function refuseBiases(config: Config, ...fields: string[]): void {
  for (const field of fields) config.require(field, [false])
}

/** Hugging Face names are the graph's names. */
export function sameNames(weights: readonly { readonly name: string }[]): ReadonlyMap<string, string> {
  return new Map(weights.map((w) => [w.name, w.name]))
}
