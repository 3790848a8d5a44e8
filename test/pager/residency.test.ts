import fc from 'fast-check'
import { expect, test } from 'vitest'
import { isSluiceError } from '#sluice/base/errors.js'
import { decideResidency, type PageSize, RING_BYTES } from '#sluice/pager/residency.js'

const MiB = 1024 ** 2
const uniform = (count: number, bytes: number): PageSize[] =>
  Array.from({ length: count }, () => ({ pinned: bytes, streamed: bytes, staged: 0 }))

const anyPage = fc.record({
  pinned: fc.integer({ min: 64, max: 2 * MiB }),
  extra: fc.constantFrom(0, 4096, 8192),
  staged: fc.boolean(),
})
const anyPages = fc
  .array(anyPage, { minLength: 1, maxLength: 400 })
  .map((ps) =>
    ps.map((p): PageSize => ({ pinned: p.pinned, streamed: p.pinned + p.extra, staged: p.staged ? p.pinned : 0 })),
  )

function required(pages: PageSize[]): number {
  try {
    decideResidency({ pages, weightBytes: 0, reads: 4 })
  } catch (err) {
    if (isSluiceError(err, 'BUDGET_TOO_SMALL')) return err.details.requiredBytes as number
    throw err
  }
  return 0
}

test('what fits is pinned whole and needs no ring', () => {
  const r = decideResidency({ pages: uniform(10, MiB), weightBytes: 10 * MiB, reads: 4 })
  expect(r).toMatchObject({ pinnedPages: 10, streamedPages: 0, ringBytes: 0, totalBytes: 10 * MiB, stageSlots: 0 })
  expect(
    decideResidency({ pages: uniform(10, MiB), weightBytes: 10 * MiB - 1, reads: 4 }).streamedPages,
  ).toBeGreaterThan(0)
})

test('half the bytes: every second page, and a ring of 32 MiB', () => {
  const r = decideResidency({ pages: uniform(2000, MiB), weightBytes: 1000 * MiB + RING_BYTES, reads: 4 })
  expect(r.ringBytes).toBe(RING_BYTES)
  expect([...r.pinned.slice(0, 6)]).toEqual([0, 1, 0, 1, 0, 1])
  expect(r.pinnedPages).toBe(1000)
})

test('too small is refused with the smallest that works, and that works', () => {
  fc.assert(
    fc.property(anyPages, (pages) => {
      const need = required(pages)
      expect(need).toBeGreaterThan(0)
      expect(decideResidency({ pages, weightBytes: need, reads: 4 }).totalBytes).toBeLessThanOrEqual(need)
      expect(() => decideResidency({ pages, weightBytes: need - 1, reads: 4 })).toThrow(
        expect.objectContaining({ code: 'BUDGET_TOO_SMALL' }),
      )
    }),
  )
})

test('never above the memory given; the ring holds the two largest pages; the share is that of every run of pages', () => {
  fc.assert(
    fc.property(
      anyPages,
      fc.double({ min: 0, max: 1.1, noNaN: true }),
      fc.nat(1000),
      fc.nat(1000),
      (pages, part, a, b) => {
        const all = pages.reduce((s, p) => s + p.pinned, 0)
        const weightBytes = Math.max(required(pages), Math.floor(part * all))
        const r = decideResidency({ pages, weightBytes, reads: 4 })
        const stage = r.stageSlots * r.stageSlotBytes
        expect(r.pinnedBytes + r.ringBytes + stage).toBe(r.totalBytes)
        expect(r.totalBytes).toBeLessThanOrEqual(weightBytes)
        expect(r.pinnedPages + r.streamedPages).toBe(pages.length)
        if (pages.some((p) => p.staged > 0)) expect(r.stageSlots).toBeGreaterThanOrEqual(1)
        if (r.streamedPages === 0) return
        const largest = Math.max(...pages.map((p) => p.pinned))
        expect(r.ringBytes).toBeGreaterThanOrEqual(2 * Math.max(...pages.map((p) => p.streamed)))
        const share = (weightBytes - r.ringBytes - stage) / all
        const [from, to] = [a % pages.length, b % pages.length].sort((x, y) => x - y) as [number, number]
        const run = pages.slice(from, to + 1)
        const bytes = run.reduce((s, p) => s + p.pinned, 0)
        const kept = run.reduce((s, p, i) => s + r.pinned[from + i]! * p.pinned, 0)
        expect(Math.abs(kept - share * bytes)).toBeLessThanOrEqual(largest + 1)
      },
    ),
  )
})

test('more memory never streams more: exactly for pages of one size, within a page for mixed ones', () => {
  const slack = (pages: PageSize[]) =>
    pages.every((p) => p.pinned === pages[0]!.pinned) ? 0 : Math.max(...pages.map((p) => p.pinned))
  const sized = fc
    .tuple(fc.integer({ min: 1, max: 300 }), fc.integer({ min: 64, max: 2 * MiB }))
    .map(([n, b]) => uniform(n, b))
  fc.assert(
    fc.property(
      fc.oneof(anyPages, sized),
      fc.double({ min: 0, max: 1, noNaN: true }),
      fc.nat(4 * MiB),
      (pages, part, more) => {
        const all = pages.reduce((s, p) => s + p.pinned, 0)
        const weightBytes = Math.max(required(pages), Math.floor(part * all))
        const small = decideResidency({ pages, weightBytes, reads: 4 })
        const large = decideResidency({ pages, weightBytes: weightBytes + more, reads: 4 })
        expect(large.pinnedBytes).toBeGreaterThanOrEqual(small.pinnedBytes - slack(pages))
      },
    ),
  )
})

test('a ring asked for is used, or refused', () => {
  const pages = uniform(100, MiB)
  expect(decideResidency({ pages, weightBytes: 50 * MiB, reads: 4, ringBytes: 10 * MiB }).ringBytes).toBe(10 * MiB)
  const code = (ringBytes: number) => {
    try {
      decideResidency({ pages, weightBytes: 50 * MiB, reads: 4, ringBytes })
      return 'ok'
    } catch (err) {
      return isSluiceError(err) ? err.code : 'other'
    }
  }
  expect(code(2 * MiB)).toBe('ok')
  expect(code(2 * MiB - 4096)).toBe('REQUEST_INVALID')
  expect(code(Number.NaN)).toBe('REQUEST_INVALID')
  expect(code(50 * MiB + 1)).toBe('BUDGET_TOO_SMALL')
})
