// Choosing experts: ties, and logits that are not numbers, which must not write outside of the tables.
import { expect, test } from 'vitest'
import { route } from '#sluice/engine/route.js'

function choose(logits: number[][], topK: number, normalize = true) {
  const [tokens, experts] = [logits.length, logits[0]!.length]
  const memory = new ArrayBuffer(4096)
  const [i32, f32] = [new Int32Array(memory), new Float32Array(memory)]
  i32.fill(-7)
  const r = {
    experts,
    topK,
    firstGroup: 0,
    choices: 1024,
    weights: 1152,
    counts: 1280,
    lists: 1344,
    listWeights: 1344 + experts * tokens * 4,
  }
  for (const [t, row] of logits.entries()) f32.set(row, t * experts)
  route(
    r,
    { address: 0, stride: experts, width: experts },
    { op: 'route', logits: 0, experts, topK, normalize, route: 0 },
    tokens,
    i32,
    f32,
  )
  const used = new Set<number>()
  const words = (at: number, n: number) =>
    Array.from({ length: n }, (_, i) => {
      used.add(at / 4 + i)
      return i32[at / 4 + i]!
    })
  const choices = words(r.choices, tokens * topK)
  const counts = words(r.counts, experts)
  words(0, tokens * experts)
  words(r.weights, tokens * topK)
  words(r.lists, 2 * experts * tokens)
  const strays = i32.filter((v, i) => v !== -7 && !used.has(i)).length
  return { choices, counts, strays, weights: [...f32.subarray(r.weights / 4, r.weights / 4 + tokens * topK)] }
}

test('the highest, ties to the lower index, weights of a softmax', () => {
  const r = choose([[0, 2, 2, 1]], 2)
  expect(r.choices).toEqual([1, 2])
  expect(r.counts).toEqual([0, 1, 1, 0])
  const sum = 1 + Math.exp(-2) + 1 + Math.exp(-1)
  for (const w of r.weights) expect(w).toBeCloseTo(1 / sum, 6)
  expect(r.strays).toBe(0)
})

test.each([
  [[Number.NaN, Number.NaN, Number.NaN, Number.NaN]],
  [[1, Number.NaN, 2, 0]],
  [[Number.POSITIVE_INFINITY, 0, 0, 1]],
])('logits that are not numbers: experts all the same, each once, and nothing written elsewhere: %s', (row) => {
  const r = choose([row, [3, 2, 1, 0]], 3)
  for (const t of [0, 1]) {
    const chosen = r.choices.slice(3 * t, 3 * t + 3)
    expect(new Set(chosen).size).toBe(3)
    for (const e of chosen) expect(e >= 0 && e < 4).toBe(true)
  }
  expect(r.choices.slice(3)).toEqual([0, 1, 2])
  expect(r.counts.reduce((a, b) => a + b)).toBe(6)
  expect(r.strays).toBe(0)
})
