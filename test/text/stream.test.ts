import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { loadHfTokenizer } from '#sluice/text/hf.js'
import type { Tokenizer } from '#sluice/text/tokenizer.js'
import { byteLevelJson, files, sentencePieceJson } from './fixtures.ts'

const tokenizers: [string, Tokenizer][] = [
  ['SentencePiece', await loadHfTokenizer(files({ 'tokenizer.json': sentencePieceJson() }))],
  ['byte-level', await loadHfTokenizer(files({ 'tokenizer.json': byteLevelJson() }))],
]

/** Ids with text: the byte tokens come often, so that characters are cut and broken. */
const anyIds = (t: Tokenizer) => fc.array(fc.integer({ min: 0, max: t.vocabularySize - 1 }), { maxLength: 60 })

describe.each(tokenizers)('%s', (_, t) => {
  test('whatever the ids, pushes and flush joined are the whole text', () => {
    fc.assert(
      fc.property(anyIds(t), (ids) => {
        const stream = t.stream()
        const parts = ids.map((id) => stream.push(id))
        expect([...parts, stream.flush()].join('')).toBe(t.decode(ids))
        for (const part of parts) expect(part.isWellFormed()).toBe(true)
      }),
    )
  })

  test('after any cut of any text, the prompt and its continuation are the whole', () => {
    fc.assert(
      fc.property(fc.string({ unit: 'binary' }), fc.nat(), (text, cut) => {
        const ids = t.encode(text, { addSpecial: false, parseSpecial: false })
        const at = cut % (ids.length + 1)
        const before = t.stream()
        const prompt = ids
          .slice(0, at)
          .map((id) => before.push(id))
          .join('')
        const stream = t.stream(ids.slice(0, at))
        const rest =
          ids
            .slice(at)
            .map((id) => stream.push(id))
            .join('') + stream.flush()
        expect(prompt + rest).toBe(text)
      }),
    )
  })

  test('no text is certain while a character is incomplete', () => {
    const ids = t.encode('🦊', { addSpecial: false })
    const stream = t.stream()
    const texts = ids.map((id) => stream.push(id))
    expect(texts.slice(0, -1).join('')).toBe('')
    expect(texts.at(-1)).toBe('🦊')
    expect(stream.flush()).toBe('')
    const broken = t.stream()
    for (const id of ids.slice(0, -1)) broken.push(id)
    expect(broken.flush()).toBe('\ufffd')
  })
})

test('the space between a prompt and its continuation is kept', () => {
  const t = (tokenizers[0] as [string, Tokenizer])[1]
  const ids = t.encode('once upon')
  expect(ids.map((id) => t.idToToken(id)).at(-1)).toBe('▁upon')
  const fresh = t.stream()
  expect(fresh.push(ids.at(-1) as number)).toBe('upon')
  expect(t.stream(ids.slice(0, -1)).push(ids.at(-1) as number)).toBe(' upon')
})

test('special tokens have no text and do not end the leading space', () => {
  const t = (tokenizers[0] as [string, Tokenizer])[1]
  const stream = t.stream()
  expect(
    t
      .encode('<s>once')
      .map((id) => stream.push(id))
      .join(''),
  ).toBe('once')
})
