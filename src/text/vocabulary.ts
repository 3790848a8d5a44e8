// The BPE model and the added tokens of tokenizer.json, checked: ids, merges, switches.
import { isJsonObject, type JsonObject, own } from '../base/json.ts'
import { arrayAt, booleanField, knownKeys, malformed, objectAt, stringField, tokenId, unsupported } from './fields.ts'

export interface AddedToken {
  readonly id: number
  readonly content: string
  readonly special: boolean
  readonly normalized: boolean
  readonly lstrip: boolean
  readonly rstrip: boolean
}

export interface Vocabulary {
  /** By id; holes where an id is not used. */
  readonly tokens: readonly (string | undefined)[]
  readonly ids: ReadonlyMap<string, number>
  readonly added: readonly AddedToken[]
}

const MODEL_KEYS = ['type', 'dropout', 'unk_token', 'continuing_subword_prefix', 'end_of_word_suffix']
const MODEL_FLAGS = ['fuse_unk', 'byte_fallback', 'ignore_merges']

export function checkModel(value: JsonObject, where: string): void {
  const type = own(value, 'type') ?? 'BPE'
  if (type !== 'BPE') unsupported(`tokenizer model "${String(type)}" is not implemented`, where)
  knownKeys(value, [...MODEL_KEYS, ...MODEL_FLAGS, 'vocab', 'merges'], where)
  const dropout = own(value, 'dropout') ?? 0
  if (dropout !== 0) unsupported('BPE dropout', where, dropout)
  for (const key of ['continuing_subword_prefix', 'end_of_word_suffix'])
    if ((own(value, key) ?? '') !== '') unsupported(`BPE with ${key}`, where, own(value, key))
  for (const key of MODEL_FLAGS) booleanField(value, key, where, false)
}

export function readAddedTokens(value: JsonObject, where: string): AddedToken[] {
  const list = own(value, 'added_tokens') ?? []
  return arrayAt(list, `${where}: added_tokens`).map((item, i) => {
    const at = `${where}: added_tokens[${i}]`
    const t = objectAt(item, at)
    return readAddedToken(t, tokenId(own(t, 'id'), at), at)
  })
}

/** One added token, as in tokenizer.json or in tokenizer_config.json's added_tokens_decoder. */
export function readAddedToken(t: JsonObject, id: number, where: string): AddedToken {
  knownKeys(t, ['id', 'content', 'single_word', 'lstrip', 'rstrip', 'normalized', 'special'], where)
  const content = stringField(t, 'content', where)
  if (content === '') malformed('added token is empty', where)
  if (booleanField(t, 'single_word', where, false)) unsupported(`added token "${content}" with single_word`, where)
  const special = booleanField(t, 'special', where, false)
  return {
    id,
    content,
    special,
    normalized: booleanField(t, 'normalized', where, !special),
    lstrip: booleanField(t, 'lstrip', where, false),
    rstrip: booleanField(t, 'rstrip', where, false),
  }
}

/** Ids by token and tokens by id, added tokens included. A token with two ids or an id with two tokens is refused. */
export function buildVocabulary(vocab: JsonObject, added: readonly AddedToken[], where: string): Vocabulary {
  const tokens: (string | undefined)[] = []
  const ids = new Map<string, number>()
  for (const [token, value] of Object.entries(vocab)) {
    const id = tokenId(value, `${where}: "${token}"`)
    if (tokens[id] !== undefined) malformed('two tokens share an id', where, { got: `${id}: ${tokens[id]}, ${token}` })
    tokens[id] = token
    ids.set(token, id)
  }
  for (const { id, content } of added) {
    const other = ids.get(content)
    if (other !== undefined && other !== id)
      malformed(`added token "${content}" has two ids`, where, { expected: other, got: id })
    if (tokens[id] !== undefined && tokens[id] !== content)
      malformed(`id ${id} has two tokens`, where, { expected: tokens[id], got: content })
    tokens[id] = content
    ids.set(content, id)
  }
  if (tokens.length === 0) malformed('vocabulary is empty', where)
  return { tokens, ids, added }
}

/** Merges as pairs, in rank order; both parts and their union must be tokens (the reference library refuses others too). */
export function readMerges(model: JsonObject, vocab: JsonObject, where: string): [string, string][] {
  return arrayAt(own(model, 'merges'), `${where}: merges`).map((item, i) => {
    const pair = typeof item === 'string' ? item.split(' ') : item
    if (!Array.isArray(pair) || pair.length !== 2 || typeof pair[0] !== 'string' || typeof pair[1] !== 'string')
      malformed('merge is not a pair', `${where}: merges[${i}]`, { got: isJsonObject(item) ? 'object' : item })
    const [left, right] = pair as [string, string]
    for (const token of [left, right, left + right])
      if (!Object.hasOwn(vocab, token))
        malformed('merge names a token that is not in the vocabulary', `${where}: merges[${i}]`, { got: token })
    return [left, right]
  })
}

/**
 * True when no merge joins a word with a "▁" after it. Cutting a text before each run of "▁" then changes no id, and turns one merge
 * queue over the whole text into many short ones, most of them cached.
 */
export function mergesStayInWords(merges: readonly (readonly [string, string])[]): boolean {
  return merges.every(([left, right]) => !/[^▁]▁/u.test(left + right))
}
