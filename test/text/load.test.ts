import { expect, test } from 'vitest'
import type { JsonObject } from '#sluice/base/json.js'
import { loadTokenizer } from '#sluice/text/load.js'
import { files, sentencePieceJson } from './fixtures.ts'

const gguf: JsonObject = {
  'tokenizer.ggml.model': 'llama',
  'tokenizer.ggml.tokens': ['<unk>', '<s>', '</s>', '▁', 'a'],
  'tokenizer.ggml.scores': [0, 0, 0, -1, -2],
  'tokenizer.ggml.token_type': [2, 3, 3, 1, 1],
}

test('tokenizer.json first, with the end tokens of config.json', async () => {
  const tokenizerFiles = files({ 'tokenizer.json': sentencePieceJson() })
  const t = await loadTokenizer({ tokenizerFiles, config: { ...gguf, eos_token_id: [2, 7] } })
  expect(t?.vocabularySize).toBe(291)
  expect(t?.eosIds).toEqual([2, 7])
})

test('then the vocabulary in the metadata', async () => {
  const t = await loadTokenizer({ tokenizerFiles: new Map(), config: gguf })
  expect(t?.encode('a a')).toEqual([1, 3, 4, 3, 4])
})

test('or nothing', async () => {
  for (const config of [{}, { 'tokenizer.ggml.model': 'none' }])
    expect(await loadTokenizer({ tokenizerFiles: files({ 'tokenizer.model': 'x' }), config })).toBeUndefined()
})

test('what is there and not implemented is an error, not nothing', async () => {
  await expect(
    loadTokenizer({ tokenizerFiles: new Map(), config: { 'tokenizer.ggml.model': 't5' } }),
  ).rejects.toMatchObject({
    code: 'TOKENIZER_UNSUPPORTED',
  })
})
