// Kernels over activations alone: scalar against float64, every SIMD set with the bits of scalar.
import fc from 'fast-check'
import { expect, test } from 'vitest'
import type { Kernels } from '#sluice/kernels/kernels.js'
import { exp32, floatToHalf, halfToFloat } from '#sluice/kernels/scalar/float.js'
import { data, dataTest } from '../data.ts'
import { half } from './matrices.ts'
import { activations, asFloats, expectSame, Sets, seeded } from './sets.ts'

const sets = new Sets()

/** Runs all sets, demands equal bits, gives scalar's result. */
function same(bytes: number, run: (k: Kernels, out: number) => void): Float32Array {
  const [scalar, baseline, relaxed] = sets.all.map((k) => sets.result(bytes, (out) => run(k, out)))
  expectSame(baseline!, scalar!)
  expectSame(relaxed!, scalar!)
  return asFloats(scalar!)
}

const near = (got: number, expected: number, share: number, least = 1e-30) =>
  Math.abs(got - expected) <= share * Math.abs(expected) + least

test('rmsNorm', () => {
  fc.assert(
    fc.property(
      fc.integer({ min: 1, max: 200 }),
      fc.integer({ min: 1, max: 4 }),
      fc.constantFrom(0, 1),
      fc.integer(),
      (dim, tokens, offset, seed) => {
        sets.reset()
        const random = seeded(seed)
        const x = activations(random, tokens, dim, 256, 10)
        const w = activations(random, 1, dim, 256)
        const xAt = sets.put(x)
        const wAt = sets.put(w)
        const y = same(tokens * 256 * 4, (k, out) => k.rmsNorm(xAt, 256, wAt, out, 256, dim, 1e-5, offset, tokens))
        for (let t = 0; t < tokens; t++) {
          const row = x.subarray(t * 256, t * 256 + dim)
          const norm = Math.sqrt(row.reduce((s, v) => s + v * v, 0) / dim + 1e-5)
          for (let i = 0; i < 256; i++) {
            const expected = i < dim ? (row[i]! / norm) * (offset + w[i]!) : 0
            if (!near(y[t * 256 + i]!, expected, 1e-6, 1e-6)) expect(y[t * 256 + i]).toBe(expected)
          }
        }
        // In place.
        const inPlace = same(tokens * 256 * 4, (k, out) => {
          sets.floats(out, x.length).set(x)
          k.rmsNorm(out, 256, wAt, out, 256, dim, 1e-5, offset, tokens)
        })
        expect(inPlace).toEqual(y)
      },
    ),
    { numRuns: 60 },
  )
})

test('rope in both pairings; dimensions past rotaryDim stay', () => {
  fc.assert(
    fc.property(
      fc.record({
        heads: fc.integer({ min: 1, max: 4 }),
        headDim: fc.constantFrom(2, 8, 20, 64, 80),
        part: fc.constantFrom(1, 0.5),
        interleaved: fc.constantFrom(0, 1),
        tokens: fc.integer({ min: 1, max: 3 }),
        seed: fc.integer(),
      }),
      ({ heads, headDim, part, interleaved, tokens, seed }) => {
        sets.reset()
        const random = seeded(seed)
        const rotary = Math.max(2, 2 * Math.floor((headDim * part) / 2))
        const stride = 384
        const x = activations(random, tokens, heads * headDim, stride)
        const angles = Array.from({ length: (tokens * rotary) / 2 }, () => random() * 6.28)
        const table = sets.put(Float32Array.from(angles.flatMap((a) => [Math.cos(a), Math.sin(a)])))
        const y = same(tokens * stride * 4, (k, out) => {
          sets.floats(out, x.length).set(x)
          k.rope(out, stride, heads, headDim, rotary, interleaved, table, tokens)
        })
        const expected = Float32Array.from(x)
        for (let t = 0; t < tokens; t++)
          for (let h = 0; h < heads; h++)
            for (let i = 0; i < rotary / 2; i++) {
              const base = t * stride + h * headDim
              const a = base + (interleaved ? 2 * i : i)
              const b = interleaved ? a + 1 : a + rotary / 2
              const angle = angles[(t * rotary) / 2 + i]!
              expected[a] = x[a]! * Math.cos(angle) - x[b]! * Math.sin(angle)
              expected[b] = x[a]! * Math.sin(angle) + x[b]! * Math.cos(angle)
            }
        expect(y.every((v, i) => near(v, expected[i]!, 1e-6, 1e-6))).toBe(true)
      },
    ),
    { numRuns: 60 },
  )
})

test('swiglu and add over a range of columns', () => {
  fc.assert(
    fc.property(
      fc.nat(40),
      fc.integer({ min: 1, max: 40 }),
      fc.constantFrom(1, 30, 1000),
      fc.integer(),
      (from, count, size, seed) => {
        sets.reset()
        const random = seeded(seed)
        const tokens = 2
        const to = from + count
        const gate = activations(random, tokens, 128, 128, size)
        const up = activations(random, tokens, 128, 128)
        const gateAt = sets.put(gate)
        const upAt = sets.put(up)
        const gated = same(tokens * 512, (k, out) => k.swiglu(gateAt, upAt, out, 128, from, to, tokens))
        const added = same(tokens * 512, (k, out) => {
          sets.floats(out, up.length).set(up)
          k.add(gateAt, 128, out, 128, from, to, tokens, 0.7)
        })
        for (let i = 0; i < gated.length; i++) {
          const inside = i % 128 >= from && i % 128 < to
          const g = gate[i]!
          if (!near(gated[i]!, inside ? (g / (1 + Math.exp(-g))) * up[i]! : 0, 1e-6)) expect(gated[i]).toBe(g)
          if (!near(added[i]!, up[i]! + (inside ? Math.fround(0.7) * g : 0), 1e-6, 1e-6 * size))
            expect(added[i]).toBe(g)
        }
      },
    ),
    { numRuns: 60 },
  )
})

test('softmax, with -Infinity, equal and huge values', () => {
  fc.assert(
    fc.property(fc.integer({ min: 1, max: 150 }), fc.constantFrom(0, 1, 50, 1e30), fc.integer(), (n, size, seed) => {
      sets.reset()
      const random = seeded(seed)
      const x = activations(random, 1, n, n, size)
      if (n > 3) x[2] = Number.NEGATIVE_INFINITY
      const y = same(n * 4, (k, out) => {
        sets.floats(out, n).set(x)
        k.softmax(out, n)
      })
      const top = Math.max(...x)
      const e = Array.from(x, (v) => Math.exp(v - top))
      const total = e.reduce((s, v) => s + v, 0)
      // x - top is rounded before it is an exponent.
      expect(e.every((v, i) => near(y[i]!, v / total, 1e-6 * (1 + (v > 0 ? top - x[i]! : 0)), 1e-30))).toBe(true)
    }),
    { numRuns: 60 },
  )
})

test('exp32 is within 2 ulp over its range', () => {
  for (let i = 0; i < 20000; i++) {
    const x = Math.fround(-87.3 + (i * (87.3 + 88.3)) / 20000)
    if (!near(exp32(x), Math.exp(x), 2.4e-7)) expect(exp32(x)).toBe(Math.exp(x))
  }
  expect(exp32(0)).toBe(1)
  expect(exp32(-100)).toBe(0)
  expect(exp32(Number.NEGATIVE_INFINITY)).toBe(0)
  expect(exp32(NaN)).toBeNaN()
})

test('float16 both ways: every half, and rounding to nearest even between them', () => {
  const check = (value: number, expected: number) => {
    if (floatToHalf(value) !== expected) expect(floatToHalf(value), `half of ${value}`).toBe(expected)
  }
  for (let bits = 0; bits < 0x10000; bits++) {
    const value = half(bits)
    if (!Object.is(halfToFloat(bits), value)) expect(halfToFloat(bits)).toBe(value)
    if (Number.isNaN(value)) continue
    check(value, bits)
    const next = half(bits + 1)
    if ((bits & 0x7fff) >= 0x7bff || !Number.isFinite(next)) continue
    const middle = (value + next) / 2
    check(middle, bits & 1 ? bits + 1 : bits)
    check(Math.fround(middle + (next - middle) * 2 ** -10), bits + 1)
  }
  expect(floatToHalf(65519.99)).toBe(0x7bff)
  expect(floatToHalf(65520)).toBe(0x7c00)
  expect(floatToHalf(-1e30)).toBe(0xfc00)
  expect(halfToFloat(floatToHalf(NaN))).toBeNaN()
})

dataTest('fp8 and NF4 codes have the values of the code tables', async () => {
  const { readFileSync } = await import('node:fs')
  const { COMPUTE } = await import('#sluice/kernels/kernels.js')
  const tables = JSON.parse(readFileSync(data('quant/code-tables.json'), 'utf8')) as Record<
    string,
    (number | string | null)[]
  >
  sets.reset()
  const check = (encoding: 3 | 6 | 7 | 8, table: (number | string | null)[]) => {
    for (let first = 0; first < table.length; first += 16) {
      // One panel, one block: row r has the code first + r in column 0; float32 scales of 1.
      const codeBytes = encoding === COMPUTE.nf4 ? 256 : 512
      const bytes = new Uint8Array(codeBytes + 64)
      for (let r = 0; r < 16; r++) bytes[r * 4] = first + r
      new Float32Array(bytes.buffer, codeBytes).fill(1)
      const address = sets.put(bytes)
      const m = { encoding, address, rows: 16, cols: 1, block: 32, scaleF32: 1, multiplier: 1 }
      const y = same(64, (k, out) => k.decode(m, out, 1))
      for (let r = 0; r < 16; r++) {
        const expected = table[first + r]!
        if (typeof expected === 'number') expect(y[r]).toBe(Math.fround(expected))
        else expect(Number.isFinite(y[r])).toBe(false)
      }
    }
  }
  check(COMPUTE.fp8_e4m3, tables.float8_e4m3fn!)
  check(COMPUTE.fp8_e5m2, tables.float8_e5m2!)
  check(COMPUTE.nf4, (tables.nf4 ?? tables.NF4)!)
})
