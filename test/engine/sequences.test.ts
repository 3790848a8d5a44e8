// Many texts at once: each as if it were alone; the cache ends where it was promised to end.
import { describe, expect, test } from 'vitest'
import type { EngineOptions } from '#sluice/engine/create.js'
import type { Engine, Sequence } from '#sluice/engine/engine.js'
import { logitsOf, randomOf, sameBytes } from './run.ts'
import { withStoryteller } from './storyteller.ts'

const IDS = Array.from({ length: 64 }, (_, i) => 1 + ((i * 131) % 1900))

async function withEngine(options: EngineOptions, work: (engine: Engine) => Promise<void>): Promise<void> {
  await withStoryteller(async (model) => {
    const engine = await model.engine({ threads: 2, precision: 'exact', ...options })
    try {
      await work(engine)
    } finally {
      await engine.close()
    }
  })
}

test('texts that take turns, are cut back and released: all as if alone', async () => {
  await withEngine({ context: 64, cacheTokens: 256, weightMemory: 2_000_000 }, async (engine) => {
    const random = randomOf(11)
    const texts = [0, 1, 2, 3].map((k) => IDS.map((id) => (id + 37 * k) % 2000))
    const alone: Float32Array[] = []
    for (const t of texts) alone.push(await logitsOf(engine, t))
    const v = engine.vocabulary
    const open: Sequence[] = texts.map(() => engine.createSequence())
    for (let round = 0; round < 25; round++) {
      await Promise.all(
        texts.map(async (t, k) => {
          let s = open[k]!
          if (random(8) === 0) {
            s.release()
            s = open[k] = engine.createSequence()
          } else if (random(3) === 0) s.truncate(random(s.length + 1))
          if (s.length === t.length) s.truncate(t.length - 1)
          const from = s.length
          const to = from + 1 + random(Math.min(20, t.length - from))
          const got = await s.forward(t.slice(from, to), { logits: 'all' })
          expect(sameBytes(got, alone[k]!.subarray(from * v, to * v)), `text ${k}, tokens ${from} to ${to}`).toBe(true)
        }),
      )
    }
  })
})

describe('the end of the room', () => {
  test('a context that is exactly full; one more token is refused and changes nothing', async () => {
    await withEngine({ context: 50 }, async (engine) => {
      const want = await logitsOf(engine, IDS.slice(0, 50))
      const s = engine.createSequence()
      const v = engine.vocabulary
      await s.forward(IDS.slice(0, 49), { logits: 'none' })
      await expect(s.forward(IDS.slice(49, 51), { logits: 'last' })).rejects.toMatchObject({ code: 'CONTEXT_FULL' })
      expect(s.length).toBe(49)
      expect(sameBytes(await s.forward(IDS.slice(49, 50), { logits: 'last' }), want.subarray(49 * v))).toBe(true)
      expect(s.length).toBe(50)
      await expect(s.forward([1], { logits: 'last' })).rejects.toMatchObject({ code: 'CONTEXT_FULL' })
      s.truncate(49)
      expect(sameBytes(await s.forward(IDS.slice(49, 50), { logits: 'last' }), want.subarray(49 * v))).toBe(true)
    })
  })

  test('the cache is full: BUDGET_EXCEEDED before anything is computed; others go on, and what is released can be used', async () => {
    await withEngine({ context: 64, cacheTokens: 80 }, async (engine) => {
      const want = await logitsOf(engine, IDS)
      const [a, b] = [engine.createSequence(), engine.createSequence()]
      await a.forward(IDS.slice(0, 60), { logits: 'none' })
      await b.forward(IDS.slice(0, 10), { logits: 'none' })
      await expect(b.forward(IDS.slice(10, 20), { logits: 'last' })).rejects.toMatchObject({ code: 'BUDGET_EXCEEDED' })
      expect(b.length).toBe(10)
      await b.forward(IDS.slice(10, 16), { logits: 'none' }) // its block has room
      const v = engine.vocabulary
      expect(sameBytes(await a.forward(IDS.slice(60), { logits: 'all' }), want.subarray(60 * v))).toBe(true)
      a.release()
      expect(sameBytes(await b.forward(IDS.slice(16), { logits: 'all' }), want.subarray(16 * v))).toBe(true)
    })
  })
})

describe('logits of every token', () => {
  test('a consumer that is slow holds up nobody else; what it throws is thrown and changes nothing', async () => {
    await withEngine({ context: 64, cacheTokens: 256 }, async (engine) => {
      const want = await logitsOf(engine, IDS)
      const parts: number[] = []
      const s = engine.createSequence()
      const other = engine.createSequence()
      await s.forward(IDS, {
        logits: 'all',
        onLogits: async (rows, first, tokens) => {
          expect(sameBytes(rows, want.subarray(first * engine.vocabulary, (first + tokens) * engine.vocabulary))).toBe(
            true,
          )
          parts.push(tokens)
          await other.forward([1], { logits: 'last' }) // would never end if the turn were held
          await expect(s.forward([1], { logits: 'last' })).rejects.toMatchObject({ code: 'REQUEST_INVALID' })
        },
      })
      expect(parts.reduce((a, b) => a + b)).toBe(IDS.length)
      s.truncate(10)
      const oops = new Error('oops')
      for (const onLogits of [
        () => {
          throw oops
        },
        () => Promise.reject(oops),
      ])
        await expect(s.forward(IDS.slice(10), { logits: 'all', onLogits })).rejects.toBe(oops)
      expect(s.length).toBe(10)
      expect(sameBytes(await s.forward(IDS.slice(10), { logits: 'all' }), want.subarray(10 * engine.vocabulary))).toBe(
        true,
      )
    })
  })
})
