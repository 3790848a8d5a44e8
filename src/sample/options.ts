// What a caller may ask of a sampler, and the ranges.
import { ValidationError } from '../base/errors.ts'

/** How the next token is chosen from its logits. */
export interface SamplingOptions {
  /** 0 = greedy (default); otherwise logits are divided by it. 0 … 100. */
  temperature?: number
  /** Keep the k likeliest tokens; 0 (default) = all. */
  topK?: number
  /** Keep the likeliest tokens that together reach this probability; 1 (default) = all. (0, 1]. */
  topP?: number
  /** Drop tokens less likely than this share of the likeliest; 0 (default) = none. [0, 1]. */
  minP?: number
  /** > 1 discourages tokens of the prompt and the text so far (Keskar 2019, CTRL). (0, 100], default 1. */
  repetitionPenalty?: number
  /** Subtracted once from the logit of every token generated so far. [-100, 100], default 0. */
  presencePenalty?: number
  /** Subtracted from a token's logit for every time it was generated so far. [-100, 100], default 0. */
  frequencyPenalty?: number
  /** Integer, |seed| ≤ 2^53. Left out: drawn from the system. */
  seed?: number
  /** Added to the logit of an id; -Infinity forbids it. */
  logitBias?: ReadonlyMap<number, number>
}

export type CheckedOptions = Required<Omit<SamplingOptions, 'seed'>>

interface Range {
  fallback: number
  min: number
  max: number
  /** The minimum itself is not allowed. */
  open?: boolean
  integer?: boolean
}

const RANGES = {
  temperature: { fallback: 0, min: 0, max: 100 },
  topK: { fallback: 0, min: 0, max: Number.MAX_SAFE_INTEGER, integer: true },
  topP: { fallback: 1, min: 0, max: 1, open: true },
  minP: { fallback: 0, min: 0, max: 1 },
  repetitionPenalty: { fallback: 1, min: 0, max: 100, open: true },
  presencePenalty: { fallback: 0, min: -100, max: 100 },
  frequencyPenalty: { fallback: 0, min: -100, max: 100 },
} as const satisfies Record<string, Range>

const NAMES = [...Object.keys(RANGES), 'seed', 'logitBias']

function refuse(name: string, expected: string, got: unknown): never {
  throw new ValidationError('REQUEST_INVALID', { what: `${name} is out of range`, expected, got })
}

function inRange(name: string, value: unknown, range: Range): number {
  const { fallback, min, max, open = false, integer = false } = range
  if (value === undefined) return fallback
  const expected = `${integer ? 'integer ' : ''}${open ? `> ${min}` : `≥ ${min}`} and ≤ ${max}`
  if (typeof value !== 'number' || Number.isNaN(value) || value < min || value > max || (open && value === min))
    return refuse(name, expected, value)
  if (integer && !Number.isInteger(value)) return refuse(name, expected, value)
  return value
}

/** Fills in defaults. Throws REQUEST_INVALID naming the option and its range, also for an option that does not exist. */
export function checkSampling(options: SamplingOptions): CheckedOptions {
  for (const name of Object.keys(options))
    if (!NAMES.includes(name)) refuse(`sampling option "${name}"`, NAMES.join(', '), name)
  const { seed, logitBias = new Map<number, number>() } = options
  if (seed !== undefined && !Number.isSafeInteger(seed)) refuse('seed', 'an integer of at most 2^53', seed)
  if (!(logitBias instanceof Map)) refuse('logitBias', 'a Map from id to number', typeof logitBias)
  for (const [id, bias] of logitBias)
    if (!Number.isSafeInteger(id) || id < 0 || typeof bias !== 'number' || Number.isNaN(bias) || bias === Infinity)
      refuse('logitBias', 'ids from 0, and numbers or -Infinity', `${String(id)}: ${String(bias)}`)
  const number = (name: keyof typeof RANGES): number => inRange(name, options[name], RANGES[name])
  return {
    temperature: number('temperature'),
    topK: number('topK'),
    topP: number('topP'),
    minP: number('minP'),
    repetitionPenalty: number('repetitionPenalty'),
    presencePenalty: number('presencePenalty'),
    frequencyPenalty: number('frequencyPenalty'),
    logitBias,
  }
}
