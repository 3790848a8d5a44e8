import { readFileSync } from 'node:fs'
import { expect, test } from 'vitest'
import type { JsonObject } from '#sluice/base/json.js'
import { openGguf } from '#sluice/format/gguf/read.js'
import { openSafetensors } from '#sluice/format/safetensors/read.js'
import { loadTokenizer } from '#sluice/text/load.js'
import { data, dataTest } from '../data.ts'
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

dataTest('a checkpoint and a GGUF of one model have one tokenizer', async () => {
  const golden = JSON.parse(readFileSync(data('stories260k/golden/tokenizer.json'), 'utf8')) as {
    cases: { text: string; llamacpp: number[] }[]
  }
  const readers = [
    await openSafetensors(data('stories260k/hf')),
    await openGguf(data('stories260k/gguf/stories260K-F16.gguf')),
  ]
  for (const reader of readers) {
    const t = await loadTokenizer(reader)
    expect([t?.bosId, t?.eosIds, t?.vocabularySize]).toEqual([1, [2], 512])
    for (const c of golden.cases) {
      const ids = t?.encode(c.text, { parseSpecial: false })
      expect(ids, c.text).toEqual(c.llamacpp)
      expect(t?.decode(ids ?? [])).toBe(c.text.replaceAll('▁', ' '))
    }
    await reader.close()
  }
})

dataTest('vocabularies read by the GGUF reader', async () => {
  for (const name of ['phi-3', 'gpt-2', 'qwen2']) {
    const reader = await openGguf(data('tokenizers', `ggml-vocab-${name}.gguf`))
    const t = await loadTokenizer(reader)
    const golden = JSON.parse(readFileSync(data('tokenizers', `${name}.json`), 'utf8')) as {
      cases: { text: string; plain: number[] }[]
    }
    for (const c of golden.cases)
      expect(t?.encode(c.text, { addSpecial: false, parseSpecial: false }), c.text).toEqual(c.plain)
    await reader.close()
  }
})
