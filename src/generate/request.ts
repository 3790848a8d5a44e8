// What a caller asks of a generation, checked before anything runs.
import { SluiceError, ValidationError } from '../base/errors.ts'
import type { SamplingOptions } from '../sample/options.ts'
import type { Tokenizer } from '../text/tokenizer.ts'

/** A prompt, what ends its continuation, and how tokens are chosen. */
export interface GenerateRequest {
  /** Text to continue. Exactly one of `prompt` and `ids`. */
  readonly prompt?: string
  /** Token ids to continue, taken as they are: no BOS is added. */
  readonly ids?: readonly number[]
  /** With `prompt`: add BOS/EOS as the tokenizer says (default true; false for a rendered chat). */
  readonly addSpecial?: boolean
  /** Most tokens to generate, 0 or more. */
  readonly maxTokens: number
  /** Texts that end the generation; they are not part of the text. Non-empty; at most 64 of at most 4096 characters. */
  readonly stop?: readonly string[]
  /** Ids that end it, besides the end tokens of the tokenizer. */
  readonly stopIds?: readonly number[]
  /** Do not stop at end tokens (for measurements). `stopIds` still count. */
  readonly ignoreEos?: boolean
  readonly sampling?: SamplingOptions
  /** Draft up to so many tokens a pass by prompt lookup (0 … 32, default 0). The text is the same; passes are fewer where it repeats itself. */
  readonly draftK?: number
  /** Positions the engine has for a sequence (Engine.contextLength). Left out: until the engine says CONTEXT_FULL. */
  readonly contextLength?: number
  readonly signal?: AbortSignal
}

export interface CheckedRequest {
  readonly prompt: readonly number[]
  readonly stops: readonly string[]
  readonly stopIds: ReadonlySet<number>
}

const MAX_STOPS = 64
const MAX_DRAFT = 32
const MAX_STOP_LENGTH = 4096
/** Characters that are encoded in any case. */
const MIN_PROMPT = 65_536

/** Every key a request may have: one that is not known was meant to do something. */
const KEYS: ReadonlySet<string> = new Set<keyof GenerateRequest>([
  'prompt',
  'ids',
  'addSpecial',
  'maxTokens',
  'stop',
  'stopIds',
  'ignoreEos',
  'sampling',
  'draftK',
  'contextLength',
  'signal',
])

function refuse(what: string, extra: { expected?: unknown; got?: unknown } = {}): never {
  throw new ValidationError('REQUEST_INVALID', { what, ...extra })
}

function checkIds(name: string, ids: readonly number[]): void {
  if (!Array.isArray(ids)) refuse(`${name} is not an array`, { got: typeof ids })
  for (const id of ids)
    if (!Number.isInteger(id) || id < 0 || id >= 2 ** 31)
      refuse(`${name} holds something that is not a token id`, { expected: 'integers from 0', got: id })
}

/** Throws REQUEST_INVALID, or TOKENIZER_MISSING when text is given or wanted and there is no tokenizer. */
export function checkRequest(request: GenerateRequest, tokenizer: Tokenizer | undefined): CheckedRequest {
  for (const key of Object.keys(request))
    if (!KEYS.has(key)) refuse(`request has an option that is not known: ${key}`, { expected: [...KEYS].join(', ') })
  const { prompt, ids, maxTokens, stop = [], stopIds = [], contextLength } = request
  if (!Number.isSafeInteger(maxTokens) || maxTokens < 0)
    refuse('maxTokens is out of range', { expected: 'an integer from 0', got: maxTokens })
  if (contextLength !== undefined && (!Number.isSafeInteger(contextLength) || contextLength < 1))
    refuse('contextLength is out of range', { expected: 'an integer from 1', got: contextLength })
  if ((prompt === undefined) === (ids === undefined)) refuse('exactly one of prompt and ids must be given')
  const { draftK = 0 } = request
  if (!Number.isInteger(draftK) || draftK < 0 || draftK > MAX_DRAFT)
    refuse('draftK is out of range', { expected: `0 … ${MAX_DRAFT}`, got: draftK })
  if (!Array.isArray(stop) || stop.length > MAX_STOPS)
    refuse('stop is not a short list', { expected: `at most ${MAX_STOPS} strings`, got: stop })
  for (const text of stop)
    if (typeof text !== 'string' || text === '' || text.length > MAX_STOP_LENGTH)
      refuse('stop string is empty or too long', { expected: `1 … ${MAX_STOP_LENGTH} characters`, got: text })
  if (tokenizer === undefined && (prompt !== undefined || stop.length > 0))
    throw new SluiceError('TOKENIZER_MISSING', {
      what: 'the model has no tokenizer, and the request has text',
      remedy: 'Pass ids, without stop strings.',
    })
  checkIds('stopIds', stopIds)
  if (prompt !== undefined && contextLength !== undefined) checkLength(prompt, contextLength, tokenizer as Tokenizer)
  const start = ids ?? (tokenizer as Tokenizer).encode(prompt as string, { addSpecial: request.addSpecial ?? true })
  checkIds('ids', start)
  if (start.length === 0) refuse('the prompt has no tokens', { expected: 'at least one token' })
  if (contextLength !== undefined && start.length > contextLength)
    throw new SluiceError('CONTEXT_FULL', {
      what: 'the prompt is longer than the context of the model',
      expected: `≤ ${contextLength} tokens`,
      got: start.length,
    })
  const ends = request.ignoreEos === true ? [] : (tokenizer?.eosIds ?? [])
  return { prompt: start, stops: stop, stopIds: new Set([...ends, ...stopIds, ...stopTokens(stop, tokenizer)]) }
}

const longestTokens = new WeakMap<Tokenizer, number>()

/** Characters of the longest token: no token stands for more. */
function longestToken(tokenizer: Tokenizer): number {
  let longest = longestTokens.get(tokenizer)
  if (longest !== undefined) return longest
  longest = 1
  for (let id = 0; id < tokenizer.vocabularySize; id++)
    longest = Math.max(longest, tokenizer.idToToken(id)?.length ?? 0)
  longestTokens.set(tokenizer, longest)
  return longest
}

/** Encoding takes time and memory for every character: a text that cannot fit is refused before. Twice, as normalizers may shorten a text. */
function checkLength(text: string, contextLength: number, tokenizer: Tokenizer): void {
  if (typeof text !== 'string' || text.length <= MIN_PROMPT) return
  const most = 2 * contextLength * longestToken(tokenizer)
  if (text.length <= most) return
  throw new SluiceError('CONTEXT_FULL', {
    what: 'the prompt is longer than the context of the model',
    expected: `≤ ${contextLength} tokens, so ≤ ${most} characters`,
    got: `${text.length} characters`,
  })
}

/** A stop string that is a special token ("<|im_end|>") never shows up as text: its id is what to look for. */
function stopTokens(stop: readonly string[], tokenizer: Tokenizer | undefined): number[] {
  if (tokenizer === undefined) return []
  return stop.flatMap((text) => {
    const [id, ...more] = tokenizer.encode(text, { addSpecial: false })
    return id !== undefined && more.length === 0 && tokenizer.idToToken(id) === text && tokenizer.decode([id]) === ''
      ? [id]
      : []
  })
}
