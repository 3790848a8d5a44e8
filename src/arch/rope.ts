// rope_scaling of config.json (or rope_parameters, as transformers 5 writes it). Source: Hugging Face transformers, modeling_rope_utils.py.
// A plan has one table of frequencies, so types that change them with the length of the text (dynamic, longrope) are run as far as
// they are constant: up to the length the model was trained on.
import type { JsonObject } from '../base/json.ts'
import type { RopeScaling } from '../graph/rope.ts'
import { Config } from './config.ts'

export interface Rope {
  readonly base: number
  /** Dimensions of a head that turn: dim/2 pairs. */
  readonly dim: number
  readonly scaling: RopeScaling
  /** Frequency i is divided by divisors[i]; empty: by 1. */
  readonly divisors: readonly number[]
  /** Factor of cos and sin. */
  readonly attentionScale: number
}

export interface RopeOptions {
  /** Of a configuration that does not say. */
  readonly base: number
  readonly headDim: number
  /** max_position_embeddings. */
  readonly context: number
  /** The family knows partial_rotary_factor. */
  readonly partial?: boolean
  /** The family has long and short factors (and another meaning of yarn). */
  readonly longrope?: boolean
}

export interface ReadRope {
  readonly rope: Rope
  /** Positions for which the table holds. */
  readonly context: number
  readonly warnings: readonly string[]
}

export const NO_SCALING: RopeScaling = {
  type: 'none',
  factor: 1,
  lowFreqFactor: 1,
  highFreqFactor: 4,
  originalContextLength: 8192,
  betaFast: 32,
  betaSlow: 1,
  truncate: true,
}

/** Throws ARCH_UNSUPPORTED for a type or field that is not implemented, CONFIG_INVALID for impossible values. */
export function readRope(config: Config, options: RopeOptions): ReadRope {
  const base = config.positive('rope_theta', options.base)
  const old = config.object('rope_scaling')
  const recent = config.object('rope_parameters')
  if (old !== undefined && recent !== undefined)
    config.unsupported('rope_scaling beside rope_parameters', Object.keys(old))
  const json = old ?? recent
  const where = old === undefined ? 'config.json rope_parameters' : 'config.json rope_scaling'
  const reader = new Parameters(config, new Config(json ?? {}, where), json ?? {}, options, base)
  return reader.read()
}

type Part = Partial<Omit<ReadRope, 'rope'>> & Partial<Omit<Rope, 'base' | 'dim'>>

class Parameters {
  readonly #config: Config
  readonly #rope: Config
  readonly #json: JsonObject
  readonly #options: RopeOptions
  readonly #base: number

  constructor(config: Config, rope: Config, json: JsonObject, options: RopeOptions, outer: number) {
    this.#config = config
    this.#rope = rope
    this.#json = json
    this.#options = options
    this.#base = rope.positive('rope_theta', outer)
    if (config.has('rope_theta') && this.#base !== outer)
      rope.unsupported('rope_theta has two values', [outer, this.#base])
  }

  read(): ReadRope {
    const rope = this.#rope
    const type = rope.has('rope_type') ? rope.text('rope_type') : rope.text('type', 'default')
    if (rope.has('type') && rope.text('type') !== type) rope.unsupported('type and rope_type differ', this.#json)
    const dim = this.#dim()
    const part = this.#ofType(type, dim)
    // Inside this object every field is about the maths: an unknown one is refused. A default type keeps fields of no effect.
    const unknown = rope.leftover((key) => type === 'default' && key === 'factor' && this.#json.factor === 1)
    if (unknown.length > 0) rope.unsupported('RoPE parameters are not known', Object.keys(this.#json))
    const { scaling = NO_SCALING, divisors = [], attentionScale = 1, context = this.#options.context } = part
    return {
      rope: { base: this.#base, dim, scaling, divisors, attentionScale },
      context,
      warnings: part.warnings ?? [],
    }
  }

  /** partial_rotary_factor stands beside or inside the parameters. */
  #dim(): number {
    const { headDim, partial } = this.#options
    if (partial !== true) {
      this.#rope.require('partial_rotary_factor', [1])
      return headDim
    }
    const outer = this.#config.positiveOrNone('partial_rotary_factor')
    const inner = this.#rope.positiveOrNone('partial_rotary_factor')
    if (outer !== undefined && inner !== undefined && outer !== inner)
      this.#rope.unsupported('partial_rotary_factor has two values', [outer, inner])
    const factor = inner ?? outer ?? 1
    const dim = Math.trunc(headDim * factor)
    if (factor > 1 || dim < 2 || dim % 2 !== 0)
      this.#rope.invalid('partial_rotary_factor', `a share of ${headDim} that is an even number of dimensions`, factor)
    return dim
  }

  #ofType(type: string, dim: number): Part {
    const { longrope } = this.#options
    if (type === 'default') return {}
    if (longrope === true) {
      if (type === 'longrope' || type === 'su') return this.#longrope(dim)
      return this.#rope.unsupported('RoPE type is not implemented', type, ['default', 'longrope'])
    }
    if (type === 'linear') return { scaling: { ...NO_SCALING, type: 'linear', factor: this.#rope.positive('factor') } }
    if (type === 'llama3') return this.#llama3()
    if (type === 'yarn') return this.#yarn()
    if (type === 'dynamic') return this.#dynamic()
    return this.#rope.unsupported('RoPE type is not implemented', type, [
      'default',
      'linear',
      'dynamic',
      'yarn',
      'llama3',
    ])
  }

  #llama3(): Part {
    const rope = this.#rope
    const lowFreqFactor = rope.positive('low_freq_factor')
    const highFreqFactor = rope.positive('high_freq_factor')
    const factor = rope.positive('factor')
    const originalContextLength = rope.count('original_max_position_embeddings')
    if (highFreqFactor <= lowFreqFactor)
      rope.invalid('high_freq_factor', `a number above low_freq_factor (${lowFreqFactor})`, highFreqFactor)
    return { scaling: { ...NO_SCALING, type: 'llama3', factor, lowFreqFactor, highFreqFactor, originalContextLength } }
  }

  #yarn(): Part {
    const rope = this.#rope
    const factor = rope.positive('factor')
    const stated = rope.has('original_max_position_embeddings')
    const original = rope.count('original_max_position_embeddings', this.#options.context)
    // Files leave max_position_embeddings at the original length or raise it: the scaled length is what the table is made for.
    const context = Math.max(this.#options.context, stated ? Math.floor(original * factor) : 0)
    if (context > 2 ** 31) rope.invalid('factor', `at most ${2 ** 31 / original}`, factor)
    const betaFast = rope.positive('beta_fast', 32)
    const betaSlow = rope.positive('beta_slow', 1)
    if (betaFast <= betaSlow) rope.invalid('beta_fast', `a number above beta_slow (${betaSlow})`, betaFast)
    if (this.#base <= 1) rope.invalid('rope_theta', 'a number above 1', this.#base)
    const mscale = rope.positiveOrNone('mscale')
    const mscaleAll = rope.positiveOrNone('mscale_all_dim')
    const scale = (by: number) => (factor <= 1 ? 1 : 0.1 * by * Math.log(factor) + 1)
    const both = mscale !== undefined && mscaleAll !== undefined
    const attentionScale = rope.positive('attention_factor', both ? scale(mscale) / scale(mscaleAll) : scale(1))
    const truncate = rope.flag('truncate', true)
    const extended = this.#options.context / original
    // Some releases of transformers computed the factor from the two lengths; the stated one is what it means today.
    const warnings =
      extended === 1 || extended === factor || original === this.#options.context
        ? []
        : [
            `config.json: yarn's factor is ${factor}, while max_position_embeddings is ${extended} times the original length`,
          ]
    const scaling = {
      ...NO_SCALING,
      type: 'yarn',
      factor,
      originalContextLength: original,
      betaFast,
      betaSlow,
      truncate,
    } as const
    return { scaling, attentionScale, context, warnings }
  }

  /** Unscaled up to max_position_embeddings; the base grows only with longer texts. */
  #dynamic(): Part {
    const { context } = this.#options
    this.#rope.positive('factor')
    this.#rope.require('original_max_position_embeddings', [context])
    return {
      warnings: [
        `config.json: dynamic RoPE scaling is implemented up to max_position_embeddings, ${context} positions`,
      ],
    }
  }

  /** Short factors up to the original length; long ones, for all positions, once a text is longer. */
  #longrope(dim: number): Part {
    const rope = this.#rope
    const outer = this.#config.has('original_max_position_embeddings')
      ? this.#config.count('original_max_position_embeddings')
      : undefined
    const original = rope.count('original_max_position_embeddings', outer)
    if (outer !== undefined && outer !== original)
      rope.unsupported('original_max_position_embeddings has two values', [outer, original])
    const divisors = rope.positives('short_factor', dim / 2)
    rope.positives('long_factor', dim / 2)
    const { context } = this.#options
    const extended = context / original
    const factor = rope.positive('factor', extended)
    if (factor !== extended)
      rope.unsupported('factor differs from max_position_embeddings / original_max_position_embeddings', factor, [
        extended,
      ])
    const assumed = factor <= 1 || original === 1 ? 1 : Math.sqrt(1 + Math.log(factor) / Math.log(original))
    return {
      divisors,
      attentionScale: rope.positive('attention_factor', assumed),
      context: Math.min(context, original),
      warnings:
        context <= original
          ? []
          : [
              `config.json: longrope is implemented up to original_max_position_embeddings, ${original} positions of ${context}; the long factors were not used`,
            ],
    }
  }
}
