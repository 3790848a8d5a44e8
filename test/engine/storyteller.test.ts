// The shipped model against float64 logits and greedy text of an independent program (llama.cpp writes the same text).
import { describe, expect, test } from 'vitest'
import { maxDifference } from '../npy.ts'
import { argmax, greedy, logitsOf } from './run.ts'
import { attached, stories, storyLogits, tokenizerCases, withStoryteller } from './storyteller.ts'

describe.each(['base', 'pirate'] as const)('%s', (name) => {
  test('exact: logits within 1e-3 of float64, greedy text equal', async () => {
    await withStoryteller(async (model) => {
      const tokenizer = (await model.tokenizer())!
      const adapters = name === 'base' ? [] : [await attached(model, 'pirate')]
      const engine = await model.engine({ precision: 'exact', threads: 2, adapters })
      try {
        let compared = 0
        for (const s of stories(name)) {
          expect(tokenizer.encode(s.prompt)).toEqual(s.ids)
          const want = storyLogits(s)
          if (want !== undefined) {
            expect(maxDifference(await logitsOf(engine, s.ids), want)).toBeLessThan(1e-3)
            compared++
          }
          const ids = await greedy(engine, s.ids, s.greedy_ids.length)
          expect(ids).toEqual(s.greedy_ids)
          expect(tokenizer.decode(ids).trim()).toBe(s.greedy_text)
        }
        expect(compared).toBeGreaterThan(0)
      } finally {
        await engine.close()
      }
    })
  })

  // The weights are bfloat16, so `fast` differs by the 16-bit cache alone: rounding to 11 bits, averaged over positions.
  test('fast: logits within 0.02 of float64, the most likely token the same where the margin is above 0.05', async () => {
    await withStoryteller(async (model) => {
      const adapters = name === 'base' ? [] : [await attached(model, 'pirate')]
      const exact = await model.engine({ precision: 'exact', threads: 2, adapters })
      const fast = await model.engine({ precision: 'fast', threads: 2, adapters })
      try {
        for (const s of stories(name)) {
          const all = [...s.ids, ...s.greedy_ids]
          const [a, b] = [await logitsOf(exact, all), await logitsOf(fast, all)]
          expect(maxDifference(a, b)).toBeLessThan(0.02)
          const v = exact.vocabulary
          let decided = 0
          for (let t = 0; t < all.length; t++) {
            const row = a.subarray(t * v, (t + 1) * v)
            const best = argmax(row)
            const second = row.reduce((m, x, i) => (i === best ? m : Math.max(m, x)), Number.NEGATIVE_INFINITY)
            if (row[best]! - second < 0.05) continue
            expect(argmax(b.subarray(t * v, (t + 1) * v))).toBe(best)
            decided++
          }
          expect(decided).toBeGreaterThan(all.length / 2)
        }
      } finally {
        await exact.close()
        await fast.close()
      }
    })
  })
})

test('tokenizer: ids and text as two other tokenizers have them', async () => {
  await withStoryteller(async (model) => {
    const tokenizer = (await model.tokenizer())!
    const cases = tokenizerCases()
    expect(cases.length).toBeGreaterThan(20)
    for (const c of cases) {
      if (c.all_agree === false) continue // they differ about "<s>" in text and about runs of spaces
      expect(tokenizer.encode(c.text), c.text).toEqual(c.ids)
      if (c.decoded !== undefined) expect(tokenizer.decode(c.ids), c.text).toBe(c.decoded)
    }
  })
})
