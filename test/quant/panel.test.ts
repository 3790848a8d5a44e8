// Row panels: layout against an element-by-element reading, error bounds, round trips, tails, refusals.
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { codecOf, encodedBytes } from '#sluice/quant/codec.js'
import { decodePanelRow, panelCodec, panelOfRow } from '#sluice/quant/panel.js'
import { panelBlockBytes } from '#sluice/quant/panel-layout.js'
import { absMaxOf, choosePanelExponent } from '#sluice/quant/panel-scale.js'
import type { PanelEncoding } from '#sluice/quant/scheme.js'
import { panelValue, SCHEMES } from './panel-reference.ts'

const ENCODINGS = SCHEMES.flatMap((scheme) =>
  ([32, 64] as const).flatMap((block) =>
    (['f16', 'f32'] as const).map((scale): PanelEncoding => ({ kind: 'panel', scheme, block, scale, exponent: 0 })),
  ),
)
const NAMED = ENCODINGS.map((enc) => [`${enc.scheme} ${enc.block} ${enc.scale}`, enc] as const)

/** Weights of a matrix: normal-looking, uniform over magnitudes (2^20 apart), constant, one huge value, zeros; block by block mixed. */
const matrix = fc
  .record({
    rows: fc.integer({ min: 1, max: 35 }),
    cols: fc.integer({ min: 1, max: 150 }),
    seed: fc.nat(),
    magnitude: fc.integer({ min: -60, max: 60 }),
    kinds: fc.array(fc.constantFrom('normal', 'wide', 'constant', 'spike', 'zero', 'positive'), {
      minLength: 1,
      maxLength: 5,
    }),
  })
  .map(({ rows, cols, seed, magnitude, kinds }) => {
    let state = seed
    const random = () => {
      state = (Math.imul(state, 1664525) + 1013904223) >>> 0
      return state / 2 ** 32
    }
    const values = new Float32Array(rows * cols)
    for (let i = 0; i < values.length; i++) {
      const kind = kinds[Math.floor(i / 37) % kinds.length]
      const normal = random() + random() + random() + random() - 2
      const x =
        kind === 'normal'
          ? normal
          : kind === 'positive'
            ? 1 + random()
            : kind === 'wide'
              ? normal * 2 ** -Math.floor(random() * 20)
              : kind === 'constant'
                ? 0.7
                : kind === 'spike' && i % 37 === 5
                  ? 64
                  : kind === 'spike'
                    ? normal / 64
                    : 0
      values[i] = x * 2 ** magnitude
    }
    return { rows, cols, values }
  })

function withExponent(enc: PanelEncoding, values: Float32Array): PanelEncoding {
  return { ...enc, exponent: choosePanelExponent(enc.scheme, enc.scale, absMaxOf(values)) }
}

function encode(enc: PanelEncoding, m: { rows: number; cols: number; values: Float32Array }): Uint8Array {
  const bytes = new Uint8Array(encodedBytes(enc, m.rows, m.cols)).fill(0xa5)
  codecOf(enc).encode!(m.values, m.rows, m.cols, bytes)
  return bytes
}

function decode(enc: PanelEncoding, bytes: Uint8Array, rows: number, cols: number): Float32Array {
  const out = new Float32Array(rows * cols)
  codecOf(enc).decode(bytes, rows, cols, out)
  return out
}

/** Largest error allowed for x in a block of the given extremes: what the encoders document. */
function bound(enc: PanelEncoding, x: number, min: number, max: number, tail: boolean): number {
  const abs = Math.max(-min, max)
  // A stored scale is off by 2^-11 (float16) and values by a float32 rounding.
  const slack = abs * 2 ** -10
  switch (enc.scheme) {
    case 'int8':
      return (abs / 127) * 0.5 + slack
    case 'int4':
      // The signed candidate may clip values of the other sign by a whole step; it only wins when the block gains by it.
      return abs / 8 + slack
    case 'int4m': {
      // Lowest squared error: no value is farther off than all of them together would be by scale/2.
      if (tail) return ((Math.max(max, 0) - Math.min(min, 0)) / 28) * 1.02 * Math.sqrt(enc.block) + slack
      return (max - min + abs * 2 ** -10) / 30 + slack
    }
    case 'nf4':
      return abs * 0.152 + slack
    case 'fp8_e4m3':
      return Math.max(Math.abs(x) * 2 ** -4, (abs / 448) * 2 ** -10) + slack
    case 'fp8_e5m2':
      return Math.max(Math.abs(x) * 2 ** -3, (abs / 57344) * 2 ** -17) + slack
  }
}

test('block sizes', () => {
  const size = (scheme: PanelEncoding['scheme'], block: 32 | 64, scale: 'f16' | 'f32') =>
    panelBlockBytes({ kind: 'panel', scheme, block, scale, exponent: 0 })
  expect(size('int4', 32, 'f16')).toBe(288)
  expect(size('nf4', 64, 'f32')).toBe(512 + 64)
  expect(size('int4m', 32, 'f16')).toBe(256 + 64)
  expect(size('int8', 32, 'f16')).toBe(512 + 32)
  expect(size('fp8_e4m3', 64, 'f32')).toBe(1024 + 64)
  const enc: PanelEncoding = { kind: 'panel', scheme: 'int4', block: 32, scale: 'f16', exponent: 0 }
  expect(encodedBytes(enc, 17, 33)).toBe(2 * 2 * 288)
  expect(encodedBytes(enc, 0, 33)).toBe(0)
  expect(encodedBytes(enc, 2 ** 31, 2 ** 14)).toBe(2 ** 27 * 2 ** 9 * 288)
  expect(() => encodedBytes(enc, 2 ** 40, 2 ** 20)).toThrow(expect.objectContaining({ code: 'FORMAT_INVALID' }))
})

describe.each(NAMED)('%s', (_, enc) => {
  test('any bytes decode to what the layout says, whole or row by row', () => {
    fc.assert(
      fc.property(
        fc.integer({ min: 1, max: 35 }),
        fc.integer({ min: 1, max: 150 }),
        fc.integer({ min: -20, max: 20 }),
        fc.nat(),
        (rows, cols, exponent, seed) => {
          const e = { ...enc, exponent }
          let state = seed
          const bytes = Uint8Array.from({ length: encodedBytes(e, rows, cols) }, () => {
            state = (Math.imul(state, 1664525) + 1013904223) >>> 0
            return state >>> 24
          })
          const out = decode(e, bytes, rows, cols)
          const line = new Float32Array(cols + 3)
          for (let r = 0; r < rows; r++) {
            const { offset, length, lane } = panelOfRow(e, cols, r)
            decodePanelRow(e, bytes.subarray(offset, offset + length), lane, cols, line, 2)
            for (let c = 0; c < cols; c++) {
              const expected = panelValue(e, bytes, cols, r, c)
              if (!Object.is(out[r * cols + c], expected)) expect([r, c, out[r * cols + c]]).toEqual([r, c, expected])
              if (!Object.is(line[c + 2], expected)) expect([r, c, line[c + 2]]).toEqual([r, c, expected])
            }
          }
        },
      ),
      { numRuns: 15 },
    )
  })

  test('values stay within the stated error, and a second trip changes nothing', () => {
    fc.assert(
      fc.property(matrix, (m) => {
        const e = withExponent(enc, m.values)
        const bytes = encode(e, m)
        const out = decode(e, bytes, m.rows, m.cols)
        for (let r = 0; r < m.rows; r++)
          for (let c = 0; c < m.cols; c += e.block) {
            const end = Math.min(c + e.block, m.cols)
            const block = m.values.subarray(r * m.cols + c, r * m.cols + end)
            const [min, max] = [Math.min(...block), Math.max(...block)]
            for (let i = 0; i < block.length; i++) {
              const error = Math.abs(out[r * m.cols + c + i]! - block[i]!)
              const limit = bound(e, block[i]!, min, max, end - c < e.block)
              if (!(error <= limit)) expect({ r, c: c + i, x: block[i], error, min, max }).toEqual({ limit })
            }
          }
        const again = encode(e, { ...m, values: out })
        // By number: among equal codes the sign of a zero is the sign of its scale.
        const twice = decode(e, again, m.rows, m.cols)
        expect(twice.findIndex((x, i) => x !== out[i])).toBe(-1)
        // Bytes too, once they come from the encoder's own choice among equals.
        expect(Buffer.compare(encode(e, { ...m, values: twice }), again)).toBe(0)
      }),
      { numRuns: 25 },
    )
  })

  test('missing rows and columns decode to 0', () => {
    fc.assert(
      fc.property(matrix, (m) => {
        const e = withExponent(enc, m.values)
        const bytes = encode(e, m)
        const cols = Math.ceil(m.cols / e.block) * e.block
        const rows = Math.ceil(m.rows / 16) * 16
        const padded = decode(e, bytes, rows, cols)
        for (let r = 0; r < rows; r++)
          for (let c = 0; c < cols; c++)
            if ((r >= m.rows || c >= m.cols) && padded[r * cols + c] !== 0) expect([r, c, padded[r * cols + c]]).toBe(0)
      }),
      { numRuns: 20 },
    )
  })

  test('panels encoded one at a time are the same bytes, whatever lay in the target', () => {
    fc.assert(
      fc.property(matrix, (m) => {
        const e = withExponent(enc, m.values)
        const whole = encode(e, m)
        const parts = new Uint8Array(whole.length)
        const panel = panelOfRow(e, m.cols, 0).length
        for (let r = 0; r < m.rows; r += 16) {
          const rows = Math.min(16, m.rows - r)
          const at = (r / 16) * panel
          const values = m.values.subarray(r * m.cols, (r + rows) * m.cols)
          codecOf(e).encode!(values, rows, m.cols, parts.subarray(at, at + panel))
        }
        expect(Buffer.compare(parts, whole)).toBe(0)
      }),
      { numRuns: 10 },
    )
  })

  test('zeros have scale 0; float32 extremes and denormals survive', () => {
    const zeros = encode(enc, { rows: 3, cols: 40, values: new Float32Array(120) })
    expect(decode(enc, zeros, 3, 40).every((x) => x === 0)).toBe(true)
    for (const huge of [3.4e38, -3.4e38, 1e-38, 1e-41, 2 ** -149]) {
      const values = new Float32Array(64)
      values[3] = huge
      const e = withExponent(enc, values)
      const out = decode(e, encode(e, { rows: 1, cols: 64, values }), 1, 64)
      expect(Math.abs(out[3]! - Math.fround(huge))).toBeLessThanOrEqual(Math.abs(huge) * 0.08 + 2 ** -133)
      out[3] = 0
      expect(out.every((x) => Math.abs(x) <= Math.abs(huge) * 2 ** -10)).toBe(true)
    }
  })

  test('NaN and infinities are refused by row and column', () => {
    fc.assert(
      fc.property(
        fc.nat(34),
        fc.nat(99),
        fc.constantFrom(Number.NaN, Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY),
        (row, column, bad) => {
          const values = new Float32Array(35 * 100).fill(0.25)
          values[row * 100 + column] = bad
          expect(() => encode(enc, { rows: 35, cols: 100, values })).toThrow(
            expect.objectContaining({ code: 'QUANT_RANGE', details: expect.objectContaining({ row, column }) }),
          )
        },
      ),
      { numRuns: 20 },
    )
  })

  test('buffers that are too short are refused', () => {
    const codec = panelCodec(enc)
    const bytes = new Uint8Array(codec.byteLength(17, 33))
    const invalid = expect.objectContaining({ code: 'FORMAT_INVALID' })
    expect(() => codec.decode(bytes.subarray(1), 17, 33, new Float32Array(17 * 33))).toThrow(invalid)
    expect(() => codec.decode(bytes, 33, 33, new Float32Array(33 * 33))).toThrow(invalid)
    expect(() => codec.decode(bytes, 17, 33, new Float32Array(17 * 33 - 1))).toThrow(/too small/)
    expect(() => codec.encode!(new Float32Array(17 * 33), 17, 33, bytes.subarray(1))).toThrow(invalid)
    expect(() => decodePanelRow(enc, bytes, 16, 33, new Float32Array(33))).toThrow(/no such row/)
  })
})

test('a scale that does not fit float16 is refused, with the remedy', () => {
  const values = new Float32Array(32).fill(1e9)
  for (const scheme of ['int8', 'int4', 'int4m', 'nf4', 'fp8_e4m3'] as const) {
    const enc: PanelEncoding = { kind: 'panel', scheme, block: 32, scale: 'f16', exponent: 0 }
    expect(() => encode(enc, { rows: 1, cols: 32, values })).toThrow(/exponent/)
    const fits = withExponent(enc, values)
    expect(fits.exponent).toBeGreaterThan(0)
    expect(decode(fits, encode(fits, { rows: 1, cols: 32, values }), 1, 32)[0]! / 1e9).toBeCloseTo(1, 2)
  }
})

test('int4m minima are never above the smallest value', () => {
  fc.assert(
    fc.property(fc.float({ noNaN: true, min: -100, max: 100 }), (offset) => {
      const values = Float32Array.from({ length: 32 }, (_, i) => offset + ((i * 7) % 32) / 32)
      const enc = withExponent({ kind: 'panel', scheme: 'int4m', block: 32, scale: 'f16', exponent: 0 }, values)
      const bytes = encode(enc, { rows: 1, cols: 32, values })
      const lowest = bytes.slice()
      lowest.fill(0, 0, 256)
      const minimum = decode(enc, lowest, 1, 32)[0]!
      expect(minimum).toBeLessThanOrEqual(Math.min(...values))
      expect(minimum).toBeGreaterThan(Math.min(...values) - 2 ** -10 * Math.abs(offset) - 2 ** -23)
    }),
  )
})

test('the exponent keeps scales of ordinary weights normal', () => {
  // int8 scales of weights near 0.002 are 1.6e-5: denormal in float16, two thousandths wrong.
  const values = Float32Array.from({ length: 32 }, (_, i) => (i - 16) * 1.27e-4)
  const enc: PanelEncoding = { kind: 'panel', scheme: 'int8', block: 32, scale: 'f16', exponent: 0 }
  const error = (e: PanelEncoding) => {
    const out = decode(e, encode(e, { rows: 1, cols: 32, values }), 1, 32)
    return Math.max(...out.map((x, i) => Math.abs(x - values[i]!)))
  }
  const chosen = withExponent(enc, values)
  const scaleBits = encode(chosen, { rows: 1, cols: 32, values }).subarray(512, 514)
  expect(scaleBits[1]! & 0x7c).not.toBe(0)
  expect(error(chosen)).toBeLessThanOrEqual(error(enc))
})

test('int4 is never worse than ggml Q4_0 and often better', () => {
  let better = 0
  const q4 = codecOf({ kind: 'ggml', type: 'Q4_0' })
  fc.assert(
    fc.property(fc.array(fc.float({ noNaN: true, min: -1, max: 1 }), { minLength: 32, maxLength: 32 }), (list) => {
      const values = Float32Array.from(list)
      const squared = (out: Float32Array) => out.reduce((sum, x, i) => sum + (x - values[i]!) ** 2, 0)
      const bytes = new Uint8Array(18)
      q4.encode!(values, 1, 32, bytes)
      const theirs = new Float32Array(32)
      q4.decode(bytes, 1, 32, theirs)
      const enc = withExponent({ kind: 'panel', scheme: 'int4', block: 32, scale: 'f16', exponent: 0 }, values)
      const ours = squared(decode(enc, encode(enc, { rows: 1, cols: 32, values }), 1, 32))
      if (ours < squared(theirs) * 0.999) better++
      expect(ours).toBeLessThanOrEqual(squared(theirs) * 1.0001 + 1e-12)
    }),
    { numRuns: 300 },
  )
  expect(better).toBeGreaterThan(20)
})
