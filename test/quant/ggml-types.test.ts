// Every ggml block type: ggml's own values, big-endian files, and the form kernels compute with.
import { createHash } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { ggmlEncoding, ggmlType } from '#sluice/format/gguf/types.js'
import { codecOf, encodedBytes } from '#sluice/quant/codec.js'
import { ggmlBlock, isGgmlType } from '#sluice/quant/ggml.js'
import { EXACT_FORM, exactBytes, toExactForm } from '#sluice/quant/ggml-form.js'
import type { GgmlType } from '#sluice/quant/scheme.js'
import { data, dataTest } from '../data.ts'
import { asFloats, readSafetensors } from './read-safetensors.ts'

/**
 * Fields of 16 and 32 bits of a block, [offset, bytes, count], as ggml-common.h declares them or ggml-quants.c reads them. Empty: bytes
 * alone. Absent: not read from big-endian files.
 */
const FIELDS: Record<GgmlType, [at: number, bytes: 2 | 4, count: number][] | undefined> = {
  Q4_0: [[0, 2, 1]],
  Q4_1: [[0, 2, 2]],
  Q5_0: [
    [0, 2, 1],
    [2, 4, 1],
  ],
  Q5_1: [
    [0, 2, 2],
    [4, 4, 1],
  ],
  Q8_0: [[0, 2, 1]],
  Q2_K: [[80, 2, 2]],
  Q3_K: [[108, 2, 1]],
  Q4_K: [[0, 2, 2]],
  Q5_K: [[0, 2, 2]],
  Q6_K: [[208, 2, 1]],
  IQ1_S: [
    [0, 2, 1],
    [34, 2, 8],
  ],
  IQ1_M: [[48, 2, 4]],
  IQ2_XXS: undefined,
  IQ2_XS: [[0, 2, 33]],
  IQ2_S: [[0, 2, 1]],
  IQ3_XXS: [
    [0, 2, 1],
    [66, 4, 8],
  ],
  IQ3_S: [[0, 2, 1]],
  IQ4_NL: [[0, 2, 1]],
  IQ4_XS: [[0, 2, 2]],
  TQ1_0: [[52, 2, 1]],
  TQ2_0: [[64, 2, 1]],
  MXFP4: [],
  NVFP4: [],
  Q1_0: [[0, 2, 1]],
  Q2_0: [[0, 2, 1]],
}
const TYPES = Object.keys(FIELDS) as GgmlType[]

function toBigEndian(type: GgmlType, blocks: Uint8Array): Uint8Array {
  const swapped = blocks.slice()
  for (let p = 0; p < blocks.length; p += ggmlBlock(type).bytes)
    for (const [at, bytes, count] of FIELDS[type]!)
      for (let i = 0; i < count; i++) swapped.subarray(p + at + i * bytes, p + at + (i + 1) * bytes).reverse()
  return swapped
}

const bitsOf = (f: Float32Array) => new Uint32Array(f.buffer, f.byteOffset, f.length)

function decode(type: GgmlType, bytes: Uint8Array, rows: number, cols: number, bigEndian = false): Float32Array {
  const out = new Float32Array(rows * cols)
  codecOf({ kind: 'ggml', type, bigEndian }).decode(bytes, rows, cols, out)
  return out
}

function throughExactForm(type: GgmlType, bytes: Uint8Array, rows: number, cols: number, bigEndian = false) {
  const form = new Uint8Array(exactBytes(type, rows, cols)).fill(0xa5)
  toExactForm(type, bytes, rows, cols, form, bigEndian)
  const out = new Float32Array(rows * cols)
  codecOf(EXACT_FORM[type]).decode(form, rows, cols, out)
  return { form, out }
}

const FIXTURE = JSON.parse(readFileSync(join(import.meta.dirname, '../fixtures/ggml/blocks.json'), 'utf8')) as {
  types: Record<GgmlType, { blocks: string; first: number[]; sha256: string }>
}

/** What an independent program makes of random blocks: test/reference/ggml_random.py. */
const RANDOM = JSON.parse(readFileSync(join(import.meta.dirname, '../fixtures/ggml/random.json'), 'utf8')) as {
  blocks: number
  types: Partial<Record<GgmlType, { seed: number; halves: number[]; sha256: string }>>
}

function randomBlocks(type: GgmlType, seed: number, halves: number[]): Uint8Array {
  const { bytes: size } = ggmlBlock(type)
  const bytes = new Uint8Array(size * RANDOM.blocks)
  let x = seed * 2654435761 + 1
  for (let i = 0; i < bytes.length; i++) {
    x = (Math.imul(x, 1664525) + 1013904223) >>> 0
    bytes[i] = x >>> 24
  }
  // No infinite scale.
  for (let p = 0; p < bytes.length; p += size) for (const at of halves) bytes[p + at] = bytes[p + at]! & 0xbf
  return bytes
}

test('every type but Q1_0 and Q2_0 is compared with the independent program', () => {
  expect(TYPES.filter((t) => RANDOM.types[t] === undefined)).toEqual(['Q1_0', 'Q2_0'])
})

test('every type of the files has a decoder, and only those two that exist in memory alone have none', () => {
  expect(Object.keys(FIXTURE.types).sort()).toEqual([...TYPES].sort())
  const ids = Array.from({ length: 43 }, (_, id) => id).filter((id) => ![4, 5, 31, 32, 33, 36, 37, 38].includes(id))
  const opaque = ids.map((id) => ggmlType(id, 'test')).filter((t) => ggmlEncoding(t, false).encoding.kind === 'opaque')
  expect(opaque.map((t) => t.name)).toEqual(['Q8_1', 'Q8_K'])
  const bigEndian = ids
    .map((id) => ggmlType(id, 'test'))
    .filter((t) => ggmlEncoding(t, true).encoding.kind === 'opaque')
  expect(bigEndian.map((t) => t.name)).toEqual(['Q8_1', 'Q8_K', 'IQ2_XXS'])
  // The reader and the decoder agree on the size of every block.
  for (const t of ids.map((id) => ggmlType(id, 'test')))
    if (isGgmlType(t.name)) expect(ggmlBlock(t.name)).toMatchObject({ columns: t.block, bytes: t.blockBytes })
})

describe.each(TYPES)('%s', (type) => {
  test('256 columns have ggml’s values, bit for bit, in blocks and as kernels see them', () => {
    const { blocks, first, sha256 } = FIXTURE.types[type]
    const bytes = new Uint8Array(Buffer.from(blocks, 'base64'))
    const sha = (f: Float32Array) => createHash('sha256').update(new Uint8Array(f.buffer)).digest('hex')
    const values = decode(type, bytes, 1, 256)
    expect([...values.subarray(0, 4)]).toEqual(first)
    expect(sha(values)).toBe(sha256)
    expect(sha(throughExactForm(type, bytes, 1, 256).out)).toBe(sha256)
    if (FIELDS[type] === undefined) return
    const big = toBigEndian(type, bytes)
    expect(sha(decode(type, big, 1, 256, true))).toBe(sha256)
    expect(sha(throughExactForm(type, big, 1, 256, true).out)).toBe(sha256)
  })

  dataTest('four rows of 512 have ggml’s values, bit for bit, in either byte order', () => {
    const tensors = readSafetensors(data('quant', 'ggml-blocks.safetensors'))
    const blocks = tensors.get(`${type}.blocks`)!.bytes
    const expected = bitsOf(asFloats(tensors.get(`${type}.f32`)!.bytes))
    expect(bitsOf(decode(type, blocks, 4, 512))).toEqual(expected)
    expect(bitsOf(throughExactForm(type, blocks, 4, 512).out)).toEqual(expected)
    if (FIELDS[type] === undefined) return
    const big = toBigEndian(type, blocks)
    expect(bitsOf(decode(type, big, 4, 512, true))).toEqual(expected)
    expect(bitsOf(throughExactForm(type, big, 4, 512, true).out)).toEqual(expected)
  })

  test('whatever the bytes, rows and byte order: the exact form holds the same numbers and nothing of what lay there', () => {
    const { columns, bytes: blockBytes } = ggmlBlock(type)
    fc.assert(
      fc.property(
        fc.integer({ min: 1, max: 35 }),
        fc.integer({ min: 1, max: 3 }),
        fc.boolean(),
        fc.infiniteStream(fc.nat(255)),
        (rows, blocks, big, stream) => {
          const cols = Math.ceil((blocks * columns) / 64) * 64
          const stored = Uint8Array.from({ length: rows * (cols / columns) * blockBytes }, () => stream.next().value!)
          const bigEndian = big && FIELDS[type] !== undefined
          const expected = decode(type, stored, rows, cols, bigEndian)
          const { form, out } = throughExactForm(type, stored, rows, cols, bigEndian)
          expect(out.length).toBe(expected.length)
          // NaN payloads are nobody's numbers; signs of zeros are.
          for (let i = 0; i < out.length; i++)
            if (!Object.is(out[i], expected[i])) expect.unreachable(`value ${i}: ${out[i]}, expected ${expected[i]}`)
          const e = EXACT_FORM[type]
          expect(form.length).toBe(encodedBytes(e, rows, cols))
          if (e.kind !== 'panel') return
          const padded = new Float32Array(Math.ceil(rows / 16) * 16 * cols)
          codecOf(e).decode(form, padded.length / cols, cols, padded)
          expect(padded.subarray(rows * cols).every((x) => Object.is(x, 0) || Object.is(x, -0))).toBe(true)
        },
      ),
      { numRuns: 12 },
    )
  })

  const random = RANDOM.types[type] // absent: the other program does not know the type
  if (random !== undefined)
    test('blocks of random bytes have the values of an independent program', () => {
      const bytes = randomBlocks(type, random.seed, random.halves)
      const cols = ggmlBlock(type).columns * 4
      const sha = (f: Float32Array) => createHash('sha256').update(new Uint8Array(f.buffer)).digest('hex')
      expect(sha(decode(type, bytes, RANDOM.blocks / 4, cols))).toBe(random.sha256)
      expect(sha(throughExactForm(type, bytes, RANDOM.blocks / 4, cols).out)).toBe(random.sha256)
    })

  test('bytes and memory may begin anywhere', () => {
    const { blocks } = FIXTURE.types[type]
    const bytes = new Uint8Array(Buffer.from(blocks, 'base64'))
    const wanted = throughExactForm(type, bytes, 1, 256).form
    for (let shift = 1; shift < 4; shift++) {
      const stored = new Uint8Array(bytes.length + shift).subarray(shift)
      stored.set(bytes)
      const around = new Uint8Array(wanted.length + 8).fill(0xa5)
      toExactForm(type, stored, 1, 256, around.subarray(shift, shift + wanted.length))
      expect(Buffer.compare(around.subarray(shift, shift + wanted.length), wanted)).toBe(0)
      expect(around.subarray(shift + wanted.length).every((b) => b === 0xa5)).toBe(true)
      expect(around.subarray(0, shift).every((b) => b === 0xa5)).toBe(true)
    }
  })

  test('short bytes, short memory and columns off the blocks are refused', () => {
    const { columns } = ggmlBlock(type)
    const bytes = new Uint8Array(encodedBytes({ kind: 'ggml', type }, 2, columns))
    const invalid = expect.objectContaining({ code: 'FORMAT_INVALID' })
    expect(() => decode(type, bytes, 3, columns)).toThrow(invalid)
    expect(() => exactBytes(type, 1, columns + 16)).toThrow(invalid)
    const form = new Uint8Array(exactBytes(type, 2, columns))
    expect(() => toExactForm(type, bytes, 3, columns, new Uint8Array(exactBytes(type, 3, columns)))).toThrow(invalid)
    expect(() => toExactForm(type, bytes, 2, columns, form.subarray(1))).toThrow(invalid)
  })
})

// Blocks written out by hand, from the descriptions in ggml-common.h.
test('Q4_K: sub-scales of six bits, two nibbles a byte', () => {
  const block = new Uint8Array(144)
  const view = new DataView(block.buffer)
  view.setUint16(0, 0x3c00, true) // d = 1
  view.setUint16(2, 0x3800, true) // dmin = 0.5
  // Sub-scale 5 = 0b101101: low nibble of byte 9 is 1101, top bits of byte 1 are 10. Its minimum 0b010011: high nibble 0011, top bits of byte 5 are 01.
  block[4 + 9] = 0b0011_1101
  block[4 + 1] = 0b10_000111 // sub-scale 1 = 7
  block[4 + 5] = 0b01_000010 // sub-minimum 1 = 2
  block[16 + 32 * 2 + 3] = 0xb4 // columns 128 + 3 (4) and 160 + 3 (11): groups 4 and 5
  block[16 + 9] = 0x60 // column 32 + 9 (6): group 1
  const values = decode('Q4_K', block, 1, 256)
  expect(values[163]).toBe(45 * 11 - 0.5 * 19)
  expect(values[160]).toBe(-0.5 * 19)
  expect(values[131]).toBe(0)
  expect(values[41]).toBe(7 * 6 - 0.5 * 2)
})

test('MXFP4: powers of two from the smallest to infinity', () => {
  const block = new Uint8Array(17)
  block[1] = 0x71 // column 0: 0.5, column 16: 6
  for (const [e, x] of [
    [0, 2 ** -127],
    [1, 2 ** -126],
    [127, 1],
    [254, 2 ** 127],
  ] as const) {
    block[0] = e
    const values = decode('MXFP4', block, 1, 32)
    expect(values[0]).toBe(0.5 * x)
    expect(values[16]).toBe(Math.fround(6 * x))
  }
})
