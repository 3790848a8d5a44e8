// Component by component against the Rust tokenizers library (0.22.2), which wrote rust-golden.json from variants.ts.
import { readFileSync } from 'node:fs'
import { expect, test } from 'vitest'
import { loadHfTokenizer } from '#sluice/text/hf.js'
import { files } from './fixtures.ts'
import { texts, variants } from './variants.ts'

interface Golden {
  texts: string[]
  variants: Record<string, { ids: number[]; decoded: string }[]>
}

const golden = JSON.parse(readFileSync(new URL('./rust-golden.json', import.meta.url), 'utf8')) as Golden

test('the golden file is of these texts and variants', () => {
  expect(golden.texts).toEqual(texts)
  expect(Object.keys(golden.variants)).toEqual(Object.keys(variants))
})

test.each(Object.keys(variants))('%s', async (name) => {
  const t = await loadHfTokenizer(files({ 'tokenizer.json': variants[name] ?? {} }))
  for (const [i, text] of texts.entries()) {
    const { ids, decoded } = golden.variants[name]?.[i] ?? { ids: [], decoded: '' }
    expect(t.encode(text, { addSpecial: false }), JSON.stringify(text)).toEqual(ids)
    expect(t.decode(ids), JSON.stringify(text)).toBe(decoded)
  }
})
