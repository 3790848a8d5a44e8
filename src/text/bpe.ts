// A tokenizer described by tokenizer.json: checked and translated here, encoded by @huggingface/tokenizers, decoded by our decoder.
import { Tokenizer as Library } from '@huggingface/tokenizers'
import { InferenceError, ValidationError } from '../base/errors.ts'
import { type JsonObject, own } from '../base/json.ts'
import { type Frame, isolated, readPostProcessor, translateNormalizer, translatePreTokenizer } from './components.ts'
import { type DecoderSpec, readDecoder, tokenBytes } from './decoder.ts'
import { knownKeys, objectAt, unsupported } from './fields.ts'
import { ByteTextStream } from './stream.ts'
import { within } from './timed.ts'
import type { EncodeOptions, TextStream, Tokenizer } from './tokenizer.ts'
import {
  type AddedToken,
  buildVocabulary,
  checkModel,
  mergesStayInWords,
  readAddedTokens,
  readMerges,
  type Vocabulary,
} from './vocabulary.ts'

export interface BpeOptions {
  /** File name for messages. */
  where: string
  /** Tokens added besides those of tokenizer.json. */
  added?: readonly AddedToken[]
  /** What surrounds a text, where it is not tokenizer.json that says it. */
  frame?: (idOf: (token: string) => number | undefined) => Frame
  bosToken?: string
  bosId?: number
  eosTokens?: readonly string[]
  eosIds?: readonly number[]
  /** Tokens that `skipSpecial` leaves out besides the added ones marked special. */
  specialTokens?: readonly string[]
  chatTemplate?: string
}

const KEYS = ['version', 'truncation', 'padding', 'added_tokens', 'normalizer', 'pre_tokenizer', 'post_processor']
/** A run of "▁" and the word after it. */
const WORDS = isolated('▁*[^▁]+|▁+')
const NONE = new Uint8Array(0)
/** Limit on encoding: the slowest texts measured (emoji, one byte a token) take 0.02 ms a character on a busy machine. */
const TIME_MS = 3000
const TIME_PER_CHARACTER_MS = 0.1

export class BpeTokenizer implements Tokenizer {
  readonly vocabularySize: number
  readonly bosId?: number
  readonly eosIds: readonly number[]
  readonly chatTemplate?: string
  readonly #vocabulary: Vocabulary
  readonly #decoder: DecoderSpec
  readonly #frame: Frame
  readonly #special: ReadonlySet<number>
  readonly #literal: ReadonlySet<number>
  readonly #library: Library
  readonly #parts: JsonObject
  readonly #where: string
  #plain: Library | undefined

  /**
   * `json`: a parsed tokenizer.json. Truncation and padding in it are ignored, as transformers does by default.
   * @throws TOKENIZER_UNSUPPORTED (component, field or switch that is not implemented), FORMAT_INVALID
   */
  constructor(json: JsonObject, options: BpeOptions) {
    const { where } = options
    this.#where = where
    knownKeys(json, [...KEYS, 'decoder', 'model'], where)
    const model = objectAt(own(json, 'model'), `${where}: model`)
    checkModel(model, `${where}: model`)
    const vocab = objectAt(own(model, 'vocab'), `${where}: model.vocab`)
    const merges = readMerges(model, vocab, `${where}: model`)
    const added = [...readAddedTokens(json, where), ...(options.added ?? [])]
    const vocabulary = buildVocabulary(vocab, added, where)
    const idOf = (token: string): number | undefined => vocabulary.ids.get(token)
    this.#vocabulary = vocabulary
    this.vocabularySize = vocabulary.tokens.length
    this.#decoder = readDecoder(own(json, 'decoder'), `${where}: decoder`)
    this.#frame =
      options.frame?.(idOf) ?? readPostProcessor(own(json, 'post_processor'), idOf, `${where}: post_processor`)
    const require = (token: string, role: string): number =>
      idOf(token) ?? unsupported(`${role} token "${token}" is not in the vocabulary`, where)
    const bosId = options.bosId ?? (options.bosToken === undefined ? undefined : require(options.bosToken, 'BOS'))
    if (bosId !== undefined) this.bosId = bosId
    this.eosIds = [...new Set([...(options.eosTokens ?? []).map((t) => require(t, 'EOS')), ...(options.eosIds ?? [])])]
    if (options.chatTemplate !== undefined) this.chatTemplate = options.chatTemplate
    const named = (options.specialTokens ?? []).flatMap((t) => idOf(t) ?? [])
    const special = added.filter((t) => t.special).map((t) => t.id)
    this.#special = new Set([...special, ...named, ...(bosId === undefined ? [] : [bosId]), ...this.eosIds])
    this.#literal = new Set(added.map((t) => t.id))
    this.#parts = {
      normalizer: translateNormalizer(own(json, 'normalizer'), `${where}: normalizer`),
      pre_tokenizer:
        translatePreTokenizer(own(json, 'pre_tokenizer'), `${where}: pre_tokenizer`) ??
        (mergesStayInWords(merges) ? WORDS : null),
      post_processor: null,
      decoder: null,
    }
    this.#library = this.#build(added, { ...model, type: 'BPE', merges: merges as unknown as string[] }, where)
  }

  #build(added: readonly AddedToken[], model: JsonObject, where: string): Library {
    const json = { ...this.#parts, added_tokens: added, model }
    try {
      return new Library(json, {})
    } catch (cause) {
      return unsupported(`tokenizer cannot be built: ${(cause as Error).message}`, where)
    }
  }

  /** The library without the special tokens, sharing the model: "<s>" in a text is then just three characters. */
  get #plainLibrary(): Library {
    if (this.#plain === undefined) {
      const added = this.#vocabulary.added.filter((t) => !t.special)
      this.#plain = this.#build(added, { type: 'BPE', vocab: {}, merges: [] }, 'parseSpecial')
      this.#plain.model = this.#library.model
    }
    return this.#plain
  }

  encode(text: string, options: EncodeOptions = {}): number[] {
    if (typeof text !== 'string')
      throw new ValidationError('REQUEST_INVALID', { what: 'text is not a string', got: typeof text })
    const library = options.parseSpecial === false ? this.#plainLibrary : this.#library
    // A lone surrogate has no UTF-8 form: it becomes U+FFFD, as it would in a file.
    const ids = text === '' ? [] : this.#encode(library, text.toWellFormed())
    for (const id of ids)
      if (!Number.isInteger(id)) throw new InferenceError('INTERNAL', { what: 'tokenizer returned no id', got: id })
    if (options.addSpecial === false) return ids
    const { before, after } = this.#frame
    const doubled = before.length > 0 && before[before.length - 1] === this.bosId && ids[0] === this.bosId
    return [...(doubled ? before.slice(0, -1) : before)].concat(ids, after)
  }

  /** Patterns that backtrack exponentially are refused at loading; what is slow all the same is stopped here. */
  #encode(library: Library, text: string): number[] {
    return within(
      TIME_MS + TIME_PER_CHARACTER_MS * text.length,
      () => library.encode(text, { add_special_tokens: false }).ids,
      () =>
        unsupported(
          'the patterns of the tokenizer take too long on this text',
          this.#where,
          `${text.length} characters`,
        ),
    )
  }

  decode(ids: readonly number[], options: { skipSpecial?: boolean } = {}): string {
    const stream = this.#stream(options.skipSpecial ?? true)
    let text = ''
    for (const id of ids) text += stream.push(id)
    return text + stream.flush()
  }

  stream(prompt: readonly number[] = []): TextStream {
    const stream = this.#stream(true)
    for (const id of prompt) stream.push(id)
    return stream
  }

  idToToken(id: number): string | undefined {
    return this.#vocabulary.tokens[id]
  }

  #stream(skipSpecial: boolean): TextStream {
    return new ByteTextStream((id) => this.#bytes(id, skipSpecial), this.#decoder.stripSpaces)
  }

  #bytes(id: number, skipSpecial: boolean): Uint8Array {
    if (!Number.isInteger(id) || id < 0 || id >= this.vocabularySize)
      throw new ValidationError('REQUEST_INVALID', {
        what: 'token id is not in the vocabulary',
        expected: `0 … ${this.vocabularySize - 1}`,
        got: id,
      })
    const token = this.#vocabulary.tokens[id]
    if (token === undefined || (skipSpecial && this.#special.has(id))) return NONE
    return tokenBytes(token, this.#literal.has(id), this.#decoder)
  }
}
