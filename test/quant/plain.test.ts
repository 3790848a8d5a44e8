// Plain dtypes, against tables made elsewhere, DataView and BigInt arithmetic.

import { readFileSync } from 'node:fs'
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { bfloat16ToFloat, floatToBfloat16 } from '#sluice/quant/bfloat16.js'
import { codecOf, encodedBytes } from '#sluice/quant/codec.js'
import { E4M3, E5M2, encodeFp8 } from '#sluice/quant/fp8.js'
import { floatToHalf, halfTable, halfToFloat } from '#sluice/quant/half.js'
import { NF4 } from '#sluice/quant/nf4.js'
import { DYNAMIC_MAP } from '#sluice/quant/nf4-double.js'
import { data, dataTest } from '../data.ts'

const quantRange = expect.objectContaining({ code: 'QUANT_RANGE' })
const float32Bits = (x: number) => new Uint32Array(Float32Array.of(x).buffer)[0]!
const floatOf = (bits: number) => new Float32Array(Uint32Array.of(bits).buffer)[0]!
const anyBits = fc.integer({ min: 0, max: 0xffffffff })

/** Independent rounding to nearest even: among neighbouring codes of an ascending table, the nearer one, else the even one. */
function nearestCode(values: ArrayLike<number>, finiteCodes: number, x: number): number {
  const a = Math.abs(x)
  let low = 0
  let high = finiteCodes - 1
  if (a >= values[high]!) return high
  while (high - low > 1) {
    const mid = (low + high) >> 1
    if (values[mid]! <= a) low = mid
    else high = mid
  }
  const below = a - values[low]!
  const above = values[high]! - a
  if (below === above) return low % 2 === 0 ? low : high
  return below < above ? low : high
}

describe('float16', () => {
  // Appendix examples of the binary16 article and IEEE 754 limits.
  const KNOWN: [number, number][] = [
    [0x0000, 0],
    [0x0001, 2 ** -24],
    [0x03ff, 2 ** -14 * (1023 / 1024)],
    [0x0400, 2 ** -14],
    [0x3555, 0.333251953125],
    [0x3bff, 0.99951171875],
    [0x3c00, 1],
    [0x3c01, 1.0009765625],
    [0x7bff, 65504],
    [0xc000, -2],
    [0x7c00, Number.POSITIVE_INFINITY],
    [0xfc00, Number.NEGATIVE_INFINITY],
  ]
  test.each(KNOWN)('%i is %f', (code, value) => {
    expect(halfToFloat(code)).toBe(value)
    expect(floatToHalf(value)).toBe(code)
  })

  test('every code comes back, single and in bulk; NaN stays NaN', () => {
    const all = new Uint16Array(65536).map((_, i) => i)
    const out = new Float32Array(65536)
    const codec = codecOf({ kind: 'plain', dtype: 'float16' })
    codec.decode(new Uint8Array(all.buffer), 256, 256, out)
    const back = new Uint16Array(65536)
    codec.encode!(out, 256, 256, new Uint8Array(back.buffer))
    for (let code = 0; code < 65536; code++) {
      const nan = (code & 0x7c00) === 0x7c00 && (code & 0x3ff) !== 0
      expect(Object.is(out[code], halfToFloat(code)) && Number.isNaN(out[code]) === nan).toBe(true)
      if (nan) expect(Number.isNaN(halfToFloat(back[code]!))).toBe(true)
      else expect(back[code]).toBe(code)
    }
  })

  test('rounds to the nearest code, ties to even', () => {
    const values = halfTable()
    const near = fc.tuple(fc.nat(0x7bff), fc.constantFrom(0.25, 0.5, 0.75)).map(([c, f]) => {
      const next = c === 0x7bff ? 65536 : values[c + 1]!
      return Math.fround(values[c]! + (next - values[c]!) * f)
    })
    fc.assert(
      fc.property(fc.oneof(near, fc.float({ noNaN: true, min: -65504, max: 65504 })), (x) => {
        const expected = Math.abs(x) >= 65520 ? 0x7c00 : nearestCode(values, 0x7c00, x)
        expect(floatToHalf(x) & 0x7fff).toBe(expected)
        expect(floatToHalf(-x) ^ 0x8000).toBe(floatToHalf(x))
      }),
      { numRuns: 3000 },
    )
    expect(floatToHalf(65519.996)).toBe(0x7bff)
    expect(floatToHalf(65520)).toBe(0x7c00)
    expect(floatToHalf(2 ** -25)).toBe(0)
    expect(floatToHalf(2 ** -25 * 1.0000001)).toBe(1)
  })
})

test('bfloat16 rounds to nearest even and keeps NaN', () => {
  fc.assert(
    fc.property(anyBits, (bits) => {
      const x = floatOf(bits)
      const code = floatToBfloat16(x)
      if (Number.isNaN(x)) {
        expect(Number.isNaN(bfloat16ToFloat(code))).toBe(true)
        return
      }
      const down = (bits & 0xffff0000) >>> 0
      const rest = bits & 0xffff
      const up = rest > 0x8000 || (rest === 0x8000 && (down & 0x10000) !== 0)
      expect(code).toBe((down >>> 16) + (up ? 1 : 0))
    }),
    { numRuns: 3000 },
  )
  for (let code = 0; code < 65536; code++) {
    const value = bfloat16ToFloat(code)
    if (!Number.isNaN(value)) expect(floatToBfloat16(value)).toBe(code)
  }
})

describe('FP8', () => {
  dataTest('code tables', () => {
    const tables = JSON.parse(readFileSync(data('quant', 'code-tables.json'), 'utf8'))
    // JSON has neither NaN (null) nor infinity ('inf').
    const shown = (t: Float32Array) =>
      [...t].map((x) => (Number.isNaN(x) ? null : Number.isFinite(x) ? x : x > 0 ? 'inf' : '-inf'))
    expect(shown(E4M3.values)).toEqual(tables.float8_e4m3fn)
    expect(shown(E5M2.values)).toEqual(tables.float8_e5m2)
    expect([...NF4]).toEqual(tables.nf4)
    expect([...DYNAMIC_MAP]).toEqual(tables.bnb_dynamic_8bit)
  })

  test.each([E4M3, E5M2])(
    '$name: every finite code comes back, values round to the nearest, ties to even',
    (format) => {
      for (let code = 0; code <= format.maxCode; code++) {
        expect(encodeFp8(format, format.values[code]!)).toBe(code)
        expect(encodeFp8(format, format.values[code | 0x80]!)).toBe(code | 0x80)
        if (code === format.maxCode) continue
        const middle = (format.values[code]! + format.values[code + 1]!) / 2
        expect(encodeFp8(format, middle)).toBe(code % 2 === 0 ? code : code + 1)
      }
      fc.assert(
        fc.property(fc.double({ noNaN: true, min: -1, max: 1 }), (u) => {
          const x = Math.fround(u * format.max)
          expect(encodeFp8(format, x) & 0x7f).toBe(nearestCode(format.values, format.maxCode + 1, x))
        }),
        { numRuns: 2000 },
      )
      for (const x of [Number.NaN, Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY, format.max * 1.1])
        expect(() => encodeFp8(format, x)).toThrow(quantRange)
    },
  )
})

describe('codecs', () => {
  const CASES = {
    float32: (v: DataView, p: number, le: boolean) => v.getFloat32(p, le),
    float64: (v: DataView, p: number, le: boolean) => Math.fround(v.getFloat64(p, le)),
    int8: (v: DataView, p: number) => v.getInt8(p),
    uint8: (v: DataView, p: number) => v.getUint8(p),
    int16: (v: DataView, p: number, le: boolean) => v.getInt16(p, le),
    uint16: (v: DataView, p: number, le: boolean) => v.getUint16(p, le),
    int32: (v: DataView, p: number, le: boolean) => Math.fround(v.getInt32(p, le)),
    uint32: (v: DataView, p: number, le: boolean) => Math.fround(v.getUint32(p, le)),
    int64: (v: DataView, p: number, le: boolean) => bigToFloat32(v.getBigInt64(p, le)),
    uint64: (v: DataView, p: number, le: boolean) => bigToFloat32(v.getBigUint64(p, le)),
    float16: (v: DataView, p: number, le: boolean) => halfToFloat(v.getUint16(p, le)),
    bfloat16: (v: DataView, p: number, le: boolean) => floatOf((v.getUint16(p, le) << 16) >>> 0),
    float8_e4m3: (v: DataView, p: number) => E4M3.values[v.getUint8(p)]!,
    float8_e5m2: (v: DataView, p: number) => E5M2.values[v.getUint8(p)]!,
  } as const

  /** Rounds an integer once to 24 bits, ties to even, in integer arithmetic. */
  function bigToFloat32(n: bigint): number {
    const a = n < 0n ? -n : n
    const drop = Math.max(0, a.toString(2).length - 24)
    const unit = 1n << BigInt(drop)
    let q = a / unit
    const twice = (a % unit) * 2n
    if (twice > unit || (twice === unit && q % 2n === 1n)) q++
    const x = Number(q) * 2 ** drop
    return n < 0n ? -x : x
  }

  test.each(Object.keys(CASES) as (keyof typeof CASES)[])('%s, both byte orders, any alignment', (dtype) => {
    fc.assert(
      fc.property(fc.boolean(), fc.nat(7), fc.uint8Array({ minLength: 96, maxLength: 96 }), (bigEndian, shift, raw) => {
        if (dtype === 'float64')
          for (let i = 0; i < 96; i++) if (i % 8 === (bigEndian ? 0 : 7)) raw[i] = (raw[i]! & 0x80) | 0x3f
        const codec = codecOf({ kind: 'plain', dtype, bigEndian })
        const size = codec.byteLength(1, 1)
        const padded = new Uint8Array(96 + 8)
        padded.set(raw, shift)
        const out = new Float32Array(96 / size)
        codec.decode(padded.subarray(shift, shift + 96), 2, out.length / 2, out)
        const view = new DataView(raw.buffer, raw.byteOffset)
        for (let i = 0; i < out.length; i++) expect(out[i]).toBe(CASES[dtype](view, i * size, !bigEndian))
      }),
      { numRuns: 60 },
    )
  })

  test('int64 next to a float32 tie rounds once', () => {
    const codec = codecOf({ kind: 'plain', dtype: 'int64' })
    const out = new Float32Array(1)
    for (const n of [
      2n ** 62n + 2n ** 38n + 1n,
      2n ** 62n + 2n ** 38n,
      -(2n ** 62n) - 2n ** 38n - 1n,
      -(2n ** 63n),
      2n ** 53n + 1n,
    ]) {
      codec.decode(new Uint8Array(BigInt64Array.of(n).buffer), 1, 1, out)
      expect(out[0]).toBe(bigToFloat32(n))
    }
  })

  test.each(['float32', 'float16', 'bfloat16'] as const)('%s encodes and decodes both byte orders', (dtype) => {
    const little = codecOf({ kind: 'plain', dtype })
    const big = codecOf({ kind: 'plain', dtype, bigEndian: true })
    const x = Float32Array.of(1, -2.5, 0, -0, 3e-7, 1234, Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY)
    const a = new Uint8Array(little.byteLength(2, 4))
    const b = new Uint8Array(a.length)
    little.encode!(x, 2, 4, a)
    big.encode!(x, 2, 4, b)
    const size = a.length / 8
    for (let i = 0; i < 8; i++)
      expect(b.slice(i * size, i * size + size).reverse()).toEqual(a.slice(i * size, i * size + size))
    const [p, q] = [new Float32Array(8), new Float32Array(8)]
    little.decode(a, 2, 4, p)
    big.decode(b, 2, 4, q)
    expect(p).toEqual(q)
    if (dtype === 'float32') expect(p).toEqual(x)
  })

  test('overflow is refused by position, never made infinite', () => {
    const x = new Float32Array(12)
    x[7] = 65520
    const half = codecOf({ kind: 'plain', dtype: 'float16' })
    expect(() => half.encode!(x, 3, 4, new Uint8Array(24))).toThrow(/row 1, column 3/)
    x[7] = 3.4028235e38
    expect(() => codecOf({ kind: 'plain', dtype: 'bfloat16' }).encode!(x, 3, 4, new Uint8Array(24))).toThrow(quantRange)
    const wide = new Uint8Array(Float64Array.of(1, 1e300).buffer)
    expect(() => codecOf({ kind: 'plain', dtype: 'float64' }).decode(wide, 1, 2, new Float32Array(2))).toThrow(
      /column 1/,
    )
    expect(() =>
      codecOf({ kind: 'plain', dtype: 'bool' }).decode(Uint8Array.of(0, 1, 2), 1, 3, new Float32Array(3)),
    ).toThrow(/column 2/)
  })

  test('sizes are exact or refused', () => {
    expect(encodedBytes({ kind: 'plain', dtype: 'complex64' }, 3, 5)).toBe(120)
    expect(encodedBytes({ kind: 'plain', dtype: 'float32' }, 2 ** 25, 2 ** 20)).toBe(2 ** 47)
    const invalid = expect.objectContaining({ code: 'FORMAT_INVALID' })
    expect(() => encodedBytes({ kind: 'plain', dtype: 'float32' }, 2 ** 40, 2 ** 12)).toThrow(invalid)
    expect(() => encodedBytes({ kind: 'plain', dtype: 'float32' }, -1, 2)).toThrow(invalid)
    expect(() => encodedBytes({ kind: 'plain', dtype: 'float32' }, 1.5, 2)).toThrow(invalid)
    expect(() =>
      codecOf({ kind: 'plain', dtype: 'float32' }).decode(new Uint8Array(7), 1, 2, new Float32Array(2)),
    ).toThrow(invalid)
  })

  test('what is not known is refused by name', () => {
    const unsupported = expect.objectContaining({ code: 'QUANT_UNSUPPORTED' })
    expect(() => codecOf({ kind: 'plain', dtype: 'complex64' })).toThrow(unsupported)
    for (const encoding of [
      { kind: 'plain', dtype: 'float4' },
      { kind: 'plain', dtype: '__proto__' },
      { kind: 'ggml', type: 'Q9_9' },
      { kind: 'ggml', type: 'constructor' },
      { kind: 'zip' },
      { kind: 'panel', scheme: 'int3', block: 32, scale: 'f16', exponent: 0 },
      { kind: 'panel', scheme: 'int8', block: 48, scale: 'f16', exponent: 0 },
      { kind: 'panel', scheme: 'int8', block: 32, scale: 'f8', exponent: 0 },
      { kind: 'panel', scheme: 'int8', block: 32, scale: 'f16', exponent: 0.5 },
      { kind: 'panel', scheme: 'int8', block: 32, scale: 'f16', exponent: 128 },
    ]) {
      expect(() => codecOf(encoding as never)).toThrow(unsupported)
      expect(() => encodedBytes(encoding as never, 16, 32)).toThrow(unsupported)
    }
  })

  test('float32 bits pass through unchanged', () => {
    fc.assert(
      fc.property(anyBits, (bits) => {
        const out = new Float32Array(1)
        codecOf({ kind: 'plain', dtype: 'float32' }).decode(new Uint8Array(Uint32Array.of(bits).buffer), 1, 1, out)
        expect(new Uint32Array(out.buffer)[0]).toBe(bits)
      }),
    )
    expect(float32Bits(1)).toBe(0x3f800000)
  })
})
