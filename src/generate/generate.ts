// Text from a model: prefill the prompt, then one token at a time until something ends it.
import { isSluiceError, throwIfAborted, ValidationError } from '../base/errors.ts'
import type { Sequence } from '../engine/engine.ts'
import { createSampler } from '../sample/sampler.ts'
import type { TextStream, Tokenizer } from '../text/tokenizer.ts'
import { Decoder, type DraftCount } from './decoder.ts'
import { checkRequest, type GenerateRequest } from './request.ts'
import { StopMatcher } from './stop.ts'

/** 'stop': an end token, stop id or stop string; 'length': maxTokens, or the context is full. */
export type FinishReason = 'stop' | 'length'

/** One generated token. */
export interface TokenEvent {
  readonly type: 'token'
  /** From 0. */
  readonly index: number
  readonly id: number
  /** Text that became certain with this token: it may be empty, and may belong to earlier tokens. End tokens have none. */
  readonly text: string
  /** Natural logarithm of the probability the model gave the token. */
  readonly logprob: number
}

/** How much was done, and how fast. */
export interface Usage {
  readonly promptTokens: number
  readonly completionTokens: number
  readonly prefillMs: number
  /** Running and sampling the tokens after the first; what the caller does between events does not count. */
  readonly decodeMs: number
  /** Tokens after the first, by decodeMs; 0 when there are none. */
  readonly tokensPerSecond: number
  /** With `draftK`: how the drafts did. */
  readonly draft?: DraftCount
}

/** A token; then, once each, how much was done and how it ended. */
export type GenerateEvent =
  | TokenEvent
  | ({ readonly type: 'usage' } & Usage)
  | {
      readonly type: 'end'
      readonly finishReason: FinishReason
      /** Text that was held back (it might have become a stop string, or a character is incomplete). */
      readonly text: string
      /** The stop string that ended it. */
      readonly stop?: string
    }

/**
 * Continues a prompt. Events: a `token` each, then `usage`, then `end`; the text is the `text` of all events joined. End tokens count and
 * have their event (the ids are exactly what the model produced); their text is left out. When the context is full the reason is
 * 'length': a contextLength of n and a prompt of p tokens give n − p tokens, so that prompt and text fill it.
 *
 * The sequence must be empty or hold the beginning of the text (the prompt is appended); it is not released. The last token is not run
 * through the model.
 * @throws REQUEST_INVALID, TOKENIZER_MISSING, CONTEXT_FULL (the prompt does not fit), LOGITS_INVALID, ABORTED, and what forward throws
 */
export async function* generate(
  sequence: Sequence,
  tokenizer: Tokenizer | undefined,
  request: GenerateRequest,
): AsyncGenerator<GenerateEvent, void, undefined> {
  const { signal, maxTokens, contextLength = Number.POSITIVE_INFINITY } = request
  const { prompt, stops, stopIds } = checkRequest(request, tokenizer)
  const sampler = createSampler(request.sampling)
  throwIfAborted(signal)
  if (sequence.length + prompt.length > contextLength)
    throw new ValidationError('CONTEXT_FULL', {
      what: 'the prompt does not fit behind what the sequence holds',
      expected: `≤ ${contextLength - sequence.length} tokens`,
      got: prompt.length,
    })
  const text = new TextOf(tokenizer, prompt, stops)
  const history = [...prompt]
  const decoder = new Decoder(sequence, { signal, draftK: request.draftK ?? 0, contextLength })

  const started = performance.now()
  // With maxTokens 0 the prompt still runs: this is how a caller fills the cache.
  let logits = await decoder.prefill(prompt)
  const prefilled = performance.now()
  let decodeMs = 0
  let count = 0
  let finishReason: FinishReason = 'length'
  const base = sequence.length - prompt.length
  while (count < maxTokens && base + prompt.length + count < contextLength) {
    throwIfAborted(signal)
    const began = performance.now()
    if (count > 0) {
      const next = await decoder.next(history).catch(untilFull)
      if (next === undefined) break
      logits = next
    }
    const { id, logprob } = sampler.next(logits, history, prompt.length)
    if (count > 0) decodeMs += performance.now() - began
    history.push(id)
    const ended = stopIds.has(id)
    const shown = ended ? '' : text.push(id)
    yield { type: 'token', index: count, id, text: shown, logprob }
    count++
    if (ended || text.stop !== undefined) {
      finishReason = 'stop'
      break
    }
  }
  if (count > 0) decoder.settle(history)
  const rest = text.flush()
  if (text.stop !== undefined) finishReason = 'stop'
  yield {
    type: 'usage',
    promptTokens: prompt.length,
    completionTokens: count,
    prefillMs: prefilled - started,
    decodeMs,
    tokensPerSecond: count > 1 && decodeMs > 0 ? ((count - 1) * 1000) / decodeMs : 0,
    ...(request.draftK === undefined ? {} : { draft: decoder.count }),
  }
  yield { type: 'end', finishReason, text: rest, ...(text.stop === undefined ? {} : { stop: text.stop }) }
}

/** A full context ends a text; anything else is an error. */
function untilFull(error: unknown): undefined {
  if (isSluiceError(error, 'CONTEXT_FULL')) return undefined
  throw error
}

/** Text of the tokens after the prompt, up to a stop string. */
class TextOf {
  readonly #stream: TextStream | undefined
  readonly #size: number
  readonly #stops: StopMatcher

  constructor(tokenizer: Tokenizer | undefined, prompt: readonly number[], stops: readonly string[]) {
    this.#size = tokenizer?.vocabularySize ?? 0
    // Ids that pad a model's vocabulary beyond the tokenizer's have no text.
    this.#stream = tokenizer?.stream(prompt.filter((id) => id < this.#size))
    this.#stops = new StopMatcher(stops)
  }

  get stop(): string | undefined {
    return this.#stops.matched
  }

  push(id: number): string {
    return this.#stream === undefined || id >= this.#size ? '' : this.#stops.push(this.#stream.push(id))
  }

  flush(): string {
    if (this.stop !== undefined) return ''
    return this.#stops.push(this.#stream?.flush() ?? '') + this.#stops.flush()
  }
}
