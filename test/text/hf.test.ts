import { readFile } from 'node:fs/promises'
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import type { JsonObject } from '#sluice/base/json.js'
import { loadHfTokenizer } from '#sluice/text/hf.js'
import { data, dataTest } from '../data.ts'
import { byteLevelJson, files, sentencePieceJson } from './fixtures.ts'

const settings = { bos_token: '<s>', eos_token: '</s>', unk_token: '<unk>', tokenizer_class: 'LlamaTokenizer' }
const load = (json: JsonObject = sentencePieceJson(), more: Record<string, string | JsonObject> = {}) =>
  loadHfTokenizer(files({ 'tokenizer.json': json, 'tokenizer_config.json': settings, ...more }))

describe('a SentencePiece vocabulary', () => {
  test('encodes with one BOS, decodes without the leading space', async () => {
    const t = await load()
    const ids = t.encode('once upon a time')
    expect(ids.map((id) => t.idToToken(id))).toEqual(['<s>', '▁', 'once', '▁upon', '▁a', '▁time'])
    expect(t.encode('once upon a time', { addSpecial: false })).toEqual(ids.slice(1))
    expect(t.decode(ids)).toBe('once upon a time')
    expect(t.decode(ids, { skipSpecial: false })).toBe('<s> once upon a time')
    expect([t.bosId, t.eosIds, t.vocabularySize]).toEqual([1, [2], 3 + 256 + 15 + 17])
  })

  test('never writes a second BOS', async () => {
    const t = await load()
    expect(t.encode('<s>once')).toEqual([1, ...t.encode('once', { addSpecial: false })])
    expect(t.encode('<s>')).toEqual([1])
    expect(t.encode('')).toEqual([1])
  })

  test('reads special tokens in the text only when told to', async () => {
    const t = await load()
    const ids = t.encode('<s>', { addSpecial: false, parseSpecial: false })
    expect(ids.map((id) => t.idToToken(id))).toEqual(['▁', '<', 's', '>'])
    expect(t.decode(ids)).toBe('<s>')
    expect(t.encode('the', { parseSpecial: false })).toEqual(t.encode('the'))
  })

  test('falls back to bytes for what it has no piece for', async () => {
    const t = await load()
    expect(t.encode('é\0', { addSpecial: false }).map((id) => t.idToToken(id))).toEqual([
      '▁',
      '<0xC3>',
      '<0xA9>',
      '<0x00>',
    ])
    for (const text of ['naïve café', '日本語 🦊', 'a\0b', '  two  ', ' ', '\n\t', '\ufeffx', 'x▁'.replace('▁', '')])
      expect(t.decode(t.encode(text))).toBe(text)
  })

  test('cutting at words changes no id: equal to a vocabulary where one merge crosses words', async () => {
    const crossing = sentencePieceJson()
    const model = crossing.model as { vocab: Record<string, number>; merges: string[] }
    model.vocab['q▁'] = 999
    model.vocab.q = 998
    model.merges = ['q ▁', ...model.merges]
    const whole = await load(crossing)
    expect(whole.encode('q a').map((id) => whole.idToToken(id))).toContain('q▁')
    const cut = await load()
    fc.assert(
      fc.property(fc.array(fc.constantFrom('the', ' ', 'once', 'a', '  ', 't', 'upon', '▁', 'é', '.')), (parts) => {
        expect(cut.encode(parts.join(''))).toEqual(whole.encode(parts.join('')))
      }),
    )
  })

  test('a lone surrogate becomes the replacement character', async () => {
    const t = await load()
    expect(t.decode(t.encode('a\ud800b'))).toBe('a\ufffdb')
  })

  test('a megabyte of text, a word or a run of spaces of 256 KiB, neither overflows nor hangs', async () => {
    const t = await load()
    for (const text of ['the '.repeat(1 << 18), ' '.repeat(1 << 18), 'x'.repeat(1 << 18)])
      expect(t.decode(t.encode(text))).toBe(text)
  })

  test('refuses ids that are not in the vocabulary', async () => {
    const t = await load()
    for (const id of [-1, 1.5, t.vocabularySize, Number.NaN, 2 ** 40])
      expect(() => t.decode([id])).toThrow(expect.objectContaining({ code: 'REQUEST_INVALID' }))
  })
})

describe('a byte-level vocabulary', () => {
  test('round-trips any text and adds nothing', async () => {
    const t = await loadHfTokenizer(files({ 'tokenizer.json': byteLevelJson() }))
    expect(t.encode('in the').map((id) => t.idToToken(id))).toEqual(['in', 'Ġthe'])
    expect(t.encode('in<|end|>the')).toEqual([259, 300, 116, 256])
    for (const text of ['é', 'in the\u0085 \ufeff', '\0', '🦊\ud83e'.toWellFormed(), ''])
      expect(t.decode(t.encode(text))).toBe(text)
    expect(t.bosId).toBeUndefined()
    expect(t.idToToken(290)).toBeUndefined()
    expect(t.decode([290, 116])).toBe('t')
  })
})

describe('files beside tokenizer.json', () => {
  test('give the ends of a text and the chat template', async () => {
    const t = await load(sentencePieceJson(), {
      'generation_config.json': { eos_token_id: [2, 0] },
      'tokenizer_config.json': { ...settings, chat_template: [{ name: 'default', template: 'A' }] },
    })
    expect(t.eosIds).toEqual([2, 0])
    expect(t.chatTemplate).toBe('A')
    const jinja = await load(sentencePieceJson(), { 'chat_template.jinja': 'B' })
    expect(jinja.chatTemplate).toBe('B')
  })

  test('add_bos_token of a Llama tokenizer rules over the template', async () => {
    const t = await load(sentencePieceJson(), {
      'tokenizer_config.json': { ...settings, add_bos_token: false, add_eos_token: true },
    })
    expect(t.encode('')).toEqual([2])
  })

  test('may add tokens, but not contradict', async () => {
    const decoder = (id: string, content: string) => ({
      'tokenizer_config.json': { ...settings, added_tokens_decoder: { [id]: { content, special: true } } },
    })
    const t = await load(sentencePieceJson(), decoder('400', '<new>'))
    expect(t.encode('<new>')).toEqual([1, 400])
    await expect(load(sentencePieceJson(), decoder('1', '<bos>'))).rejects.toMatchObject({ code: 'FORMAT_INVALID' })
  })
})

describe('what is not implemented is refused by name', () => {
  const change = (path: string[], value: unknown): JsonObject => {
    const json = sentencePieceJson()
    let at = json as Record<string, unknown>
    for (const key of path.slice(0, -1)) at = at[key] as Record<string, unknown>
    at[path.at(-1) as string] = value
    return json
  }
  test.each([
    [['model', 'type'], 'WordPiece', 'WordPiece'],
    [['model', 'type'], 'Unigram', 'Unigram'],
    [['model', 'dropout'], 0.1, 'dropout'],
    [['model', 'end_of_word_suffix'], '</w>', 'end_of_word_suffix'],
    [['model', 'secret'], 1, 'secret'],
    [['normalizer'], { type: 'Precompiled', precompiled_charsmap: '' }, 'Precompiled'],
    [['normalizer'], { type: 'Lowercase' }, 'Lowercase'],
    [['pre_tokenizer'], { type: 'BertPreTokenizer' }, 'BertPreTokenizer'],
    [['pre_tokenizer'], { type: 'ByteLevel', add_prefix_space: true }, 'add_prefix_space'],
    [['pre_tokenizer'], { type: 'Punctuation', behavior: 'Isolated' }, 'Punctuation'],
    [['pre_tokenizer'], { type: 'Split', pattern: { Regex: '(a+)+b' }, behavior: 'Isolated' }, 'repeats a group'],
    [['pre_tokenizer'], { type: 'Split', pattern: { Regex: '(a|ab)*' }, behavior: 'Isolated' }, 'repeats a group'],
    [['pre_tokenizer'], { type: 'Split', pattern: { Regex: '(?P<' }, behavior: 'Isolated' }, 'regular expression'],
    [['pre_tokenizer'], { type: 'Split', pattern: { Regex: 'a' }, behavior: 'MergedWithNext' }, 'mergedwithnext'],
    [['decoder'], { type: 'WordPiece', prefix: '##' }, 'WordPiece'],
    [['decoder'], null, 'decoder'],
    [['post_processor'], { type: 'RobertaProcessing' }, 'RobertaProcessing'],
    [['added_tokens'], [{ id: 1, content: '<s>', single_word: true }], 'single_word'],
    [['surprise'], {}, 'surprise'],
  ])('%j = %j', async (path, value, name) => {
    const error = await load(change(path, value)).catch((e: unknown) => e)
    expect(error).toMatchObject({ code: 'TOKENIZER_UNSUPPORTED', message: expect.stringContaining(name) })
  })

  test.each([
    [['model', 'vocab', 'the'], -1],
    [['model', 'vocab', 'the'], 2 ** 30],
    [['model', 'vocab', 'the'], 5],
    [['model', 'vocab', 'the'], '7'],
    [['model', 'merges'], ['t nothing']],
    [['model', 'merges'], ['t h e']],
    [['model', 'merges'], 'x'],
    [['added_tokens'], [{ id: 1, content: '' }]],
    [['added_tokens'], [{ id: 9, content: '<s>' }]],
    [['added_tokens'], [{ id: 2 ** 31, content: '<x>' }]],
    [['model'], []],
  ])('%j = %j is malformed', async (path, value) => {
    await expect(load(change(path, value))).rejects.toMatchObject({ code: 'FORMAT_INVALID' })
  })

  test('duplicate keys, and a missing file', async () => {
    await expect(loadHfTokenizer(files({ 'tokenizer.json': '{"a":1,"a":2}' }))).rejects.toMatchObject({
      code: 'JSON_INVALID',
    })
    await expect(loadHfTokenizer(files({}))).rejects.toMatchObject({ code: 'TOKENIZER_UNSUPPORTED' })
  })
})

interface Case {
  text: string
  hf_tokenizers_js: number[]
  hf_decoded?: string
}

for (const [model, golden] of [
  ['stories260k/hf', 'stories260k/golden/tokenizer.json'],
  ['demo-model', 'demo-model/golden/tokenizer.json'],
] as const)
  dataTest(`ids of ${model}`, async () => {
    const names = ['tokenizer.json', 'tokenizer_config.json', 'special_tokens_map.json', 'generation_config.json']
    const t = await loadHfTokenizer(new Map(names.map((n) => [n, () => readFile(data(model, n))])))
    const { cases } = JSON.parse(await readFile(data(golden), 'utf8')) as { cases: Case[] }
    expect(cases.length).toBeGreaterThan(20)
    for (const c of cases) {
      // Text that begins with "<s>" gets no second BOS from us.
      const doubled = c.hf_tokenizers_js[1] === t.bosId
      expect(t.encode(c.text), JSON.stringify(c.text)).toEqual(c.hf_tokenizers_js.slice(doubled ? 1 : 0))
      if (c.hf_decoded !== undefined) expect(t.decode(c.hf_tokenizers_js)).toBe(c.hf_decoded)
    }
  })
