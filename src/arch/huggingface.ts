// config.json and checkpoint names of the Llama family (Hugging Face transformers: LlamaConfig, MistralConfig, MixtralConfig) → DecoderSpec.
import type { ArchInput } from './arch.ts'
import { Config } from './config.ts'
import { type DecoderSpec, HEAD } from './decoder.ts'
import { isHarmless, NEUTRAL } from './fields.ts'
import { readRope } from './rope.ts'

/** What transformers assumes when a field is absent. */
export interface FamilyDefaults {
  readonly architecture: string
  readonly ropeTheta: number
  readonly rmsNormEps: number
  readonly contextLength: number
  readonly kvHeads?: number
  /** The family has attention_bias and mlp_bias. */
  readonly biases: boolean
  readonly experts: boolean
}

export interface ReadConfig {
  readonly spec: DecoderSpec
  readonly ignored: ReadonlySet<string>
  readonly warnings: readonly string[]
}

/** Throws CONFIG_INVALID, ARCH_UNSUPPORTED. */
export function readHuggingFace(input: ArchInput, defaults: FamilyDefaults): ReadConfig {
  const config = new Config(input.config, 'config.json')
  const name = config.text('model_type')
  checkArchitectures(config, input, defaults.architecture)
  for (const [field, values] of Object.entries(NEUTRAL)) config.require(field, values)
  const hidden = config.count('hidden_size')
  const heads = config.count('num_attention_heads')
  const kvHeads = config.count('num_key_value_heads', defaults.kvHeads ?? heads)
  if (heads % kvHeads !== 0) config.invalid('num_key_value_heads', `a divisor of ${heads}`, kvHeads)
  if (!config.has('head_dim') && hidden % heads !== 0)
    config.invalid('num_attention_heads', `a divisor of hidden_size ${hidden}`, heads)
  const headDim = config.count('head_dim', hidden / heads)
  if (headDim % 2 !== 0) config.invalid('head_dim', 'an even number', headDim)
  const biases = new Set<string>()
  if (defaults.biases) {
    if (config.flag('attention_bias', false)) for (const p of ['q_proj', 'k_proj', 'v_proj', 'o_proj']) biases.add(p)
    if (config.flag('mlp_bias', false)) for (const p of ['gate_proj', 'up_proj', 'down_proj']) biases.add(p)
  } else for (const field of ['attention_bias', 'mlp_bias']) config.require(field, [false])
  const tied = config.flag('tie_word_embeddings', false)
  const spec: DecoderSpec = {
    name,
    vocabulary: config.count('vocab_size'),
    hidden,
    inner: config.count('intermediate_size'),
    layers: config.count('num_hidden_layers'),
    heads,
    kvHeads,
    headDim,
    epsilon: config.positive('rms_norm_eps', defaults.rmsNormEps),
    contextLength: config.count('max_position_embeddings', defaults.contextLength),
    rope: readRope(config, defaults.ropeTheta),
    interleaved: false,
    tied,
    biases,
    ...(defaults.experts
      ? { experts: { count: config.count('num_local_experts', 8), topK: config.count('num_experts_per_tok', 2) } }
      : {}),
  }
  if (!defaults.experts)
    for (const field of ['num_local_experts', 'num_experts', 'num_experts_per_tok']) config.require(field, [0])
  else if (spec.experts!.topK > spec.experts!.count)
    config.invalid('num_experts_per_tok', `at most ${spec.experts!.count}`, spec.experts!.topK)
  checkLayers(config, spec, input)
  const warnings = config.leftover(isHarmless)
  return { spec, ...leaveOut(input, tied, warnings) }
}

function checkArchitectures(config: Config, input: ArchInput, expected: string): void {
  const value = input.config.architectures
  if (value === undefined || value === null) return
  if (!Array.isArray(value) || !value.includes(expected))
    config.unsupported('architectures is not implemented', value, [expected])
}

/** A layer needs tensors, so more layers than tensors cannot be: refused before a graph of that size is built. */
function checkLayers(config: Config, spec: DecoderSpec, input: ArchInput): void {
  if (spec.layers > input.tensors.size)
    config.invalid('num_hidden_layers', `at most ${input.tensors.size}, the number of tensors`, spec.layers)
  if (spec.experts !== undefined && spec.experts.count * spec.layers > input.tensors.size)
    config.invalid(
      'num_local_experts',
      `at most ${Math.floor(input.tensors.size / spec.layers)}: there are ${input.tensors.size} tensors for ${spec.layers} layers`,
      spec.experts.count,
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

/** Hugging Face names are the graph's names. */
export function sameNames(weights: readonly { readonly name: string }[]): ReadonlyMap<string, string> {
  return new Map(weights.map((w) => [w.name, w.name]))
}
