// Rows of a tensor as a tensor: the same numbers as the whole one's, in every encoding, over shard borders; what cannot be addressed is refused.
import { expect, test } from 'vitest'
import { isSluiceError } from '#sluice/base/errors.js'
import { partOf, type RowRange } from '#sluice/format/part.js'
import type { Segment, TensorEntry } from '#sluice/format/reader.js'
import { codecOf, encodedBytes } from '#sluice/quant/codec.js'
import type { Encoding } from '#sluice/quant/scheme.js'
import { randomFrom } from '../graph/random.ts'

const COLS = 64
const ENCODINGS: Encoding[] = [
  { kind: 'plain', dtype: 'float32' },
  { kind: 'plain', dtype: 'float16' },
  { kind: 'panel', scheme: 'int8', block: 32, scale: 'f16', exponent: 0 },
  { kind: 'panel', scheme: 'int4', block: 64, scale: 'f32', exponent: 0 },
]

/** Rows encoded, and an entry that has them in two segments of two sources. */
function stored(encoding: Encoding, shape: readonly number[], split: number) {
  const rows = shape.slice(0, -1).reduce((a, b) => a * b, 1)
  const random = randomFrom(rows)
  const values = Float32Array.from({ length: rows * COLS }, () => random() - 0.5)
  const bytes = new Uint8Array(encodedBytes(encoding, rows, COLS))
  const codec = codecOf(encoding)
  codec.encode!(values, rows, COLS, bytes)
  const decoded = new Float32Array(rows * COLS)
  codec.decode(bytes, rows, COLS, decoded)
  const cut = encodedBytes(encoding, split, COLS)
  const segments: Segment[] = [
    { source: 0, offset: 100, length: cut, rowStart: 0, rows: split },
    { source: 1, offset: 7, length: bytes.length - cut, rowStart: split, rows: rows - split },
  ]
  const base = { name: 'w', dtype: 'float32', encoding, rows, cols: COLS, byteLength: bytes.length } as const
  const entry: TensorEntry = { ...base, shape, segments }
  const sources = [
    Uint8Array.from([...new Uint8Array(100), ...bytes.subarray(0, cut)]),
    Uint8Array.from([...new Uint8Array(7), ...bytes.subarray(cut)]),
  ]
  return { entry, sources, decoded }
}

function read(entry: TensorEntry, sources: readonly Uint8Array[]): Float32Array {
  const out = new Float32Array(entry.rows * entry.cols)
  let total = 0
  for (const s of entry.segments) {
    const bytes = sources[s.source]!.subarray(s.offset, s.offset + s.length)
    expect(bytes.length).toBe(s.length)
    codecOf(entry.encoding).decode(bytes, s.rows, entry.cols, out.subarray(s.rowStart * entry.cols))
    total += s.length
  }
  expect(total).toBe(entry.byteLength)
  return out
}

test.each(ENCODINGS)('ranges that tile a matrix: %o', (encoding) => {
  const { entry, sources, decoded } = stored(encoding, [70, COLS], 32)
  for (const [start, end] of [
    [0, 16],
    [16, 48],
    [48, 70],
    [0, 70],
  ] as const) {
    const part = partOf(entry, { start, end })
    expect(part).toMatchObject({ name: `w[${start}:${end}]`, shape: [end - start, COLS], rows: end - start })
    expect(read(part, sources)).toEqual(decoded.subarray(start * COLS, end * COLS))
  }
})

test('parts of a stacked tensor', () => {
  for (const encoding of ENCODINGS) {
    const { entry, sources, decoded } = stored(encoding, [3, 32, COLS], 48)
    for (let i = 0; i < 3; i++) {
      const part = partOf(entry, i)
      expect(part).toMatchObject({ name: `w#${i}`, shape: [32, COLS], rows: 32 })
      expect(read(part, sources)).toEqual(decoded.subarray(i * 32 * COLS, (i + 1) * 32 * COLS))
    }
  }
})

function code(entry: TensorEntry, part: number | RowRange): string {
  try {
    partOf(entry, part)
  } catch (err) {
    if (isSluiceError(err)) return err.code
    throw err
  }
  return 'none'
}

test('refused: rows that are not there, and borders inside a panel', () => {
  const plain = stored(ENCODINGS[0]!, [70, COLS], 32).entry
  for (const [start, end] of [
    [0, 71],
    [70, 70],
    [5, 3],
  ] as const)
    expect(code(plain, { start, end })).toBe('TENSOR_RANGE')
  expect(code(plain, { start: 3, end: 5 })).toBe('none')
  expect(code(stored(ENCODINGS[0]!, [2, 35, COLS], 32).entry, { start: 0, end: 35 })).toBe('TENSOR_RANGE')
  expect(code(stored(ENCODINGS[0]!, [2, 35, COLS], 32).entry, 2)).toBe('TENSOR_RANGE')
  const panels = stored(ENCODINGS[2]!, [70, COLS], 32).entry
  expect(code(panels, { start: 8, end: 24 })).toBe('NOT_IMPLEMENTED')
  expect(code(panels, { start: 0, end: 24 })).toBe('NOT_IMPLEMENTED')
  expect(code(stored(ENCODINGS[2]!, [2, 35, COLS], 32).entry, 0)).toBe('NOT_IMPLEMENTED')
  expect(code({ ...plain, strides: [1, 70] }, { start: 0, end: 16 })).toBe('NOT_IMPLEMENTED')
})
