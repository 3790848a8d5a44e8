// Q8_0 and Q4_0: ggml's own bytes and values, big-endian files, re-laying into panels.
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { codecOf } from '#sluice/quant/codec.js'
import { ggmlCodec } from '#sluice/quant/ggml.js'
import { EXACT_FORM } from '#sluice/quant/ggml-form.js'
import { repackQ4_0ToPanel, repackQ8_0ToPanel } from '#sluice/quant/ggml-repack.js'
import { data, dataTest } from '../data.ts'
import { asFloats, readSafetensors } from './read-safetensors.ts'

const TYPES = ['Q8_0', 'Q4_0'] as const
const BLOCK_BYTES = { Q8_0: 34, Q4_0: 18 }
const bitsOf = (f: Float32Array) => new Uint32Array(f.buffer, f.byteOffset, f.length)

function swapScales(bytes: Uint8Array, blockBytes: number): Uint8Array {
  const swapped = bytes.slice()
  for (let p = 0; p < bytes.length; p += blockBytes) [swapped[p], swapped[p + 1]] = [bytes[p + 1]!, bytes[p]!]
  return swapped
}

function decode(type: (typeof TYPES)[number], bytes: Uint8Array, rows: number, cols: number, bigEndian = false) {
  const out = new Float32Array(rows * cols)
  codecOf({ kind: 'ggml', type, bigEndian }).decode(bytes, rows, cols, out)
  return out
}

describe.each(TYPES)('%s', (type) => {
  dataTest('decodes to the bits that ggml decodes to, and encodes to the bytes that ggml encodes to', () => {
    const tensors = readSafetensors(data('quant', 'ggml-blocks.safetensors'))
    const blocks = tensors.get(`${type}.blocks`)!.bytes
    const expected = asFloats(tensors.get(`${type}.f32`)!.bytes)
    expect(bitsOf(decode(type, blocks, 4, 512))).toEqual(bitsOf(expected))
    expect(bitsOf(decode(type, swapScales(blocks, BLOCK_BYTES[type]), 4, 512, true))).toEqual(bitsOf(expected))

    const source = asFloats(tensors.get('source')!.bytes)
    for (const bigEndian of [false, true]) {
      const codec = ggmlCodec(type, bigEndian)
      const encoded = new Uint8Array(codec.byteLength(4, 512))
      codec.encode!(source, 4, 512, encoded)
      expect(encoded).toEqual(bigEndian ? swapScales(blocks, BLOCK_BYTES[type]) : blocks)
    }
  })

  test('re-laid panels hold the same numbers, whatever the rows and whatever lay in the target', () => {
    fc.assert(
      fc.property(
        fc.integer({ min: 1, max: 35 }),
        fc.integer({ min: 1, max: 4 }),
        fc.boolean(),
        fc.infiniteStream(fc.nat(255)),
        (rows, blocks, bigEndian, stream) => {
          const cols = blocks * 32
          const bytes = Uint8Array.from({ length: rows * blocks * BLOCK_BYTES[type] }, () => stream.next().value!)
          const expected = decode(type, bytes, rows, cols, bigEndian)
          const codec = codecOf(EXACT_FORM[type])
          const panels = new Uint8Array(codec.byteLength(rows, cols)).fill(0xa5)
          const repack = type === 'Q4_0' ? repackQ4_0ToPanel : repackQ8_0ToPanel
          repack(bytes, rows, cols, panels, bigEndian)
          const clean = new Uint8Array(panels.length)
          repack(bytes, rows, cols, clean, bigEndian)
          expect(Buffer.compare(panels, clean)).toBe(0)
          const actual = new Float32Array(rows * cols)
          codec.decode(panels, rows, cols, actual)
          expect(actual).toEqual(expected)
          // The rows that fill up the last panel are zeros.
          const padded = new Float32Array(Math.ceil(rows / 16) * 16 * cols)
          codec.decode(panels, padded.length / cols, cols, padded)
          expect(padded.subarray(rows * cols).every((x) => x === 0)).toBe(true)
        },
      ),
      { numRuns: 60 },
    )
  })

  test('encoding decoded values again gives the same values', () => {
    const codec = ggmlCodec(type)
    fc.assert(
      fc.property(fc.array(fc.float({ noNaN: true, min: -4, max: 4 }), { minLength: 64, maxLength: 64 }), (values) => {
        const x = Float32Array.from(values, (v) => (Math.abs(v) < 1e-3 ? 0 : v))
        const bytes = new Uint8Array(codec.byteLength(2, 32))
        codec.encode!(x, 2, 32, bytes)
        const once = decode(type, bytes, 2, 32)
        codec.encode!(once, 2, 32, bytes)
        expect(decode(type, bytes, 2, 32)).toEqual(once)
      }),
      { numRuns: 200 },
    )
  })

  test('refuses what it cannot hold, naming row and column', () => {
    const codec = ggmlCodec(type)
    const out = new Uint8Array(codec.byteLength(3, 64))
    for (const bad of [Number.NaN, Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY]) {
      const x = new Float32Array(3 * 64).fill(1)
      x[2 * 64 + 37] = bad
      expect(() => codec.encode!(x, 3, 64, out)).toThrow(
        expect.objectContaining({ code: 'QUANT_RANGE', details: expect.objectContaining({ row: 2, column: 37 }) }),
      )
    }
    const huge = new Float32Array(3 * 64)
    huge[70] = 1e30
    expect(() => codec.encode!(huge, 3, 64, out)).toThrow(expect.objectContaining({ code: 'QUANT_RANGE' }))
    expect(() => codec.byteLength(1, 48)).toThrow(expect.objectContaining({ code: 'FORMAT_INVALID' }))
    expect(() => codec.decode(out, 4, 64, new Float32Array(256))).toThrow(
      expect.objectContaining({ code: 'FORMAT_INVALID' }),
    )
  })
})

test('a block written out by hand', () => {
  // d = 0.5 (0x3800), Q8_0 codes 0…31 minus 16.
  const q8 = Uint8Array.from([0x00, 0x38, ...Array.from({ length: 32 }, (_, i) => (i - 16) & 255)])
  expect([...decode('Q8_0', q8, 1, 32)]).toEqual(Array.from({ length: 32 }, (_, i) => (i - 16) / 2))
  // d = -2 (0xc000), low nibbles 0…15, high nibbles 15…0.
  const q4 = Uint8Array.from([0x00, 0xc0, ...Array.from({ length: 16 }, (_, i) => i | ((15 - i) << 4))])
  const expected = [
    ...Array.from({ length: 16 }, (_, i) => -2 * (i - 8)),
    ...Array.from({ length: 16 }, (_, i) => -2 * (7 - i)),
  ]
  expect([...decode('Q4_0', q4, 1, 32)].map((x) => x + 0)).toEqual(expected.map((x) => x + 0))
})
