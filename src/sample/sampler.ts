// From logits to a token. The order is that of transformers' generate (GenerationMixin._get_logits_processor): logit bias and
// penalties, temperature, top-k, top-p, min-p, then one draw. (llama.cpp applies the temperature last; values on model cards are
// mostly meant for the order used here.)
import { InferenceError, ValidationError } from '../base/errors.ts'
import { TokenHeap } from './heap.ts'
import { type CheckedOptions, checkSampling, type SamplingOptions } from './options.ts'
import { Random } from './random.ts'

export interface Sample {
  readonly id: number
  /** Natural logarithm of the probability the model itself gave the token: before bias, penalties, temperature and filters. */
  readonly logprob: number
}

export interface Sampler {
  /**
   * Picks the next token. `logits` [vocabulary] is not changed. `history`: ids of prompt and text so far; the first `promptTokens` of
   * them are the prompt, which presence and frequency penalties leave out (default 0).
   * @throws LOGITS_INVALID when a logit is NaN or +Infinity, or all are -Infinity
   */
  next(logits: Float32Array, history?: readonly number[], promptTokens?: number): Sample
}

/** @throws REQUEST_INVALID naming the option and its range */
export function createSampler(options: SamplingOptions = {}): Sampler {
  const checked = checkSampling(options)
  // 2^53 seeds; only a given one can be repeated.
  const random = Random.seeded(options.seed ?? Math.floor(Math.random() * 2 ** 53))
  return { next: (logits, history = [], promptTokens = 0) => next(checked, random, logits, history, promptTokens) }
}

function next(
  o: CheckedOptions,
  random: Random,
  raw: Float32Array,
  history: readonly number[],
  prompt: number,
): Sample {
  const best = argmax(raw)
  const logits = adjust(o, raw, history, prompt)
  const top = logits === undefined ? best : argmaxOf(logits)
  if (top < 0) throw new InferenceError('LOGITS_INVALID', { what: 'no token is allowed: every logit is -Infinity' })
  const id = o.temperature === 0 ? top : draw(o, random, logits ?? Float64Array.from(raw), top)
  return { id, logprob: (raw[id] as number) - logSumExp(raw, raw[best] as number) }
}

/** Id of the largest logit, the lowest of equal ones; -1 when all are -Infinity. */
function argmax(logits: Float32Array): number {
  let best = -1
  let max = Number.NEGATIVE_INFINITY
  for (let id = 0; id < logits.length; id++) {
    const x = logits[id] as number
    if (x > max) {
      max = x
      best = id
    } else if (Number.isNaN(x)) return invalid(id, x)
  }
  return max === Number.POSITIVE_INFINITY ? invalid(best, max) : best
}

function invalid(id: number, got: number): never {
  throw new InferenceError('LOGITS_INVALID', {
    what: 'the model gave a logit that is not a finite number',
    where: `token ${id}`,
    got,
    remedy: 'The weights are damaged or overflow in this precision.',
  })
}

function argmaxOf(logits: Float64Array): number {
  let best = -1
  let max = Number.NEGATIVE_INFINITY
  for (let id = 0; id < logits.length; id++)
    if ((logits[id] as number) > max) {
      max = logits[id] as number
      best = id
    }
  return best
}

/** Bias and penalties, on a copy; undefined when there are none. */
function adjust(
  o: CheckedOptions,
  raw: Float32Array,
  history: readonly number[],
  prompt: number,
): Float64Array | undefined {
  const penalized = o.repetitionPenalty !== 1 || o.presencePenalty !== 0 || o.frequencyPenalty !== 0
  if (o.logitBias.size === 0 && (!penalized || history.length === 0)) return undefined
  const logits = Float64Array.from(raw)
  for (const [id, bias] of o.logitBias) {
    checkId(id, raw.length)
    ;(logits[id] as number) += bias
  }
  if (!penalized) return logits
  const generated = new Map<number, number>()
  for (const [i, id] of history.entries()) {
    checkId(id, raw.length)
    generated.set(id, (generated.get(id) ?? 0) + (i < prompt ? 0 : 1))
  }
  for (const [id, count] of generated) {
    let x = logits[id] as number
    x = x > 0 ? x / o.repetitionPenalty : x * o.repetitionPenalty
    if (count > 0) x -= o.presencePenalty + count * o.frequencyPenalty
    logits[id] = x
  }
  return logits
}

function checkId(id: number, vocabulary: number): void {
  if (!Number.isInteger(id) || id < 0 || id >= vocabulary)
    throw new ValidationError('REQUEST_INVALID', {
      what: 'token id is out of range',
      expected: `0 … ${vocabulary - 1}`,
      got: id,
    })
}

/** One token at random from the filtered distribution. `logits` [vocabulary] is overwritten by weights e^((x − max) / T). */
function draw(o: CheckedOptions, random: Random, logits: Float64Array, top: number): number {
  const max = logits[top] as number
  const weight = (id: number): number => Math.exp(((logits[id] as number) - max) / o.temperature)
  const filtered = (o.topK > 0 && o.topK < logits.length) || o.topP < 1
  const ids = filtered ? likeliest(o, logits, weight) : undefined
  // Weights relative to the likeliest token: its own is 1.
  const kept: number[] = []
  const weights: number[] = []
  let sum = 0
  const count = ids?.length ?? logits.length
  for (let i = 0; i < count; i++) {
    const id = ids === undefined ? i : (ids[i] as number)
    const w = weight(id)
    if (w < o.minP || w === 0) continue
    kept.push(id)
    weights.push(w)
    sum += w
  }
  let left = random.next() * sum
  for (let i = 0; i < kept.length; i++) {
    left -= weights[i] as number
    if (left < 0) return kept[i] as number
  }
  // Rounding of the sum can leave a rest at the end of the line.
  return kept[kept.length - 1] as number
}

/** Ids that top-k, then top-p keep, likeliest first. Equal logits: the lower id first, exactly k of them. */
function likeliest(o: CheckedOptions, logits: Float64Array, weight: (id: number) => number): number[] {
  const heap = new TokenHeap(logits)
  const limit = o.topK > 0 ? Math.min(o.topK, logits.length) : logits.length
  const ids: number[] = []
  if (limit < logits.length) {
    for (let id = heap.take(); id !== undefined && ids.length < limit; id = heap.take()) ids.push(id)
    return o.topP < 1 ? nucleus(ids, o.topP, weight) : ids
  }
  // Top-p over everything: the total first, then only as many as the nucleus needs leave the heap.
  let total = 0
  for (let id = 0; id < logits.length; id++) total += weight(id)
  let sum = 0
  for (let id = heap.take(); id !== undefined; id = heap.take()) {
    ids.push(id)
    sum += weight(id)
    if (sum >= o.topP * total) break
  }
  return ids
}

function nucleus(ids: readonly number[], topP: number, weight: (id: number) => number): number[] {
  const total = ids.reduce((sum, id) => sum + weight(id), 0)
  let sum = 0
  let n = 0
  while (n < ids.length && sum < topP * total) sum += weight(ids[n++] as number)
  return ids.slice(0, n)
}

function logSumExp(logits: Float32Array, max: number): number {
  let sum = 0
  for (let i = 0; i < logits.length; i++) sum += Math.exp((logits[i] as number) - max)
  return max + Math.log(sum)
}
