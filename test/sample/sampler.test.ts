import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import type { SamplingOptions } from '#sluice/sample/options.js'
import { createSampler } from '#sluice/sample/sampler.js'

const logs = (...p: number[]) => Float32Array.from(p, Math.log)

/** Exact distribution by the definition: full sort, every filter in turn. */
function exact(logits: Float32Array, o: SamplingOptions): Map<number, number> {
  const scaled = [...logits].map((x, id) => ({ id, x: x / (o.temperature ?? 1) }))
  scaled.sort((a, b) => b.x - a.x || a.id - b.id)
  let kept = o.topK ? scaled.slice(0, o.topK) : scaled
  const max = scaled[0]?.x ?? 0
  const total = kept.reduce((s, t) => s + Math.exp(t.x - max), 0)
  let sum = 0
  kept = kept.filter((t) => {
    const inside = sum < (o.topP ?? 1) * total || (o.topP ?? 1) === 1
    sum += Math.exp(t.x - max)
    return inside
  })
  kept = kept.filter((t) => Math.exp(t.x - max) >= (o.minP ?? 0))
  const rest = kept.reduce((s, t) => s + Math.exp(t.x - max), 0)
  return new Map(kept.map((t) => [t.id, Math.exp(t.x - max) / rest]))
}

/** Share of each id in `n` draws. */
function shares(logits: Float32Array, options: SamplingOptions, n: number): Map<number, number> {
  const sampler = createSampler(options)
  const counts = new Map<number, number>()
  for (let i = 0; i < n; i++) {
    const { id } = sampler.next(logits)
    counts.set(id, (counts.get(id) ?? 0) + 1)
  }
  return new Map([...counts].map(([id, c]) => [id, c / n]))
}

describe('greedy', () => {
  test('takes the largest logit, the lowest id of equal ones', () => {
    const sampler = createSampler()
    expect(sampler.next(Float32Array.of(1, 3, 2, 3)).id).toBe(1)
    expect(sampler.next(Float32Array.of(Number.NEGATIVE_INFINITY, -1e30)).id).toBe(1)
  })

  test('says the probability of the model', () => {
    expect(createSampler().next(logs(0.1, 0.6, 0.3)).logprob).toBeCloseTo(Math.log(0.6), 6)
    // A logit of 1000 must not overflow.
    expect(createSampler().next(Float32Array.of(1000, 999)).logprob).toBeCloseTo(-Math.log(1 + Math.exp(-1)), 6)
  })
})

describe('filters, by hand', () => {
  const p = logs(0.4, 0.3, 0.2, 0.1)
  const support = (options: SamplingOptions) =>
    [...shares(p, { temperature: 1, seed: 1, ...options }, 2000).keys()].sort()
  test('top-k', () => expect(support({ topK: 2 })).toEqual([0, 1]))
  test('top-p keeps the token that crosses the limit', () => expect(support({ topP: 0.65 })).toEqual([0, 1]))
  test('top-p keeps at least one', () => expect(support({ topP: 1e-9 })).toEqual([0]))
  test('min-p', () => expect(support({ minP: 0.45 })).toEqual([0, 1, 2]))
  test('top-p counts within top-k', () => expect(support({ topK: 2, topP: 0.5 })).toEqual([0]))
  test('equal logits: exactly k, lowest ids', () => {
    const flat = new Float32Array(6)
    expect([...shares(flat, { temperature: 1, topK: 3, seed: 1 }, 500).keys()].sort()).toEqual([0, 1, 2])
  })
  test('a temperature near zero is greedy, a high one is flat', () => {
    expect(support({ temperature: 1e-300 })).toEqual([0])
    expect(shares(p, { temperature: 100, seed: 1 }, 20_000).get(3)).toBeGreaterThan(0.23)
  })
})

describe('penalties, by hand', () => {
  const pick = (options: SamplingOptions, logits: number[], history: number[], prompt = 0) =>
    createSampler(options).next(Float32Array.from(logits), history, prompt).id
  test('repetition divides positive logits and multiplies negative ones', () => {
    expect(pick({ repetitionPenalty: 2 }, [4, 3], [0])).toBe(1)
    expect(pick({ repetitionPenalty: 2 }, [-1, -1.5], [0])).toBe(1)
    expect(pick({ repetitionPenalty: 1.3 }, [4, 3], [0])).toBe(0)
  })
  test('presence once, frequency for every time', () => {
    expect(pick({ presencePenalty: 1.5 }, [4, 3], [0, 0, 0])).toBe(1)
    expect(pick({ presencePenalty: 0.5 }, [4, 3], [0, 0, 0])).toBe(0)
    expect(pick({ frequencyPenalty: 0.5 }, [4, 3], [0, 0, 0])).toBe(1)
    expect(pick({ frequencyPenalty: 0.5 }, [4, 3], [0])).toBe(0)
  })
  test('the prompt counts for repetition only', () => {
    expect(pick({ presencePenalty: 5 }, [4, 3], [0], 1)).toBe(0)
    expect(pick({ repetitionPenalty: 2 }, [4, 3], [0], 1)).toBe(1)
  })
  test('bias, and bias that forbids', () => {
    expect(pick({ logitBias: new Map([[1, 2]]) }, [4, 3], [])).toBe(1)
    expect(pick({ logitBias: new Map([[0, Number.NEGATIVE_INFINITY]]) }, [4, 3], [])).toBe(1)
  })
  test('leave the logits and the logprob of the model as they are', () => {
    const logits = logs(0.6, 0.4)
    const copy = logits.slice()
    const { id, logprob } = createSampler({ repetitionPenalty: 9, temperature: 0 }).next(logits, [0])
    expect([id, logits]).toEqual([1, copy])
    expect(logprob).toBeCloseTo(Math.log(0.4), 6)
  })
})

describe('the distribution', () => {
  const logits = Float32Array.from({ length: 40 }, (_, i) => Math.sin(i * 12.9898) * 3)
  test.each<SamplingOptions>([
    { temperature: 1 },
    { temperature: 0.7, topK: 8 },
    { temperature: 1.3, topP: 0.8 },
    { temperature: 0.8, topP: 0.95, topK: 20, minP: 0.05 },
  ])('%j is the exact one', (options) => {
    const n = 40_000
    const expected = exact(logits, options)
    const got = shares(logits, { ...options, seed: 20261201 }, n)
    let chiSquare = 0
    for (const [id, p] of expected) chiSquare += (n * ((got.get(id) ?? 0) - p) ** 2) / p
    for (const id of got.keys()) expect(expected.has(id)).toBe(true)
    // Mean k − 1, variance 2(k − 1): five standard deviations above.
    const degrees = expected.size - 1
    expect(chiSquare).toBeLessThan(degrees + 5 * Math.sqrt(2 * degrees))
  })

  test('whatever the logits and options, the token is one the definition allows, and repeats by seed', () => {
    fc.assert(
      fc.property(
        fc.array(fc.oneof(fc.float({ min: -30, max: 30, noNaN: true }), fc.constant(1)), {
          minLength: 1,
          maxLength: 50,
        }),
        fc.record({
          temperature: fc.double({ min: 0.01, max: 5, noNaN: true }),
          topK: fc.nat(60),
          topP: fc.double({ min: 0.01, max: 1, noNaN: true }),
          minP: fc.double({ min: 0, max: 1, noNaN: true }),
          seed: fc.integer(),
        }),
        (values, options) => {
          const x = Float32Array.from(values)
          const { id } = createSampler(options).next(x)
          // Rounding may move the border of top-p by one token: widen the reference by a hair.
          const allowed = exact(x, {
            ...options,
            topP: Math.min(1, options.topP + 1e-9),
            minP: options.minP * (1 - 1e-9),
          })
          expect(allowed.has(id)).toBe(true)
          expect(createSampler(options).next(x).id).toBe(id)
        },
      ),
    )
  })

  test('a vocabulary of 256,000 tokens', () => {
    const big = Float32Array.from({ length: 256_000 }, (_, i) => Math.sin(i) * 4)
    const options = { temperature: 0.8, topK: 40, topP: 0.9, seed: 3 }
    const expected = exact(big, options)
    const sampler = createSampler(options)
    for (let i = 0; i < 20; i++) expect(expected.has(sampler.next(big).id)).toBe(true)
  })
})

describe('refusals', () => {
  test.each<[string, unknown]>([
    ['temperature', -1],
    ['temperature', Number.NaN],
    ['temperature', '1'],
    ['topK', -1],
    ['topK', 1.5],
    ['topP', 0],
    ['topP', 1.01],
    ['minP', -0.1],
    ['minP', 2],
    ['repetitionPenalty', 0],
    ['presencePenalty', 101],
    ['frequencyPenalty', Number.POSITIVE_INFINITY],
    ['seed', 0.5],
    ['seed', 2 ** 60],
    ['logitBias', {}],
    ['logitBias', new Map([[-1, 0]])],
    ['logitBias', new Map([[0, Number.NaN]])],
    ['top_k', 40],
  ])('%s = %s', (name, value) => {
    expect(() => createSampler({ [name]: value })).toThrow(
      expect.objectContaining({ code: 'REQUEST_INVALID', message: expect.stringContaining(name) }),
    )
  })

  test.each([
    [[Number.NaN, 1]],
    [[1, Number.NaN]],
    [[1, Number.POSITIVE_INFINITY]],
    [[Number.NEGATIVE_INFINITY]],
    [[]],
  ])('logits %j', (values) => {
    for (const temperature of [0, 1])
      expect(() => createSampler({ temperature }).next(Float32Array.from(values))).toThrow(
        expect.objectContaining({ code: 'LOGITS_INVALID' }),
      )
  })

  test('history and bias outside the vocabulary', () => {
    const code = expect.objectContaining({ code: 'REQUEST_INVALID' })
    expect(() => createSampler({ repetitionPenalty: 2 }).next(Float32Array.of(1), [1])).toThrow(code)
    expect(() => createSampler({ logitBias: new Map([[5, 1]]) }).next(Float32Array.of(1))).toThrow(code)
  })
})
