// Vocabularies inside GGUF metadata, turned into the same description as tokenizer.json. Keys and token types: the GGUF specification
// (ggml-org/ggml, docs/gguf.md); defaults: llama.cpp (src/llama-vocab.cpp).
import type { JsonObject, JsonValue } from '../base/json.ts'
import { own } from '../base/json.ts'
import { BpeTokenizer } from './bpe.ts'
import { byteLevel, isolated } from './components.ts'
import { MAX_VOCABULARY, malformed, tokenId, unsupported } from './fields.ts'
import { PRE_TOKENIZERS } from './gguf-pre.ts'
import { deriveMerges } from './merges.ts'
import type { Tokenizer } from './tokenizer.ts'
import type { AddedToken } from './vocabulary.ts'

const KEY = 'tokenizer.ggml.'
/** Token types (gguf.md): 1 normal, 2 unknown, 3 control, 4 user-defined, 5 unused, 6 byte. */
const UNKNOWN = 2
const CONTROL = 3
const USER_DEFINED = 4

/** Tokens that end a turn in some model family; files often name only one of theirs (llama.cpp keeps such a list, too). */
const END_TOKENS: ReadonlySet<string> = new Set([
  ...['</s>', '<|endoftext|>', '<|end_of_text|>', '<|eot_id|>', '<|eom_id|>', '<|im_end|>', '<|end|>', '<end_of_turn>'],
  ...['<EOT>', '<｜end▁of▁sentence｜>', '<end_of_utterance>', '<|return|>', '<|call|>'],
])

interface Metadata {
  readonly tokens: readonly string[]
  readonly types: readonly number[]
  readonly get: (name: string) => JsonValue | undefined
}

/** A vocabulary of a GGUF file in the terms of tokenizer.json. */
export interface GgufVocabulary {
  /** tokenizer.json without added tokens and post-processor. */
  readonly json: JsonObject
  readonly tokens: readonly string[]
  readonly added: readonly AddedToken[]
  readonly bosId?: number
  readonly eosId?: number
  /** Every id that ends a text, `eosId` first. */
  readonly eosIds: readonly number[]
  readonly addBos: boolean
  readonly addEos: boolean
  readonly chatTemplate?: string
}

/**
 * `config`: the file's metadata by key; arrays may be anything that can be iterated.
 * @throws TOKENIZER_UNSUPPORTED (another tokenizer model or an unknown pre-tokenizer, by name), FORMAT_INVALID
 */
export function loadGgufTokenizer(config: JsonObject): Tokenizer {
  const v = readGgufVocabulary(config)
  return new BpeTokenizer(v.json, {
    where: 'GGUF metadata',
    added: v.added,
    frame: () => ({
      before: v.addBos && v.bosId !== undefined ? [v.bosId] : [],
      after: v.addEos && v.eosId !== undefined ? [v.eosId] : [],
    }),
    eosIds: v.eosIds,
    ...(v.bosId === undefined ? {} : { bosId: v.bosId }),
    ...(v.chatTemplate === undefined ? {} : { chatTemplate: v.chatTemplate }),
  })
}

/** The vocabulary as data, checked. Throws as loadGgufTokenizer does. */
export function readGgufVocabulary(config: JsonObject): GgufVocabulary {
  const get = (name: string): JsonValue | undefined => own(config, KEY + name)
  const model = get('model')
  if (model !== 'llama' && model !== 'gpt2')
    unsupported(`tokenizer model "${String(model)}" is not implemented`, `${KEY}model`)
  const meta: Metadata = { ...readTokens(get), get }
  const spm = model === 'llama'
  const json = spm ? sentencePiece(meta) : bytePairs(meta)
  const pre = spm ? undefined : PRE_TOKENIZERS.get(String(get('pre') ?? 'default'))
  // Without a key of their own, "llama" vocabularies have BOS 1 and EOS 2.
  const bos = idAt(meta, 'bos_token_id') ?? (spm ? 1 : undefined)
  const eos = idAt(meta, 'eos_token_id') ?? (spm ? 2 : undefined)
  const added = addedTokens(meta, String(own(config, 'general.name') ?? ''))
  // Where a turn ends with <|return|>, <|end|> ends only a part of it.
  const parts = added.some((t) => t.content === '<|return|>')
  const ends = added.filter((t) => END_TOKENS.has(t.content) && !(parts && t.content === '<|end|>')).map((t) => t.id)
  const more = ['eot_token_id', 'eom_token_id'].map((name) => idAt(meta, name))
  const template = own(config, 'tokenizer.chat_template')
  return {
    json,
    tokens: meta.tokens,
    added,
    eosIds: [...new Set([eos, ...more, ...ends].filter((id) => id !== undefined))],
    addBos: flag(meta, 'add_bos_token', spm || (pre?.addBos ?? false)),
    addEos: flag(meta, 'add_eos_token', false),
    ...(bos === undefined ? {} : { bosId: bos }),
    ...(eos === undefined ? {} : { eosId: eos }),
    ...(typeof template === 'string' && template !== '' ? { chatTemplate: template } : {}),
  }
}

function readTokens(get: Metadata['get']): { tokens: string[]; types: number[] } {
  const tokens = list(get('tokens'), 'tokens', isString)
  if (tokens.length > MAX_VOCABULARY)
    malformed('vocabulary is too large', `${KEY}tokens`, { expected: MAX_VOCABULARY, got: tokens.length })
  const seen = new Set<string>()
  for (const token of tokens) {
    if (seen.has(token)) malformed('two ids have the same token', `${KEY}tokens`, { got: token })
    seen.add(token)
  }
  const types = get('token_type') === undefined ? tokens.map(() => 1) : list(get('token_type'), 'token_type', isNumber)
  if (types.length !== tokens.length)
    malformed('not one type for every token', `${KEY}token_type`, { expected: tokens.length, got: types.length })
  return { tokens, types }
}

const isString = (v: unknown): v is string => typeof v === 'string'
const isNumber = (v: unknown): v is number => typeof v === 'number'

/** A metadata array as a plain one; readers may decode large arrays only when they are iterated. */
function list<T>(value: unknown, name: string, is: (v: unknown) => v is T): T[] {
  const iterable = typeof value === 'object' && value !== null && (Symbol.iterator in value || 'length' in value)
  if (!iterable) return malformed('array is missing', KEY + name, { expected: 'array', got: typeof value })
  const items: unknown[] = Array.from(value as ArrayLike<unknown>)
  for (const [i, item] of items.entries())
    if (!is(item)) malformed('array has an element of another type', `${KEY}${name}[${i}]`, { got: typeof item })
  return items as T[]
}

function idAt({ get, tokens }: Metadata, name: string): number | undefined {
  const value = get(name)
  if (value === undefined) return undefined
  const id = tokenId(value, KEY + name)
  if (id >= tokens.length) malformed('special token is not in the vocabulary', KEY + name, { got: id })
  return id
}

function flag({ get }: Metadata, name: string, fallback: boolean): boolean {
  const value = get(name) ?? fallback
  if (typeof value !== 'boolean') malformed('not a boolean', KEY + name, { got: typeof value })
  return value
}

/**
 * Control and unknown tokens are special, and so is what ends a turn; user-defined tokens are found in a text before anything else, too.
 * (llama.cpp also takes ordinary pieces like Qwen2's "</s>" for special by their name. tokenizer.json says they are not.)
 */
function addedTokens({ tokens, types }: Metadata, modelName: string): AddedToken[] {
  const added: AddedToken[] = []
  // Phi-3's tokenizer.json strips the text after its special tokens; GGUF has no field for it (llama.cpp, by the model's name, too).
  const phi3 = /phi-?3/i.test(modelName)
  for (const [id, content] of tokens.entries()) {
    const type = types[id]
    if (content === '' || (type !== UNKNOWN && type !== CONTROL && type !== USER_DEFINED)) continue
    const special = type !== USER_DEFINED || END_TOKENS.has(content)
    const rstrip = phi3 && !['<unk>', '<s>', '<|endoftext|>'].includes(content)
    added.push({ id, content, special, normalized: false, lstrip: false, rstrip })
  }
  return added
}

/** Ids by token. */
function vocabularyOf({ tokens }: Metadata): JsonObject {
  const vocab: JsonObject = Object.create(null) as JsonObject
  for (const [id, token] of tokens.entries()) if (token !== '') vocab[token] = id
  return vocab
}

function sentencePiece(meta: Metadata): JsonObject {
  const { tokens, types, get } = meta
  const scores = list(get('scores'), 'scores', isNumber)
  if (scores.length !== tokens.length)
    malformed('not one score for every token', `${KEY}scores`, { expected: tokens.length, got: scores.length })
  if (scores.some((s) => Number.isNaN(s))) malformed('score is not a number', `${KEY}scores`)
  if (get('precompiled_charsmap') !== undefined) unsupported('precompiled normalization', `${KEY}precompiled_charsmap`)
  if (flag(meta, 'remove_extra_whitespaces', false))
    unsupported('removal of extra whitespace', `${KEY}remove_extra_whitespaces`)
  const replace = { type: 'Replace', pattern: { String: ' ' }, content: '▁' }
  const prefix = flag(meta, 'add_space_prefix', true)
  const unknown = types.indexOf(UNKNOWN)
  const unk = idAt(meta, 'unknown_token_id') ?? (unknown < 0 ? undefined : unknown)
  return {
    added_tokens: [],
    normalizer: { type: 'Sequence', normalizers: prefix ? [{ type: 'Prepend', prepend: '▁' }, replace] : [replace] },
    pre_tokenizer: null,
    post_processor: null,
    decoder: {
      type: 'Sequence',
      decoders: [
        { type: 'Replace', pattern: { String: '▁' }, content: ' ' },
        { type: 'ByteFallback' },
        { type: 'Fuse' },
        ...(prefix ? [{ type: 'Strip', content: ' ', start: 1, stop: 0 }] : []),
      ],
    },
    model: {
      type: 'BPE',
      unk_token: unk === undefined ? null : (tokens[unk] as string),
      fuse_unk: true,
      byte_fallback: true,
      vocab: vocabularyOf(meta),
      merges: deriveMerges(tokens, scores, (id) => types[id] === 1 || types[id] === USER_DEFINED),
    },
  }
}

function bytePairs(meta: Metadata): JsonObject {
  const name = String(meta.get('pre') ?? 'default')
  const pre = PRE_TOKENIZERS.get(name)
  if (pre === undefined) unsupported(`pre-tokenizer "${name}" is not known`, `${KEY}pre`, [...PRE_TOKENIZERS.keys()])
  if (flag(meta, 'add_space_prefix', false))
    unsupported('a byte-level vocabulary with a space prefix', `${KEY}add_space_prefix`)
  return {
    added_tokens: [],
    normalizer: null,
    pre_tokenizer: { type: 'Sequence', pretokenizers: [...pre.patterns.map(isolated), byteLevel] },
    post_processor: null,
    // All fields, as the Rust library wants them.
    decoder: { type: 'ByteLevel', add_prefix_space: true, trim_offsets: true, use_regex: true },
    model: {
      type: 'BPE',
      unk_token: null,
      ignore_merges: pre.ignoreMerges ?? false,
      vocab: vocabularyOf(meta),
      merges: list(meta.get('merges'), 'merges', isString),
    },
  }
}
