import fc from 'fast-check'
import { expect, test } from 'vitest'
import { isSluiceError } from '#sluice/base/errors.js'
import { createBudget } from '#sluice/memory/budget.js'

test('refuses what does not fit and says what holds the rest', () => {
  const b = createBudget(1000)
  const r = b.reserve(700, 'weights', 'pages')
  expect(b.available).toBe(300)
  try {
    b.reserve(301, 'kv', 'cache of 4 tokens')
    expect.unreachable()
  } catch (err) {
    if (!isSluiceError(err, 'BUDGET_EXCEEDED')) throw err
    expect(err.message).toContain('cache of 4 tokens')
    expect(err.message).toContain('weights 700')
    expect(err.details).toMatchObject({ wantedBytes: 301, availableBytes: 300, totalBytes: 1000, owner: 'kv' })
  }
  expect(b.used).toBe(700) // the refusal took nothing
  r.release()
  r.release()
  expect(b.used).toBe(0)
  expect(b.reserve(1000, 'kv', 'cache').bytes).toBe(1000)
})

test('refuses impossible numbers', () => {
  for (const n of [0, -1, 1.5, Number.NaN, Infinity, 2 ** 60]) expect(() => createBudget(n)).toThrow(/positive number/)
  const b = createBudget(10)
  for (const n of [-1, 0.5, Number.NaN]) expect(() => b.reserve(n, 'kv', 'x')).toThrow(/count of bytes/)
  expect(b.used).toBe(0)
})

test('sums stay right under any order of reserving and releasing', () => {
  const owner = fc.constantFrom('weights', 'kv', 'io', 'scratch' as const)
  fc.assert(
    fc.property(fc.array(fc.tuple(owner, fc.nat(2 ** 40), fc.boolean()), { maxLength: 40 }), (steps) => {
      const total = 2 ** 42
      const b = createBudget(total)
      const open: { bytes: number; owner: string; release(): void }[] = []
      for (const [who, bytes, free] of steps) {
        if (free) open.pop()?.release()
        else {
          const before = b.used
          try {
            open.push(b.reserve(bytes, who as 'kv', 'x'))
          } catch {
            expect(before + bytes).toBeGreaterThan(total)
          }
        }
        const sum = open.reduce((s, r) => s + r.bytes, 0)
        expect(b.used).toBe(sum)
        expect(b.available).toBe(total - sum)
        expect(Object.values(b.report()).reduce((s, n) => s + n, 0)).toBe(sum)
      }
    }),
  )
})
