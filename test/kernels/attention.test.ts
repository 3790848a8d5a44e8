// Attention and the cache: scalar against float64, SIMD against scalar, and independence of chunking, pages and head division.
import fc from 'fast-check'
import { expect, test } from 'vitest'
import { attentionScratch } from '#sluice/kernels/compute.js'
import type { AttentionCall, Kernels } from '#sluice/kernels/kernels.js'
import { half } from './matrices.ts'
import { activations, asFloats, expectSame, Sets, seeded } from './sets.ts'

const sets = new Sets()

const cases = fc.record({
  kvHeads: fc.integer({ min: 1, max: 3 }),
  group: fc.constantFrom(1, 2, 3, 4, 5, 8, 9),
  headDim: fc.constantFrom(1, 3, 8, 20, 64, 80, 128),
  positions: fc.integer({ min: 1, max: 40 }),
  last: fc.integer({ min: 1, max: 5 }),
  pageTokens: fc.constantFrom(1, 2, 4, 8, 16),
  kvF16: fc.constantFrom(0, 1),
  window: fc.constantFrom(0, 0, 1, 7),
  seed: fc.integer(),
})
type Case = ReturnType<(typeof cases)['generate']>['value']

interface Placed {
  call: AttentionCall
  k: Float32Array
  v: Float32Array
  kAt: number
  vAt: number
  stride: number
  pageAddresses: number[]
  pageBytes: number
}

function place(c: Case): Placed {
  sets.reset()
  const random = seeded(c.seed)
  const heads = c.kvHeads * c.group
  const stride = Math.ceil((c.kvHeads * c.headDim) / 64) * 64
  const qStride = Math.ceil((heads * c.headDim) / 64) * 64
  const k = activations(random, c.positions, c.kvHeads * c.headDim, stride)
  const v = activations(random, c.positions, c.kvHeads * c.headDim, stride)
  const tokens = Math.min(c.last, c.positions)
  const pageBytes = 2 * c.kvHeads * c.pageTokens * c.headDim * (c.kvF16 ? 2 : 4)
  const pageAddresses = Array.from({ length: Math.ceil(c.positions / c.pageTokens) }, () =>
    sets.alloc(pageBytes),
  ).reverse()
  return {
    k,
    v,
    kAt: sets.put(k),
    vAt: sets.put(v),
    stride,
    pageAddresses,
    pageBytes,
    call: {
      q: sets.put(activations(random, tokens, heads * c.headDim, qStride, 3)),
      qStride,
      y: 0,
      yStride: qStride,
      heads,
      kvHeads: c.kvHeads,
      headDim: c.headDim,
      headStart: 0,
      headEnd: heads,
      tokens,
      position: c.positions - tokens,
      pages: sets.put(Uint32Array.from(pageAddresses)),
      pageTokens: c.pageTokens,
      kvF16: c.kvF16,
      scale: 1 / Math.sqrt(c.headDim),
      window: c.window,
      scratch: sets.alloc(attentionScratch(c.positions)),
    },
  }
}

function append(
  k: Kernels,
  p: Placed,
  position: number,
  tokens: number,
  headStart = 0,
  headEnd = p.call.kvHeads,
): void {
  const { pages, pageTokens, kvF16, kvHeads, headDim } = p.call
  const skip = position * p.stride * 4
  k.kvAppend(
    p.kAt + skip,
    p.vAt + skip,
    p.stride,
    pages,
    pageTokens,
    kvF16,
    kvHeads,
    headDim,
    headStart,
    headEnd,
    position,
    tokens,
  )
}

const cache = (p: Placed) => p.pageAddresses.map((a) => sets.bytes(a - 64, p.pageBytes + 128).slice())

const attend = (k: Kernels, p: Placed, change: Partial<AttentionCall> = {}) => {
  const call = { ...p.call, ...change }
  return asFloats(sets.result(call.tokens * call.yStride * 4, (y) => k.attention({ ...call, y })))
}

test('kvAppend writes the same cache in every set, in one call or many, and nothing else', () => {
  fc.assert(
    fc.property(cases, (c) => {
      const p = place(c)
      append(sets.scalar, p, 0, c.positions)
      const expected = cache(p)
      const size = c.kvF16 ? 2 : 4
      for (let position = 0; position < c.positions; position++)
        for (let h = 0; h < c.kvHeads; h++)
          for (const [kind, from] of [p.k, p.v].entries()) {
            const view = new DataView(
              sets.memory.buffer,
              p.pageAddresses[Math.floor(position / c.pageTokens)]!,
              p.pageBytes,
            )
            const row = ((kind * c.kvHeads + h) * c.pageTokens + (position % c.pageTokens)) * c.headDim
            for (let d = 0; d < c.headDim; d++) {
              const value = from[position * p.stride + h * c.headDim + d]!
              const at = (row + d) * size
              const got = c.kvF16 ? half(view.getUint16(at, true)) : view.getFloat32(at, true)
              if (Math.abs(got - value) > (c.kvF16 ? Math.abs(value) * 2 ** -11 + 2 ** -25 : 0)) expect(got).toBe(value)
            }
          }
      for (const k of sets.all) {
        for (const a of p.pageAddresses) sets.bytes(a, p.pageBytes).fill(0xa5)
        const part = c.positions >> 1
        append(k, p, 0, part, 0, 1)
        append(k, p, 0, part, 1, c.kvHeads)
        append(k, p, part, c.positions - part)
        for (const [i, page] of cache(p).entries()) expect(Buffer.compare(page, expected[i]!)).toBe(0)
      }
    }),
    { numRuns: 50 },
  )
})

test('attention: scalar is within 2e-6 of float64, baseline has its bits, relaxed is as near', () => {
  fc.assert(
    fc.property(cases, (c) => {
      const p = place(c)
      append(sets.scalar, p, 0, c.positions)
      // What lies in the cache behind the last position must not be read.
      const scalar = attend(sets.scalar, p)
      expectSame(attend(sets.baseline, p), scalar)
      const relaxed = attend(sets.relaxed, p)
      const { call } = p
      const q = sets.floats(call.q, call.tokens * call.qStride)
      // From the cache itself: what kvAppend writes has a test of its own.
      const cached = (kind: number, position: number, h: number, d: number) => {
        const element = ((kind * c.kvHeads + h) * c.pageTokens + (position % c.pageTokens)) * c.headDim + d
        const page = new DataView(
          sets.memory.buffer,
          p.pageAddresses[Math.floor(position / c.pageTokens)]!,
          p.pageBytes,
        )
        return c.kvF16 ? half(page.getUint16(element * 2, true)) : page.getFloat32(element * 4, true)
      }
      for (let t = 0; t < call.tokens; t++)
        for (let h = 0; h < call.heads; h++) {
          const kv = Math.floor(h / c.group)
          const last = call.position + t
          const first = c.window ? Math.max(0, last - c.window + 1) : 0
          const scores: number[] = []
          for (let i = first; i <= last; i++) {
            let s = 0
            for (let d = 0; d < c.headDim; d++) s += q[t * call.qStride + h * c.headDim + d]! * cached(0, i, kv, d)
            scores.push(s / Math.sqrt(c.headDim))
          }
          const top = Math.max(...scores)
          const e = scores.map((s) => Math.exp(s - top))
          const total = e.reduce((a, b) => a + b)
          for (let d = 0; d < c.headDim; d++) {
            const expected = e.reduce((s, w, i) => s + (w / total) * cached(1, first + i, kv, d), 0)
            for (const y of [scalar, relaxed]) {
              const got = y[t * call.yStride + h * c.headDim + d]!
              if (!(Math.abs(got - expected) <= 2e-6)) expect(got).toBe(expected)
            }
          }
        }
    }),
    { numRuns: 120 },
  )
})

test('attention gives the same bits for tokens alone, heads alone, and other page sizes', () => {
  fc.assert(
    fc.property(cases, fc.constantFrom<2 | 8>(2, 8), (c, otherPage) => {
      const p = place(c)
      append(sets.scalar, p, 0, c.positions)
      const whole = sets.all.map((k) => attend(k, p))
      for (const [i, k] of sets.all.entries()) {
        for (let t = 0; t < p.call.tokens; t++) {
          const alone = attend(k, p, { tokens: 1, position: p.call.position + t, q: p.call.q + t * p.call.qStride * 4 })
          expect(alone).toEqual(whole[i]!.subarray(t * p.call.yStride, (t + 1) * p.call.yStride))
        }
        const first = attend(k, p, { headEnd: 1 })
        const rest = attend(k, p, { headStart: 1 })
        expect(first.map((v, j) => v + rest[j]!)).toEqual(whole[i])
      }
      const other = place({ ...c, pageTokens: otherPage })
      append(sets.scalar, other, 0, c.positions)
      for (const [i, k] of sets.all.entries()) expect(attend(k, other)).toEqual(whole[i])
    }),
    { numRuns: 50 },
  )
})
