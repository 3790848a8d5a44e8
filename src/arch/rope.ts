// rope_scaling of config.json (or rope_parameters, as transformers 5 writes it). Source: Hugging Face transformers, modeling_rope_utils.py.
import type { JsonObject } from '../base/json.ts'
import type { RopeScaling } from '../graph/rope.ts'
import { Config } from './config.ts'

export interface Rope {
  readonly base: number
  readonly scaling: RopeScaling
}

export const NO_SCALING: RopeScaling = {
  type: 'none',
  factor: 1,
  lowFreqFactor: 1,
  highFreqFactor: 4,
  originalContextLength: 8192,
}

/** Throws ARCH_UNSUPPORTED for a type or field that is not implemented, CONFIG_INVALID for impossible values. */
export function readRope(config: Config, defaultBase: number): Rope {
  const base = config.positive('rope_theta', defaultBase)
  const old = config.object('rope_scaling')
  const recent = config.object('rope_parameters')
  if (old !== undefined && recent !== undefined)
    config.unsupported('rope_scaling beside rope_parameters', Object.keys(old))
  const json = old ?? recent
  if (json === undefined) return { base, scaling: NO_SCALING }
  const where = old === undefined ? 'config.json rope_parameters' : 'config.json rope_scaling'
  return readParameters(new Config(json, where), json, config.has('rope_theta') ? base : undefined, base)
}

function readParameters(rope: Config, json: JsonObject, outer: number | undefined, fallback: number): Rope {
  const type = rope.has('rope_type') ? rope.text('rope_type') : rope.text('type', 'default')
  if (rope.has('type') && rope.text('type') !== type) rope.unsupported('type and rope_type differ', json)
  const base = rope.positive('rope_theta', fallback)
  if (outer !== undefined && outer !== base) rope.unsupported('rope_theta has two values', [outer, base])
  rope.require('partial_rotary_factor', [1])
  let scaling: RopeScaling
  if (type === 'default') scaling = NO_SCALING
  else if (type === 'linear') scaling = { ...NO_SCALING, type: 'linear', factor: rope.positive('factor') }
  else if (type === 'llama3')
    scaling = {
      type: 'llama3',
      factor: rope.positive('factor'),
      lowFreqFactor: rope.positive('low_freq_factor'),
      highFreqFactor: rope.positive('high_freq_factor'),
      originalContextLength: rope.count('original_max_position_embeddings'),
    }
  else return rope.unsupported('RoPE type is not implemented', type, ['default', 'linear', 'llama3'])
  if (scaling.type === 'llama3' && scaling.highFreqFactor <= scaling.lowFreqFactor)
    rope.invalid(
      'high_freq_factor',
      `a number above low_freq_factor (${scaling.lowFreqFactor})`,
      scaling.highFreqFactor,
    )
  // Inside this object every field is about the maths: an unknown one is refused. A default type keeps fields of no effect.
  const unknown = rope.leftover((key) => type === 'default' && key === 'factor' && json.factor === 1)
  if (unknown.length > 0) rope.unsupported('RoPE parameters are not known', Object.keys(json))
  return { base, scaling }
}
