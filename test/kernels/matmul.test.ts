// decode, matMul, quantize and matMulQ: scalar against float64, every SIMD set against scalar, over shapes, alignments and edges.
import fc from 'fast-check'
import { expect, test } from 'vitest'
import { COMPUTE, type ComputeName, type Kernels, type MatrixBlock } from '#sluice/kernels/kernels.js'
import { type Matrix, randomMatrix, STYLES } from './matrices.ts'
import { activations, asFloats, expectSame, Sets, seeded } from './sets.ts'

const NAMES = Object.keys(COMPUTE) as ComputeName[]
const PANEL_NAMES = NAMES.filter((n) => COMPUTE[n] >= COMPUTE.int8)
const sets = new Sets()

const shapes = (names: ComputeName[]) =>
  fc.record({
    name: fc.constantFrom(...names),
    rows: fc.integer({ min: 1, max: 37 }),
    cols: fc.oneof(
      fc.integer({ min: 1, max: 20 }),
      fc.integer({ min: 1, max: 300 }),
      fc.constantFrom(32, 64, 128, 256),
    ),
    tokens: fc.integer({ min: 1, max: 9 }),
    block: fc.constantFrom<32 | 64>(32, 64),
    scaleF32: fc.constantFrom<0 | 1>(0, 1),
    exponent: fc.integer({ min: -6, max: 6 }),
    style: fc.constantFrom(...STYLES),
    size: fc.constantFrom(1, 1e-3, 1e4),
    misalign: fc.integer({ min: 0, max: 7 }),
    accumulate: fc.constantFrom(0, 1),
    alpha: fc.constantFrom(1, 1, 0.3, -2),
    seed: fc.integer(),
  })

type Shape = ReturnType<typeof shapes> extends fc.Arbitrary<infer T> ? T : never

interface Case {
  w: Matrix
  m: MatrixBlock
  x: Float32Array
  xAt: number
  xStride: number
  yStride: number
}

function place(c: Shape): Case {
  sets.reset()
  const random = seeded(c.seed)
  const w = randomMatrix(random, c.name, c.rows, c.cols, c)
  const xStride = Math.ceil(c.cols / 64) * 64 + (c.seed & 1 ? 64 : 0)
  const x = activations(random, c.tokens, c.cols, xStride, c.size)
  const m = { ...w.block, address: sets.put(w.bytes, c.misalign) }
  return { w, m, x, xAt: sets.put(x), xStride, yStride: c.rows + 3 }
}

/** What matMul writes over a y of 0.75 everywhere. */
function product(
  k: Kernels,
  c: Case,
  tokens: number,
  accumulate: number,
  alpha: number,
  m = c.m,
  from = 0,
): Float32Array {
  return asFloats(
    sets.result(tokens * c.yStride * 4, (y) => {
      sets.floats(y, tokens * c.yStride).fill(0.75)
      k.matMul(m, c.xAt + from * c.xStride * 4, c.xStride, y, c.yStride, tokens, accumulate, alpha)
    }),
  )
}

test('decode gives scale·code + minimum, in every set the same bits', () => {
  fc.assert(
    fc.property(shapes(NAMES), (s) => {
      const c = place(s)
      const stride = s.cols + 5
      const run = (k: Kernels) => sets.result(s.rows * stride * 4, (out) => k.decode(c.m, out, stride))
      const expected = run(sets.scalar)
      const floats = asFloats(expected)
      for (let r = 0; r < s.rows; r++) {
        for (let i = 0; i < s.cols; i++) {
          const value = c.w.values[r * s.cols + i]!
          const slack = s.name === 'int4m' ? 1.2e-7 * c.w.magnitudes[r * s.cols + i]! : 0
          if (!(Math.abs(floats[r * stride + i]! - Math.fround(value)) <= slack))
            expect(floats[r * stride + i]).toBe(value)
        }
        expectSame(floats.subarray(r * stride + s.cols, (r + 1) * stride), new Float32Array(5))
      }
      expectSame(run(sets.baseline), expected)
      expectSame(run(sets.relaxed), expected)
    }),
    { numRuns: 150 },
  )
})

test('matMul: scalar is within 2e-6·Σ|w·x| of float64, baseline has its bits, relaxed its budget', () => {
  fc.assert(
    fc.property(shapes(NAMES), (s) => {
      const c = place(s)
      const alpha = Math.fround(s.alpha)
      const scalar = product(sets.scalar, c, s.tokens, s.accumulate, s.alpha)
      const relaxed = product(sets.relaxed, c, s.tokens, s.accumulate, s.alpha)
      expectSame(product(sets.baseline, c, s.tokens, s.accumulate, s.alpha), scalar)
      for (let t = 0; t < s.tokens; t++) {
        for (let r = 0; r < s.rows; r++) {
          let sum = 0
          let magnitude = 0
          for (let i = 0; i < s.cols; i++) {
            const term = c.w.values[r * s.cols + i]! * c.x[t * c.xStride + i]!
            sum += term
            magnitude += c.w.magnitudes[r * s.cols + i]! * Math.abs(c.x[t * c.xStride + i]!)
          }
          const expected = (s.accumulate ? 0.75 : 0) + alpha * sum
          const budget = 2e-6 * (Math.abs(alpha) * magnitude + 0.75)
          expect(Math.abs(scalar[t * c.yStride + r]! - expected)).toBeLessThanOrEqual(budget)
          expect(Math.abs(relaxed[t * c.yStride + r]! - expected)).toBeLessThanOrEqual(budget)
        }
        for (let i = s.rows; i < c.yStride; i++) expect(scalar[t * c.yStride + i]).toBe(0.75)
      }
    }),
    { numRuns: 300 },
  )
})

test('a row and token have the same bits however rows and tokens are divided', () => {
  fc.assert(
    fc.property(shapes(NAMES), (s) => {
      const c = place(s)
      for (const k of sets.all) {
        const whole = product(k, c, s.tokens, s.accumulate, s.alpha)
        for (let t = 0; t < s.tokens; t++)
          expectSame(
            product(k, c, 1, s.accumulate, s.alpha, c.m, t),
            whole.subarray(t * c.yStride, (t + 1) * c.yStride),
          )
        // The rows from the second panel on, alone.
        if (s.rows > 16) {
          const firstBytes = (c.w.bytes.length / Math.ceil(s.rows / 16)) * 1
          const rowBytes = s.cols * (s.name === 'f32' ? 4 : 2)
          const address = c.m.address + (COMPUTE[s.name] >= COMPUTE.int8 ? firstBytes : 16 * rowBytes)
          const rest = product(k, c, s.tokens, s.accumulate, s.alpha, { ...c.m, address, rows: s.rows - 16 })
          for (let t = 0; t < s.tokens; t++)
            expect(rest.subarray(t * c.yStride, t * c.yStride + s.rows - 16)).toEqual(
              whole.subarray(t * c.yStride + 16, t * c.yStride + s.rows),
            )
        }
      }
    }),
    { numRuns: 120 },
  )
})

test('quantize: codes, scales and sums within half a step, in every set the same bytes', () => {
  fc.assert(
    fc.property(shapes(['int8']), (s) => {
      const c = place(s)
      if (s.style === 'zeros') sets.floats(c.xAt, c.x.length).fill(0)
      const x = sets.floats(c.xAt, c.x.length)
      const stride = sets.scalar.quantizedStride(s.cols, s.block)
      expect(stride % 64).toBe(0)
      const run = (k: Kernels) =>
        sets.result(s.tokens * stride, (out) => k.quantize(c.xAt, c.xStride, s.cols, s.block, s.tokens, out))
      const bytes = run(sets.scalar)
      expectSame(run(sets.baseline), bytes)
      expectSame(run(sets.relaxed), bytes)
      const blocks = Math.ceil(s.cols / s.block)
      const n = blocks * s.block
      for (let t = 0; t < s.tokens; t++) {
        const view = new DataView(bytes.buffer, bytes.byteOffset + t * stride, stride)
        for (let b = 0; b < blocks; b++) {
          const scale = view.getFloat32(3 * n + 4 * b, true)
          let sum = 0
          const start = [0, 0]
          for (let i = 0; i < s.block && b * s.block + i < s.cols; i++) {
            const code = view.getInt8(b * s.block + i)
            sum += code
            start[(i >> 1) & 1]! -= 8 * code
            if (!(Math.abs(code * scale - x[t * c.xStride + b * s.block + i]!) <= scale * 0.5001))
              expect(code * scale).toBe(x[t * c.xStride + b * s.block + i]!)
          }
          expect(view.getInt32(3 * n + 4 * blocks + 4 * b, true)).toBe(sum)
          expect(view.getInt16(3 * n + 8 * blocks + 4 * b, true) + 0).toBe(start[0]! + 0)
          expect(view.getInt16(3 * n + 8 * blocks + 4 * b + 2, true) + 0).toBe(start[1]! + 0)
        }
      }
    }),
    { numRuns: 60 },
  )
})

test('matMulQ: within float32 rounding of the float64 product of what was quantized; the same bits in every set and division', () => {
  fc.assert(
    fc.property(shapes(PANEL_NAMES), (s) => {
      const c = place(s)
      const stride = sets.scalar.quantizedStride(s.cols, s.block)
      const xq = sets.alloc(s.tokens * stride)
      sets.scalar.quantize(c.xAt, c.xStride, s.cols, s.block, s.tokens, xq)
      const run = (k: Kernels, tokens: number, from: number) =>
        asFloats(
          sets.result(tokens * c.yStride * 4, (y) => {
            sets.floats(y, tokens * c.yStride).fill(0.75)
            k.matMulQ(c.m, xq + from * stride, y, c.yStride, tokens, s.accumulate, s.alpha)
          }),
        )
      const scalar = run(sets.scalar, s.tokens, 0)
      for (const k of sets.all) {
        expectSame(run(k, s.tokens, 0), scalar)
        for (let t = 0; t < s.tokens; t++) expectSame(run(k, 1, t), scalar.subarray(t * c.yStride, (t + 1) * c.yStride))
      }
      const blocks = Math.ceil(s.cols / s.block)
      const alpha = Math.fround(s.alpha)
      for (let t = 0; t < s.tokens; t++) {
        const view = new DataView(sets.memory.buffer, xq + t * stride, stride)
        for (let r = 0; r < s.rows; r++) {
          let sum = 0
          let magnitude = 0
          for (let i = 0; i < s.cols; i++) {
            const scale = view.getFloat32(3 * blocks * s.block + 4 * Math.floor(i / s.block), true)
            const term = c.w.values[r * s.cols + i]! * view.getInt8(i) * scale
            sum += term
            magnitude += c.w.magnitudes[r * s.cols + i]! * Math.abs(view.getInt8(i) * scale)
          }
          // nf4's codebook is rounded to 1/32767 for integer dot products.
          const budget = s.name === 'nf4' ? 1e-3 : 3e-6
          const expected = (s.accumulate ? 0.75 : 0) + alpha * sum
          expect(Math.abs(scalar[t * c.yStride + r]! - expected)).toBeLessThanOrEqual(
            budget * (Math.abs(alpha) * magnitude + 0.75),
          )
        }
      }
    }),
    { numRuns: 250 },
  )
})

test('codes and activations of full size do not saturate, alone and with other tokens', () => {
  for (const name of ['int8', 'int4', 'int4m', 'nf4'] as const)
    for (const block of [32, 64] as const)
      for (const code of [0x80, 0x7f, 0xff, 0x00]) {
        sets.reset()
        const w = randomMatrix(seeded(1), name, 16, 64, { block, scaleF32: 1 })
        const bytes = w.bytes.length / (64 / block)
        const codeBytes = (name === 'int8' ? 16 : 8) * block
        for (let at = 0; at < w.bytes.length; at += bytes) w.bytes.fill(code, at, at + codeBytes)
        const m = { ...w.block, address: sets.put(w.bytes) }
        const x = new Float32Array(2 * 64)
        for (let i = 0; i < 64; i++) [x[i], x[64 + i]] = [127, -127]
        const xAt = sets.put(x)
        const xq = sets.alloc(2 * sets.scalar.quantizedStride(64, block))
        sets.scalar.quantize(xAt, 64, 64, block, 2, xq)
        const run = (k: Kernels) => sets.result(128, (y) => k.matMulQ(m, xq, y, 16, 2, 0, 1))
        const exact = asFloats(sets.result(128, (y) => sets.scalar.matMul(m, xAt, 64, y, 16, 2, 0, 1)))
        const fast = run(sets.scalar)
        asFloats(fast).forEach((v, i) => {
          expect(Math.abs(v - exact[i]!)).toBeLessThanOrEqual(1e-3 * Math.abs(exact[i]!) + 1e-6)
        })
        for (const k of sets.all) {
          expect(run(k)).toEqual(fast)
          expect(sets.result(64, (y) => k.matMulQ(m, xq, y, 16, 1, 0, 1))).toEqual(fast.subarray(0, 64))
        }
      }
})

test('many tokens together have the bits of each alone', () => {
  for (const name of PANEL_NAMES)
    for (const [block, cols] of [
      [32, 300],
      [64, 333],
    ] as const) {
      sets.reset()
      const tokens = 67
      const w = randomMatrix(seeded(7), name, 21, cols, { block })
      const m = { ...w.block, address: sets.put(w.bytes) }
      const random = seeded(8)
      const x = new Float32Array(tokens * 384)
      for (let i = 0; i < x.length; i++) x[i] = i % 384 < cols ? random() * 2 - 1 : 0
      const xAt = sets.put(x)
      const stride = sets.scalar.quantizedStride(cols, block)
      const xq = sets.alloc(tokens * stride)
      sets.scalar.quantize(xAt, 384, cols, block, tokens, xq)
      const run = (k: Kernels, from: number, count: number) =>
        asFloats(sets.result(count * 21 * 4, (y) => k.matMulQ(m, xq + from * stride, y, 21, count, 0, 1)))
      const expected = run(sets.scalar, 0, tokens)
      for (const k of sets.all) {
        expectSame(run(k, 0, tokens), expected)
        for (const [from, count] of [
          [66, 1],
          [31, 2],
          [30, 33],
          [1, 3],
        ] as const)
          expectSame(run(k, from, count), expected.subarray(from * 21, (from + count) * 21))
      }
    }
})

test('infinities and NaN in weights, scales and activations show in the result', () => {
  sets.reset()
  const spoil = (name: ComputeName, at: number, value: number[]) => {
    const w = randomMatrix(seeded(2), name, 16, 32)
    w.bytes.set(value, at)
    const m = { ...w.block, address: sets.put(w.bytes) }
    const xAt = sets.put(new Float32Array(64).fill(0.5, 0, 32))
    const xq = sets.alloc(sets.scalar.quantizedStride(32, 32))
    sets.scalar.quantize(xAt, 64, 32, 32, 1, xq)
    for (const k of sets.all) {
      expect(asFloats(sets.result(64, (y) => k.matMul(m, xAt, 64, y, 16, 1, 0, 1)))[0], `${name} ${k.set}`).toSatisfy(
        (v) => !Number.isFinite(v),
      )
      if (COMPUTE[name] >= COMPUTE.int8)
        expect(Number.isFinite(asFloats(sets.result(64, (y) => k.matMulQ(m, xq, y, 16, 1, 0, 1)))[0])).toBe(false)
      expect(asFloats(sets.result(16 * 32 * 4, (out) => k.decode(m, out, 32))).some((v) => !Number.isFinite(v))).toBe(
        true,
      )
    }
  }
  spoil('f16', 0, [0x00, 0x7c])
  spoil('f16', 0, [0x01, 0xfc])
  spoil('bf16', 0, [0xc0, 0x7f])
  spoil('int8', 512, [0x00, 0x7c])
  spoil('int4', 256, [0x00, 0xfe])
  spoil('fp8_e4m3', 0, [0x7f])
  spoil('fp8_e4m3', 0, [0xff])
  spoil('fp8_e5m2', 0, [0x7c])
  const w = randomMatrix(seeded(3), 'int4', 16, 32)
  const m = { ...w.block, address: sets.put(w.bytes) }
  for (const value of [Infinity, -Infinity, NaN]) {
    const x = new Float32Array(64).fill(0.5, 0, 32)
    x[7] = value
    const xAt = sets.put(x)
    const xq = sets.alloc(sets.scalar.quantizedStride(32, 32))
    for (const k of sets.all) {
      k.quantize(xAt, 64, 32, 32, 1, xq)
      const y = asFloats(sets.result(64, (out) => k.matMulQ(m, xq, out, 16, 1, 0, 1)))
      expect(y.every((v) => !Number.isFinite(v))).toBe(true)
    }
  }
})

test('addresses past 2^31', () => {
  const start = 2 ** 31 + 2 ** 28
  const far = new Sets(2 ** 20, start)
  const w = randomMatrix(seeded(4), 'int4', 33, 100)
  const x = activations(seeded(5), 5, 100, 128)
  const m = { ...w.block, address: far.put(w.bytes, 1) }
  const xAt = far.put(x)
  const run = (k: Kernels) => far.result(5 * 33 * 4, (y) => k.matMul(m, xAt, 128, y, 33, 5, 0, 1))
  const scalar = run(far.scalar)
  let sum = 0
  for (let i = 0; i < 100; i++) sum += w.values[32 * 100 + i]! * x[4 * 128 + i]!
  expect(asFloats(scalar)[4 * 33 + 32]).toBeCloseTo(sum, 3)
  expect(run(far.baseline)).toEqual(scalar)
})

test('what no kernel can read is refused', () => {
  const m: MatrixBlock = {
    encoding: COMPUTE.int4,
    address: 2 ** 20,
    rows: 1,
    cols: 1,
    block: 48,
    scaleF32: 0,
    multiplier: 1,
  }
  for (const k of sets.all) {
    expect(() => k.decode(m, 2 ** 20, 1)).toThrow(/block.*32 or 64/)
    expect(() => k.matMul({ ...m, encoding: 9 as 8 }, 0, 0, 0, 0, 1, 0, 1)).toThrow(/encoding/)
    expect(() => k.matMulQ({ ...m, encoding: COMPUTE.f32 }, 0, 0, 0, 1, 0, 1)).toThrow(/panel/)
    expect(() => k.repackQ4_0(2 ** 20, 2 ** 21, 1, 33)).toThrow(/multiple of 32/)
  }
})
