// Tokenizers of Hugging Face checkpoints: tokenizer.json and the small files beside it.
import { isJsonObject, type JsonObject, type JsonValue, own, parseJsonObject } from '../base/json.ts'
import { BpeTokenizer } from './bpe.ts'
import { type Frame, readPostProcessor } from './components.ts'
import { malformed, objectAt, tokenId, unsupported } from './fields.ts'
import type { Tokenizer } from './tokenizer.ts'
import { type AddedToken, readAddedToken, readAddedTokens } from './vocabulary.ts'

/** Files by name, read on demand, as ModelReader.tokenizerFiles has them. */
export type TokenizerFiles = ReadonlyMap<string, () => Promise<Uint8Array>>

/** tokenizer.json of the largest vocabularies (262,144 tokens) takes 35 MB. */
const MAX_TOKENIZER_BYTES = 256 * 1024 * 1024
/** Chat templates are a few kilobytes; the longest seen is about 30 kB. */
const MAX_TEMPLATE_BYTES = 1024 * 1024

/**
 * Builds a tokenizer from tokenizer.json, tokenizer_config.json, special_tokens_map.json, chat_template.jinja (or .json) and
 * generation_config.json; all but the first are optional. `config` is the model's config.json, for its eos_token_id.
 * @throws JSON_INVALID, FORMAT_LIMIT, FORMAT_INVALID, TOKENIZER_UNSUPPORTED (component not implemented, or no tokenizer.json)
 */
export async function loadHfTokenizer(files: TokenizerFiles, config: JsonObject = {}): Promise<Tokenizer> {
  const where = 'tokenizer.json'
  const json = await readJson(files, where)
  if (json === undefined) unsupported('no tokenizer.json', [...files.keys()].join(', '))
  const settings = (await readJson(files, 'tokenizer_config.json')) ?? {}
  const names = (await readJson(files, 'special_tokens_map.json')) ?? {}
  const generation = (await readJson(files, 'generation_config.json')) ?? {}
  const role = (key: string): string | undefined => tokenName(own(settings, key)) ?? tokenName(own(names, key))
  const bosToken = role('bos_token')
  const eosToken = role('eos_token')
  const specials = ['pad_token', 'unk_token', 'sep_token', 'cls_token', 'mask_token'].flatMap((k) => role(k) ?? [])
  const more = [settings, names]
    .flatMap((o) => own(o, 'additional_special_tokens') ?? [])
    .flatMap((v) => tokenName(v) ?? [])
  const chatTemplate = await readTemplate(files, settings)
  return new BpeTokenizer(json, {
    where,
    added: extraTokens(json, settings),
    frame: (idOf) => {
      const frame = readPostProcessor(own(json, 'post_processor'), idOf, `${where}: post_processor`)
      return applySwitches(frame, settings, bosToken && idOf(bosToken), eosToken && idOf(eosToken))
    },
    ...(bosToken === undefined ? {} : { bosToken }),
    eosTokens: eosToken === undefined ? [] : [eosToken],
    eosIds: [...idList(generation, 'generation_config.json'), ...idList(config, 'config.json')],
    specialTokens: [...specials, ...more],
    ...(chatTemplate === undefined ? {} : { chatTemplate }),
  })
}

async function readJson(files: TokenizerFiles, name: string): Promise<JsonObject | undefined> {
  const read = files.get(name)
  return read && parseJsonObject(await read(), { where: name, maxBytes: MAX_TOKENIZER_BYTES })
}

/** A token in the configuration: its text, or an object with the text in `content`. */
function tokenName(value: JsonValue | undefined): string | undefined {
  const text = isJsonObject(value) ? own(value, 'content') : value
  return typeof text === 'string' && text !== '' ? text : undefined
}

/** eos_token_id: a number, a list, or nothing. */
function idList(object: JsonObject, where: string): number[] {
  const value = own(object, 'eos_token_id')
  if (value === undefined || value === null) return []
  return (Array.isArray(value) ? value : [value]).map((v) => tokenId(v, `${where}: eos_token_id`))
}

/** tokenizer_config.json may list added tokens that tokenizer.json lacks; transformers adds them at loading. */
function extraTokens(json: JsonObject, settings: JsonObject): AddedToken[] {
  const where = 'tokenizer_config.json: added_tokens_decoder'
  const listed = new Map(readAddedTokens(json, 'tokenizer.json').map((t) => [t.id, t.content]))
  const extra: AddedToken[] = []
  for (const [key, value] of Object.entries(objectAt(own(settings, 'added_tokens_decoder') ?? {}, where))) {
    const token = readAddedToken(objectAt(value, where), tokenId(Number(key), where), `${where}.${key}`)
    const known = listed.get(token.id)
    if (known === undefined) extra.push(token)
    else if (known !== token.content)
      malformed('tokenizer.json and tokenizer_config.json disagree', `${where}.${key}`, {
        expected: known,
        got: token.content,
      })
  }
  return extra
}

/** transformers' Llama tokenizers frame a text by add_bos_token and add_eos_token, whatever the post-processor says. */
function applySwitches(
  frame: Frame,
  settings: JsonObject,
  bos: number | '' | undefined,
  eos: number | '' | undefined,
): Frame {
  if (!/^(Llama|CodeLlama|Gemma)Tokenizer(Fast)?$/.test(String(own(settings, 'tokenizer_class')))) return frame
  const pick = (key: string, id: number | '' | undefined, otherwise: readonly number[]): readonly number[] => {
    const value = own(settings, key)
    if (typeof value !== 'boolean') return otherwise
    return value && typeof id === 'number' ? [id] : []
  }
  return { before: pick('add_bos_token', bos, frame.before), after: pick('add_eos_token', eos, frame.after) }
}

async function readTemplate(files: TokenizerFiles, settings: JsonObject): Promise<string | undefined> {
  const jinja = files.get('chat_template.jinja')
  if (jinja !== undefined) {
    const bytes = await jinja()
    if (bytes.length > MAX_TEMPLATE_BYTES)
      malformed('chat template is too long', 'chat_template.jinja', { got: bytes.length })
    return new TextDecoder().decode(bytes)
  }
  const json = await readJson(files, 'chat_template.json')
  const value = (json && own(json, 'chat_template')) ?? own(settings, 'chat_template')
  // Several templates: [{name, template}]; the one named "default" is for plain chat.
  const list = Array.isArray(value) ? value.filter(isJsonObject) : []
  const template = list.length > 0 ? own(list.find((t) => own(t, 'name') === 'default') ?? {}, 'template') : value
  return typeof template === 'string' && template !== '' ? template : undefined
}
