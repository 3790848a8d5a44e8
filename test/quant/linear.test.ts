// The standard's linear quantization, and the error report.
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { QuantErrorMeter } from '#sluice/quant/error.js'
import { dequantizeLinear, quantizeLinear } from '#sluice/quant/linear.js'

const range = expect.objectContaining({ code: 'QUANT_RANGE' })
const invalid = expect.objectContaining({ code: 'FORMAT_INVALID' })

describe('linear', () => {
  test('the example of ONNX QuantizeLinear (axis 1, uint8)', () => {
    // onnx/backend/test/case/node/quantizelinear.py, "axis".
    const x = Float32Array.of(-162, 10, -100, 232, -20, -50, -76, 0, 0, 252, 32, -44, 245, -485, -960, -270, -375, -470)
    const y = [3, 89, 34, 200, 74, 59, 5, 24, 24, 87, 32, 13, 245, 99, 4, 142, 121, 102]
    const params = { scheme: 'linear', scales: [2, 4, 5], zeroPoints: [84, 24, 196], axis: 1 } as const
    const q = new Uint8Array(18)
    quantizeLinear(x, [1, 3, 3, 2], params, 'uint8', q)
    expect([...q]).toEqual(y)
  })

  test('rounds halves to even', () => {
    const q = new Int8Array(6)
    const x = Float32Array.of(0.5, 1.5, 2.5, -0.5, -1.5, -2.5)
    quantizeLinear(x, [6], { scheme: 'linear', scales: [1], zeroPoints: [0] }, 'int8', q)
    expect([...q]).toEqual([0, 2, 2, 0, -2, -2])
  })

  test('codes come back, per tensor and per channel of any axis', () => {
    fc.assert(
      fc.property(
        fc.array(fc.integer({ min: 1, max: 5 }), { minLength: 1, maxLength: 4 }),
        fc.option(fc.nat(3)),
        fc.array(fc.float({ noNaN: true, min: Math.fround(1e-4), max: 8 }), { minLength: 5, maxLength: 5 }),
        fc.array(fc.integer({ min: -128, max: 127 }), { minLength: 5, maxLength: 5 }),
        fc.nat(),
        (shape, axisChoice, scales, zeroPoints, seed) => {
          const axis = axisChoice === null ? undefined : axisChoice % shape.length
          const channels = axis === undefined ? 1 : shape[axis]!
          const params = {
            scheme: 'linear' as const,
            scales: scales.slice(0, channels),
            zeroPoints: zeroPoints.slice(0, channels),
            ...(axis === undefined ? {} : { axis }),
          }
          const count = shape.reduce((a, b) => a * b, 1)
          const codes = Int8Array.from({ length: count }, (_, i) => (seed * 31 + i * 97) % 256)
          const values = new Float32Array(count)
          dequantizeLinear(codes, shape, params, values)
          const inner = axis === undefined ? count : shape.slice(axis + 1).reduce((a, b) => a * b, 1)
          for (let i = 0; i < count; i++) {
            const c = Math.floor(i / inner) % channels
            expect(values[i]).toBe(Math.fround((codes[i]! - params.zeroPoints[c]!) * params.scales[c]!))
          }
          const again = new Int8Array(count)
          quantizeLinear(values, shape, params, 'int8', again)
          expect(again).toEqual(codes)
        },
      ),
      { numRuns: 200 },
    )
  })

  test('out of range is refused, or clipped when asked; NaN always refused', () => {
    const params = { scheme: 'linear', scales: [0.5], zeroPoints: [0] } as const
    const q = new Int8Array(2)
    expect(() => quantizeLinear(Float32Array.of(1, 100), [2], params, 'int4', q)).toThrow(range)
    quantizeLinear(Float32Array.of(-100, 100), [2], params, 'int4', q, true)
    expect([...q]).toEqual([-8, 7])
    for (const bad of [Number.NaN, Number.POSITIVE_INFINITY])
      expect(() => quantizeLinear(Float32Array.of(1, bad), [2], params, 'int8', q, true)).toThrow(range)
  })

  test('parameters that do not fit are refused', () => {
    const out = new Float32Array(6)
    const codes = new Int8Array(6)
    const run = (params: object, shape = [2, 3]) => dequantizeLinear(codes, shape, params as never, out)
    expect(() => run({ scheme: 'linear', scales: [1, 2], zeroPoints: [0, 0] })).toThrow(invalid)
    expect(() => run({ scheme: 'linear', scales: [1, 2], zeroPoints: [0, 0], axis: 1 })).toThrow(invalid)
    expect(() => run({ scheme: 'linear', scales: [1, 2], zeroPoints: [0], axis: 0 })).toThrow(invalid)
    expect(() => run({ scheme: 'linear', scales: [1], zeroPoints: [0], axis: 2 })).toThrow(invalid)
    expect(() => run({ scheme: 'linear', scales: [0], zeroPoints: [0] })).toThrow(invalid)
    expect(() => run({ scheme: 'linear', scales: [Number.NaN], zeroPoints: [0] })).toThrow(invalid)
    expect(() => run({ scheme: 'linear', scales: [1], zeroPoints: [0.5] })).toThrow(invalid)
    expect(() => run({ scheme: 'linear', scales: [1], zeroPoints: [0] }, [3, 3])).toThrow(invalid)
    expect(() => run({ scheme: 'cubic', scales: [1], zeroPoints: [0] })).toThrow(
      expect.objectContaining({ code: 'QUANT_UNSUPPORTED' }),
    )
    expect(() => run({ scheme: 'logarithmic', scales: [1], zeroPoints: [0] })).toThrow(
      expect.objectContaining({ code: 'NOT_IMPLEMENTED' }),
    )
  })
})

describe('error report', () => {
  test('is that of the whole tensor, however it is cut', () => {
    fc.assert(
      fc.property(
        fc.array(fc.tuple(fc.float({ noNaN: true, min: -9, max: 9 }), fc.float({ noNaN: true, min: -1, max: 1 })), {
          minLength: 1,
        }),
        fc.integer({ min: 1, max: 7 }),
        (pairs, step) => {
          const x = Float32Array.from(pairs, ([a]) => a)
          const y = Float32Array.from(pairs, ([a, d]) => a + d)
          const meter = new QuantErrorMeter()
          for (let i = 0; i < x.length; i += step) meter.push(x.subarray(i, i + step), y.subarray(i, i + step))
          const r = meter.result()
          const errors = [...x].map((a, i) => Math.abs(y[i]! - a))
          const mean = errors.reduce((s, d) => s + d * d, 0) / x.length
          expect(r.count).toBe(x.length)
          expect(r.rmse).toBeCloseTo(Math.sqrt(mean), 9)
          expect(r.maxAbs).toBe(Math.max(...errors))
          if (r.maxAbs > 0) expect(errors[r.maxAt]).toBe(r.maxAbs)
          else expect(r.maxAt).toBe(-1)
          const power = [...x].reduce((s, a) => s + a * a, 0) / x.length
          if (power > 1e-12) expect(r.relativeRmse).toBeCloseTo(Math.sqrt(mean / power), 9)
        },
      ),
    )
  })

  test('edges', () => {
    expect(new QuantErrorMeter().result()).toEqual({ count: 0, rmse: 0, relativeRmse: 0, maxAbs: 0, maxAt: -1 })
    const nan = new QuantErrorMeter()
    nan.push(Float32Array.of(1, 2), Float32Array.of(1, Number.NaN))
    expect(nan.result()).toMatchObject({ rmse: Number.NaN, maxAbs: Number.NaN })
    const lost = new QuantErrorMeter()
    lost.push(Float32Array.of(0), Float32Array.of(1))
    expect(lost.result().relativeRmse).toBe(Number.POSITIVE_INFINITY)
    expect(() => lost.push(new Float32Array(1), new Float32Array(2))).toThrow(/different length/)
  })
})
