import { readFileSync } from 'node:fs'
import { describe, expect, test } from 'vitest'
import type { JsonObject } from '#sluice/base/json.js'
import { loadGgufTokenizer } from '#sluice/text/gguf.js'
import { ggufTokenizerFiles } from '#sluice/text/gguf-files.js'
import { loadHfTokenizer } from '#sluice/text/hf.js'
import { deriveMerges } from '#sluice/text/merges.js'
import { data, dataTest } from '../data.ts'
import { byteLevelJson } from './fixtures.ts'
import { readGgufMetadata } from './gguf-metadata.ts'

interface Golden {
  cases: { text: string; plain: number[]; with_special: number[] }[]
}

const asFiles = (config: JsonObject) =>
  loadHfTokenizer(new Map([...ggufTokenizerFiles(config)].map(([name, bytes]) => [name, async () => bytes])))

for (const name of ['phi-3', 'gpt-2', 'qwen2'])
  dataTest(`${name}: ids of llama.cpp, also through files`, async () => {
    const config = readGgufMetadata(data('tokenizers', `ggml-vocab-${name}.gguf`))
    const t = loadGgufTokenizer(config)
    // llama.cpp's own test file: texts by a separator line, ids a line.
    const base = data('tokenizers', `ggml-vocab-${name}.gguf`)
    const texts = readFileSync(`${base}.inp`, 'utf8').split('\n__ggml_vocab_test__\n')
    const lines = readFileSync(`${base}.out`, 'utf8').split('\n')
    expect(texts.length).toBeGreaterThan(40)
    for (const [i, text] of texts.entries()) {
      const ids = (lines[i] ?? '').split(' ').filter(Boolean).map(Number)
      expect(t.encode(text, { addSpecial: false, parseSpecial: false }), JSON.stringify(text)).toEqual(ids)
    }
    const same = await asFiles(config)
    expect([same.bosId, same.eosIds, same.chatTemplate]).toEqual([t.bosId, t.eosIds, t.chatTemplate])
    const { cases } = JSON.parse(readFileSync(data('tokenizers', `${name}.json`), 'utf8')) as Golden
    for (const c of cases) {
      expect(t.encode(c.text, { addSpecial: false, parseSpecial: false }), JSON.stringify(c.text)).toEqual(c.plain)
      // A text that begins with BOS gets no second one from us.
      const doubled = c.with_special[0] === t.bosId && c.with_special[1] === t.bosId
      // Qwen2's "</s>" is an ordinary piece; llama.cpp takes it for a special token because of its name.
      const ordinary = name === 'qwen2' && c.text.includes('</s>')
      const expected = ordinary ? c.plain : c.with_special.slice(doubled ? 1 : 0)
      expect(t.encode(c.text), JSON.stringify(c.text)).toEqual(expected)
      // SentencePiece writes a space as "▁" and cannot tell the two apart.
      expect(same.encode(c.text), JSON.stringify(c.text)).toEqual(expected)
      expect(t.decode(c.plain)).toBe(name === 'phi-3' ? c.text.replaceAll('▁', ' ') : c.text)
    }
  })

dataTest('stories260K inside GGUF: ids of llama.cpp, and the merges of its tokenizer.json', () => {
  const config = readGgufMetadata(data('stories260k/gguf/stories260K-F16.gguf'))
  const t = loadGgufTokenizer(config)
  const golden = JSON.parse(readFileSync(data('stories260k/golden/tokenizer.json'), 'utf8')) as {
    cases: { text: string; llamacpp: number[] }[]
  }
  for (const c of golden.cases) expect(t.encode(c.text, { parseSpecial: false }), c.text).toEqual(c.llamacpp)
  const json = JSON.parse(readFileSync(data('stories260k/hf/tokenizer.json'), 'utf8')) as {
    model: { merges: string[] }
  }
  const types = config['tokenizer.ggml.token_type'] as number[]
  const merges = deriveMerges(
    config['tokenizer.ggml.tokens'] as string[],
    config['tokenizer.ggml.scores'] as number[],
    (id) => types[id] === 1,
  )
  expect(merges.map((m) => m.join(' '))).toEqual(json.model.merges)
})

dataTest('phi-3: ends of a turn are found by name', () => {
  const t = loadGgufTokenizer(readGgufMetadata(data('tokenizers/ggml-vocab-phi-3.gguf')))
  expect(t.eosIds.map((id) => t.idToToken(id))).toEqual(['<|endoftext|>', '</s>', '<|end|>'])
  expect(t.chatTemplate).toContain('<|assistant|>')
})

/** Pieces a, b, ab, abb … with the scores a trained vocabulary has: later pieces are worse. */
function spm(extra: JsonObject = {}): JsonObject {
  const pieces = ['<unk>', '<s>', '</s>', '▁', 'a', 'b', 'ab', '▁a', '▁ab', 'bb']
  return {
    'tokenizer.ggml.model': 'llama',
    'tokenizer.ggml.tokens': pieces,
    'tokenizer.ggml.scores': pieces.map((_, i) => -i),
    'tokenizer.ggml.token_type': pieces.map((_, i) => (i === 0 ? 2 : i < 3 ? 3 : 1)),
    ...extra,
  }
}

function bpe(extra: JsonObject = {}): JsonObject {
  const { model } = byteLevelJson() as { model: { vocab: Record<string, number>; merges: string[] } }
  return {
    'tokenizer.ggml.model': 'gpt2',
    'tokenizer.ggml.pre': 'gpt-2',
    'tokenizer.ggml.tokens': Object.entries(model.vocab)
      .sort((a, b) => a[1] - b[1])
      .map(([token]) => token),
    'tokenizer.ggml.merges': model.merges,
    ...extra,
  }
}

describe('a small SentencePiece vocabulary', () => {
  test('merges by score, as computed by hand', () => {
    const config = spm()
    const merges = deriveMerges(
      config['tokenizer.ggml.tokens'] as string[],
      config['tokenizer.ggml.scores'] as number[],
      (id) => id > 2,
    )
    expect(merges.map((m) => m.join(' '))).toEqual(['a b', '▁ a', '▁ ab', '▁a b', 'b b'])
    const t = loadGgufTokenizer(spm())
    expect(t.encode('abb a').map((id) => t.idToToken(id))).toEqual(['<s>', '▁ab', 'b', '▁a'])
  })

  test('follows the switches of the file, also through files', async () => {
    const ids = async (extra: JsonObject) => {
      const direct = loadGgufTokenizer(spm(extra)).encode('ab')
      expect((await asFiles(spm(extra))).encode('ab')).toEqual(direct)
      return direct
    }
    expect(await ids({})).toEqual([1, 8])
    expect(await ids({ 'tokenizer.ggml.add_bos_token': false })).toEqual([8])
    expect(await ids({ 'tokenizer.ggml.add_eos_token': true })).toEqual([1, 8, 2])
    expect(await ids({ 'tokenizer.ggml.add_space_prefix': false })).toEqual([1, 6])
    expect(loadGgufTokenizer(spm({ 'tokenizer.ggml.add_space_prefix': false })).decode([8])).toBe(' ab')
  })

  test('takes arrays that are only iterable', () => {
    const lazy = (items: unknown) =>
      ({
        *[Symbol.iterator]() {
          yield* items as unknown[]
        },
      }) as unknown as string[]
    const config = spm()
    for (const key of Object.keys(config)) if (Array.isArray(config[key])) config[key] = lazy(config[key])
    expect(loadGgufTokenizer(config).encode('ab')).toEqual([1, 8])
    const scores = { 'tokenizer.ggml.scores': Float32Array.from({ length: 10 }, (_, i) => -i) as unknown as number[] }
    expect(loadGgufTokenizer(spm(scores)).encode('ab')).toEqual([1, 8])
  })
})

describe('refusals', () => {
  test.each<[string, JsonObject, string]>([
    ['another model', spm({ 'tokenizer.ggml.model': 'bert' }), 'bert'],
    ['an unknown pre-tokenizer', bpe({ 'tokenizer.ggml.pre': 'my-model' }), 'my-model'],
    ['a normalizer in binary form', spm({ 'tokenizer.ggml.precompiled_charsmap': [1] }), 'precompiled'],
    ['whitespace removal', spm({ 'tokenizer.ggml.remove_extra_whitespaces': true }), 'whitespace'],
  ])('%s', (_, config, name) => {
    expect(() => loadGgufTokenizer(config)).toThrow(
      expect.objectContaining({ code: 'TOKENIZER_UNSUPPORTED', message: expect.stringContaining(name) }),
    )
  })

  test.each<[string, JsonObject]>([
    ['no tokens', { 'tokenizer.ggml.model': 'llama' }],
    ['too few scores', spm({ 'tokenizer.ggml.scores': [0] })],
    ['too few types', spm({ 'tokenizer.ggml.token_type': [1] })],
    ['two equal tokens', spm({ 'tokenizer.ggml.tokens': Array(10).fill('x') as string[] })],
    ['a token that is a number', spm({ 'tokenizer.ggml.tokens': [1, 2] })],
    ['BOS outside', spm({ 'tokenizer.ggml.bos_token_id': 10 })],
    ['EOS negative', spm({ 'tokenizer.ggml.eos_token_id': -1 })],
    ['a switch that is a number', spm({ 'tokenizer.ggml.add_bos_token': 1 })],
    ['a merge of nothing', bpe({ 'tokenizer.ggml.merges': ['h zzz'] })],
    ['no merges', bpe({ 'tokenizer.ggml.merges': 'x' })],
  ])('%s', (_, config) => {
    expect(() => loadGgufTokenizer(config)).toThrow(expect.objectContaining({ code: 'FORMAT_INVALID' }))
  })
})
