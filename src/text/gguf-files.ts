// The vocabulary of a GGUF file as the files of a Hugging Face checkpoint: what a conversion puts into a package's tokenizer folder.
import type { JsonObject } from '../base/json.ts'
import { readGgufVocabulary } from './gguf.ts'

/**
 * tokenizer.json, tokenizer_config.json and generation_config.json (UTF-8) that loadHfTokenizer reads back as the same tokenizer.
 * @throws TOKENIZER_UNSUPPORTED, FORMAT_INVALID as loadGgufTokenizer does
 */
export function ggufTokenizerFiles(config: JsonObject): Map<string, Uint8Array> {
  const v = readGgufVocabulary(config)
  const name = (id: number | undefined): string | undefined => (id === undefined ? undefined : v.tokens[id])
  const item = (token: string): JsonObject => ({ SpecialToken: { id: token, type_id: 0 } })
  const before = v.addBos ? (name(v.bosId) ?? '') : ''
  const after = v.addEos ? (name(v.eosId) ?? '') : ''
  const framed = (text: JsonObject[]): JsonObject[] => [
    ...(before === '' ? [] : [item(before)]),
    ...text,
    ...(after === '' ? [] : [item(after)]),
  ]
  const special: JsonObject = {}
  for (const [token, id] of [
    [before, v.bosId],
    [after, v.eosId],
  ] as const)
    if (token !== '' && id !== undefined) special[token] = { id: token, ids: [id], tokens: [token] }
  const a: JsonObject = { Sequence: { id: 'A', type_id: 0 } }
  const b: JsonObject = { Sequence: { id: 'B', type_id: 0 } }
  const frame = {
    type: 'TemplateProcessing',
    single: framed([a]),
    pair: framed([a, b]),
    special_tokens: special,
  }
  const settings = {
    ...(v.bosId === undefined ? {} : { bos_token: name(v.bosId) }),
    ...(v.eosId === undefined ? {} : { eos_token: name(v.eosId) }),
    clean_up_tokenization_spaces: false,
    ...(v.chatTemplate === undefined ? {} : { chat_template: v.chatTemplate }),
  }
  const added = v.added.map((t) => ({ ...t, single_word: false }))
  const tokenizer = {
    version: '1.0',
    truncation: null,
    padding: null,
    ...v.json,
    added_tokens: added,
    ...(Object.keys(special).length === 0 ? {} : { post_processor: frame }),
  }
  const bytes = (value: unknown): Uint8Array => new TextEncoder().encode(`${JSON.stringify(value, null, 1)}\n`)
  return new Map([
    ['tokenizer.json', bytes(tokenizer)],
    ['tokenizer_config.json', bytes(settings)],
    ['generation_config.json', bytes({ eos_token_id: v.eosIds })],
  ])
}
