import { createHash } from 'node:crypto'
import fc from 'fast-check'
import { expect, test } from 'vitest'
import { DTYPE_BYTES, type DType } from '#sluice/base/dtype.js'
import type { TensorEntry } from '#sluice/format/reader.js'
import { codecOf } from '#sluice/quant/codec.js'
import type { Encoding } from '#sluice/quant/scheme.js'
import { bytesOf, type TensorArray } from '#sluice/tensor/array.js'
import { openTensors } from '#sluice/tensor/lazy.js'
import { encoded, entry, model, numbers, pageTable } from './readers.ts'

const F32 = { kind: 'plain', dtype: 'float32' } as const
const F16 = { kind: 'plain', dtype: 'float16' } as const
const Q8 = { kind: 'ggml', type: 'Q8_0' } as const
const INT4 = { kind: 'panel', scheme: 'int4', block: 32, scale: 'f16', exponent: 0 } as const
const ENCODINGS: Encoding[] = [
  F32,
  F16,
  { kind: 'plain', dtype: 'bfloat16' },
  { kind: 'plain', dtype: 'float32', bigEndian: true },
  { kind: 'plain', dtype: 'float16', bigEndian: true },
  Q8,
  { kind: 'ggml', type: 'Q4_0' },
  { kind: 'ggml', type: 'Q8_0', bigEndian: true },
  INT4,
  { kind: 'panel', scheme: 'int8', block: 32, scale: 'f32', exponent: -3 },
  { kind: 'panel', scheme: 'nf4', block: 64, scale: 'f16', exponent: 0 },
]
/** Bit for bit, and quicker than toEqual. */
function same(got: TensorArray, wanted: TensorArray): void {
  expect(got.length).toBe(wanted.length)
  expect(Buffer.compare(bytesOf(got), bytesOf(wanted))).toBe(0)
}

const name = (e: Encoding) => JSON.stringify(e)

test('nothing is read before it is asked for; one row reads its bytes in one read', async () => {
  const { file, values } = encoded(F16, 50, 64, 1000)
  const m = model([entry(F16, 50, 64, 1000)], [file])
  const w = openTensors(m.reader).get('w')
  expect([w.name, w.shape, w.dtype, w.strides]).toEqual(['w', [50, 64], 'float16', [64, 1]])
  expect(m.sources[0]!.reads).toBe(0)
  expect(await w.rows(7, 8)).toEqual(values.slice(7 * 64, 8 * 64))
  expect(m.sources[0]!.ranges).toEqual([{ offset: 1000 + 7 * 128, length: 128 }])
})

test('one row of panels reads its panel, one row of blocks its blocks', async () => {
  for (const [encoding, range] of [
    [INT4, { offset: 10 + 2 * 576, length: 576 }],
    [Q8, { offset: 10 + 37 * 68, length: 68 }],
  ] as const) {
    const { file, values } = encoded(encoding, 50, 64, 10)
    const m = model([entry(encoding, 50, 64, 10)], [file])
    expect(await openTensors(m.reader).get('w').rows(37, 38)).toEqual(values.slice(37 * 64, 38 * 64))
    expect(m.sources[0]!.ranges).toEqual([range])
  }
})

test.each(ENCODINGS.map((e) => [name(e), e] as const))(
  '%s: any rows, gathered rows, slices and streams are parts of the whole',
  async (_, encoding) => {
    const rows = 41
    const cols = 192
    const { file, stored, values } = encoded(encoding, rows, cols, 24)
    const m = model([entry(encoding, rows, cols, 24)], [file])
    const w = openTensors(m.reader).get('w')
    expect(await w.astype('float32')).toEqual(values)
    expect(await w.bytes()).toEqual(stored)
    const row = fc.nat(rows - 1)
    await fc.assert(
      fc.asyncProperty(
        row,
        row,
        fc.nat(cols),
        fc.nat(cols),
        fc.array(row, { maxLength: 8 }),
        fc.integer({ min: 4, max: 20_000 }),
        async (a, b, c, d, ids, bytes) => {
          const [r0, r1] = [Math.min(a, b), Math.max(a, b)]
          const [c0, c1] = [Math.min(c, d), Math.max(c, d)]
          same(await w.rows(r0, r1), values.subarray(r0 * cols, r1 * cols))
          const gathered = await w.rowsAt(ids)
          for (const [i, id] of ids.entries())
            same(gathered.subarray(i * cols, (i + 1) * cols), values.subarray(id * cols, (id + 1) * cols))
          const box = await w.slice(
            [
              [r0, r1],
              [c0, c1],
            ],
            { as: 'float32' },
          )
          const wanted = new Float32Array((r1 - r0) * (c1 - c0))
          for (let r = r0; r < r1; r++) wanted.set(values.subarray(r * cols + c0, r * cols + c1), (r - r0) * (c1 - c0))
          same(box, wanted)
          const streamed = new Float32Array(values.length)
          let at = 0
          for await (const chunk of w.stream({ bytes, as: 'float32' })) {
            expect(chunk.start).toBe(at)
            streamed.set(chunk.data as Float32Array, at)
            at += chunk.data.length
          }
          expect(at).toBe(values.length)
          same(streamed, values)
        },
      ),
      { seed: 1, numRuns: 25 },
    )
  },
)

test('each type comes in its array, from either byte order', async () => {
  const cases: [DType, ArrayBufferView & { length: number }][] = [
    ['float32', new Float32Array([1.5, -0, Number.NaN])],
    ['float64', new Float64Array([Math.PI, -1e300])],
    ['float16', new Uint16Array([0x3c00, 0xfc00])],
    ['bfloat16', new Uint16Array([0x3f80, 0x8000])],
    ['float8_e4m3', new Uint8Array([0x7e, 0x80])],
    ['float8_e5m2', new Uint8Array([0x7b, 1])],
    ['int64', new BigInt64Array([-(2n ** 63n), 9007199254740993n])],
    ['uint64', new BigUint64Array([2n ** 64n - 1n])],
    ['int32', new Int32Array([-(2 ** 31), 7])],
    ['uint32', new Uint32Array([2 ** 32 - 1])],
    ['int16', new Int16Array([-32768])],
    ['uint16', new Uint16Array([65535])],
    ['int8', new Int8Array([-128])],
    ['uint8', new Uint8Array([255])],
    ['bool', new Uint8Array([0, 1])],
    ['complex64', new Float32Array([1, 2, 3, 4])],
  ]
  for (const [dtype, array] of cases)
    for (const bigEndian of [false, true]) {
      const bytes = bytesOf(array as Float32Array).slice()
      const unit = dtype === 'complex64' ? 4 : DTYPE_BYTES[dtype]
      if (bigEndian) for (let i = 0; i < bytes.length; i += unit) bytes.subarray(i, i + unit).reverse()
      const n = bytes.length / DTYPE_BYTES[dtype]
      // An odd place in the file: no view can be made, copies are right all the same.
      const file = new Uint8Array([9, ...bytes])
      const e: TensorEntry = {
        name: 'w',
        shape: [n],
        dtype,
        encoding: { kind: 'plain', dtype, ...(bigEndian ? { bigEndian } : {}) },
        rows: 1,
        cols: n,
        byteLength: bytes.length,
        segments: [{ source: 0, offset: 1, length: bytes.length, rowStart: 0, rows: 1 }],
      }
      const w = openTensors(model([e], [file]).reader).get('w')
      for (const got of [await w.read(), await w.slice([[0, n]])]) {
        expect(got.constructor, dtype).toBe(array.constructor)
        expect(bytesOf(got), `${dtype} ${bigEndian}`).toEqual(bytesOf(array as Float32Array))
      }
      const last = await w.slice([[n - 1, n]])
      expect(bytesOf(last)).toEqual(bytesOf(array as Float32Array).slice(-DTYPE_BYTES[dtype]))
    }
})

test('rows that lie near each other are read together; repeated ones once', async () => {
  const { file, values } = encoded(F32, 100, 256, 0)
  const m = model([entry(F32, 100, 256, 0)], [file])
  const got = await openTensors(m.reader).get('w').rowsAt([50, 3, 4, 50, 6])
  expect(m.sources[0]!.ranges).toEqual([
    { offset: 3 * 1024, length: 4 * 1024 }, // rows 3, 4, 6: row 5 is a gap of 1 KiB
    { offset: 50 * 1024, length: 1024 },
  ])
  expect(got.subarray(3 * 256, 4 * 256)).toEqual(values.subarray(50 * 256, 51 * 256))
})

test('a column of a wide matrix reads its elements, not the matrix', async () => {
  const { file, values } = encoded(F32, 20, 4096, 0)
  const m = model([entry(F32, 20, 4096, 0)], [file])
  const column = await openTensors(m.reader)
    .get('w')
    .slice([
      [0, 20],
      [7, 8],
    ])
  expect(column).toEqual(Float32Array.from({ length: 20 }, (_, r) => values[r * 4096 + 7]!))
  expect([m.sources[0]!.reads, m.sources[0]!.bytes]).toEqual([20, 80])
})

test('a tensor over shards reads as one', async () => {
  const { stored, values } = encoded(INT4, 40, 64)
  const [a, b] = [stored.slice(0, 576), stored.slice(576)]
  const e = entry(INT4, 40, 64, 0, {
    segments: [
      { source: 1, offset: 0, length: 576, rowStart: 0, rows: 16 },
      { source: 0, offset: 0, length: 1152, rowStart: 16, rows: 24 },
    ],
  })
  const m = model([e], [b, a])
  const w = openTensors(m.reader).get('w')
  expect(await w.astype('float32')).toEqual(values)
  expect(await w.rows(10, 20)).toEqual(values.slice(640, 1280))
  m.reset()
  await w.rows(33, 34)
  expect([m.sources[0]!.bytes, m.sources[1]!.bytes]).toEqual([576, 0])
})

// A tensor [2, 3, 4] whose bytes are in another order, with holes.
const BASE = numbers(64)
function strided(strides: number[] | undefined, more: Partial<TensorEntry> = {}): TensorEntry {
  const length = strides === undefined ? 24 : 1 + strides[0]! + 2 * strides[1]! + 3 * strides[2]!
  return {
    ...entry(F32, 6, 4, 0),
    shape: [2, 3, 4],
    byteLength: length * 4,
    segments: [{ source: 0, offset: 0, length: length * 4, rowStart: 0, rows: 6 }],
    ...(strides === undefined ? {} : { strides }),
    ...more,
  }
}
test.each([
  ['transposed', strided([1, 2, 6]), [1, 2, 6]],
  ['with holes', strided([30, 10, 2]), [30, 10, 2]],
  ['channels-last', strided(undefined, { layout: 'channels-last' }), [12, 1, 3]],
])('a %s tensor reads row-major', async (_, e, strides) => {
  const file = new Uint8Array(BASE.buffer.slice(0))
  const w = openTensors(model([e], [file]).reader).get('w')
  const at = (i: number, j: number, k: number) => BASE[i * strides[0]! + j * strides[1]! + k * strides[2]!]!
  const all = Float32Array.from({ length: 24 }, (_, n) => at(Math.floor(n / 12), Math.floor(n / 4) % 3, n % 4))
  expect(await w.read()).toEqual(all)
  expect(await w.astype('float32')).toEqual(all)
  expect(await w.rows(2, 5)).toEqual(all.slice(8, 20))
  expect(await w.rowsAt([5, 0])).toEqual(new Float32Array([...all.slice(20), ...all.slice(0, 4)]))
  expect(
    await w.slice([
      [1, 2],
      [0, 2],
      [1, 3],
    ]),
  ).toEqual(new Float32Array([at(1, 0, 1), at(1, 0, 2), at(1, 1, 1), at(1, 1, 2)]))
  const streamed: number[] = []
  for await (const { data } of w.stream({ bytes: 40 })) streamed.push(...(data as Float32Array))
  expect(new Float32Array(streamed)).toEqual(all)
  expect(await w.view()).toBeUndefined()
  await expect(w.rowBytes(0, 1)).rejects.toMatchObject({ code: 'TENSOR_RANGE' })
})

test('LINEAR codes are scaled, per tensor and per channel, contiguous and strided', async () => {
  const codes = Int8Array.from({ length: 24 }, (_, i) => i * 5 - 60)
  const file = new Uint8Array(codes.buffer)
  const base: TensorEntry = {
    ...entry({ kind: 'plain', dtype: 'int8' }, 6, 4, 0),
    shape: [2, 3, 4],
    dtype: 'float32',
  }
  const check = async (
    linear: NonNullable<TensorEntry['linear']>,
    strides: number[] | undefined,
    channel: (i: number, j: number, k: number) => number,
  ) => {
    const w = openTensors(
      model([{ ...base, linear, ...(strides === undefined ? {} : { strides }) }], [file]).reader,
    ).get('w')
    const [si, sj, sk] = strides ?? [12, 4, 1]
    const value = (i: number, j: number, k: number) =>
      Math.fround(
        (codes[i * si! + j * sj! + k * sk!]! - linear.zeroPoints[channel(i, j, k)]!) *
          Math.fround(linear.scales[channel(i, j, k)]!),
      )
    const all = Float32Array.from({ length: 24 }, (_, n) => value(Math.floor(n / 12), Math.floor(n / 4) % 3, n % 4))
    expect(await w.astype('float32')).toEqual(all)
    expect(await w.read()).toEqual(all)
    expect(await w.rows(1, 5)).toEqual(all.slice(4, 20))
    expect(
      await w.slice([
        [1, 2],
        [1, 3],
        [2, 4],
      ]),
    ).toEqual(new Float32Array([value(1, 1, 2), value(1, 1, 3), value(1, 2, 2), value(1, 2, 3)]))
  }
  for (const strides of [undefined, [1, 2, 6]]) {
    await check({ scheme: 'linear', scales: [0.1], zeroPoints: [3] }, strides, () => 0)
    await check({ scheme: 'linear', scales: [0.1, 0.25, 3], zeroPoints: [0, -7, 9], axis: 1 }, strides, (_, j) => j)
    await check(
      { scheme: 'linear', scales: [1, 2, 3, 4], zeroPoints: [0, 1, 2, 3], axis: 2 },
      strides,
      (_i, _j, k) => k,
    )
  }
  const w = openTensors(
    model([{ ...base, linear: { scheme: 'logarithmic', scales: [1], zeroPoints: [0] } }], [file]).reader,
  ).get('w')
  await expect(w.astype('float32')).rejects.toMatchObject({ code: 'NOT_IMPLEMENTED' })
})

test('a view is the source’s own memory, where that can be', async () => {
  const { file, values } = encoded(F32, 10, 16, 8)
  const aligned = model([entry(F32, 10, 16, 8)], [file])
  const view = (await openTensors(aligned.reader).get('w').view(2, 4))!
  expect(view).toEqual(values.slice(32, 64))
  expect(view.buffer).toBe(file.buffer)
  expect(
    await openTensors(model([entry(F32, 10, 16, 9)], [new Uint8Array([0, ...file])]).reader)
      .get('w')
      .view(),
  ).toBeUndefined()
  const swapped = entry({ kind: 'plain', dtype: 'float32', bigEndian: true }, 10, 16, 8)
  expect(
    await openTensors(model([swapped], [file]).reader)
      .get('w')
      .view(),
  ).toBeUndefined()
  const q = encoded(Q8, 10, 32)
  expect(
    await openTensors(model([entry(Q8, 10, 32, 0)], [q.file]).reader)
      .get('w')
      .view(),
  ).toBeUndefined()
})

test('pages are checked when first touched, whole, once; then only what is asked for is read', async () => {
  const { file, stored, values } = encoded(INT4, 100, 64, 4)
  const pages = pageTable(stored, 100, 32, 2 * 576)
  const m = model([entry(INT4, 100, 64, 4, { pages })], [file])
  const w = openTensors(m.reader).get('w')
  expect(await w.rows(40, 41)).toEqual(values.slice(40 * 64, 41 * 64))
  expect(m.sources[0]!.ranges).toEqual([{ offset: 4 + 1152, length: 1152 }])
  m.reset()
  expect(await w.rows(40, 41)).toEqual(values.slice(40 * 64, 41 * 64))
  expect(m.sources[0]!.ranges).toEqual([{ offset: 4 + 1152, length: 576 }])
  m.reset()
  expect(await w.astype('float32')).toEqual(values)
  expect(m.sources[0]!.bytes).toBe(stored.length)
})

test.each(['rows', 'rowsAt', 'slice', 'stream', 'read', 'bytes', 'view'] as const)(
  'a damaged page is found by %s, and by nobody who does not touch it',
  async (method) => {
    const { file, stored } = encoded(F16, 100, 64, 4)
    const pages = pageTable(stored, 100, 32, 32 * 128)
    const damaged = file.slice()
    damaged[4 + 70 * 128]! ^= 1 // row 70: page 2
    const m = model([entry(F16, 100, 64, 4, { pages })], [damaged])
    const w = openTensors(m.reader).get('w')
    const use = async (a: number, b: number) => {
      if (method === 'rows') await w.rows(a, b)
      else if (method === 'rowsAt') await w.rowsAt([a, b - 1])
      else if (method === 'slice')
        await w.slice([
          [a, b],
          [3, 4],
        ])
      else if (method === 'bytes') await w.rowBytes(a, b)
      else if (method === 'view') await w.view(a, b)
      else if (method === 'read' && b === 100) await w.read()
      else if (method === 'stream' && b === 100) for await (const _ of w.stream({ bytes: 1000 }));
    }
    await use(0, 64)
    await use(96, 97)
    await expect(use(64, 100)).rejects.toMatchObject({
      code: 'CHECKSUM_MISMATCH',
      details: { tensor: 'w', page: 2, file: 'file0', offset: 4 + 64 * 128 },
    })
    await expect(use(64, 100)).rejects.toMatchObject({ code: 'CHECKSUM_MISMATCH' }) // not forgotten
    const off = openTensors(m.reader, { verify: 'off' }).get('w')
    expect((await off.read()).length).toBe(6400)
  },
)

test('a page too large to keep is checked in steps', async () => {
  const rows = 20
  const cols = 512 * 1024
  const stored = new Uint8Array(numbers(rows * cols).buffer) // 40 MiB
  const sha = createHash('sha256').update(stored).digest()
  const pages = { rowsPerPage: 32, count: 1, sha256: () => new Uint8Array(sha) }
  const m = model([entry(F32, rows, cols, 0, { pages })], [stored])
  const w = openTensors(m.reader).get('w')
  expect(
    (
      await w.slice([
        [3, 4],
        [5, 6],
      ])
    )[0],
  ).toBe(new Float32Array(stored.buffer)[3 * cols + 5])
  expect(Math.max(...m.sources[0]!.ranges.map((r) => r.length))).toBeLessThanOrEqual(1024 ** 2)
  stored[17] = stored[17]! ^ 1
  await expect(openTensors(m.reader).get('w').rows(19, 20)).rejects.toMatchObject({ code: 'CHECKSUM_MISMATCH' })
})

test('scalars and tensors without elements', async () => {
  const scalar: TensorEntry = { ...entry(F32, 1, 1, 0), shape: [] }
  const s = openTensors(model([scalar], [new Uint8Array(new Float32Array([2.5]).buffer)]).reader).get('w')
  expect([await s.read(), await s.rows(0, 1), await s.slice([])]).toEqual(Array(3).fill(new Float32Array([2.5])))
  for (const [shape, rows, cols] of [
    [[0, 3], 0, 3],
    [[3, 0], 3, 0],
  ] as const) {
    const e: TensorEntry = {
      ...scalar,
      shape,
      rows,
      cols,
      byteLength: 0,
      segments: [{ source: 0, offset: 0, length: 0, rowStart: 0, rows }],
    }
    const w = openTensors(model([e], [new Uint8Array(0)]).reader).get('w')
    expect([await w.read(), await w.astype('float32'), await w.slice([])]).toEqual(Array(3).fill(new Float32Array(0)))
    for await (const _ of w.stream()) throw new Error('a chunk of nothing')
  }
})

test('what does not exist is refused', async () => {
  const { file } = encoded(F32, 10, 16)
  const opaque: TensorEntry = {
    name: 'q',
    encoding: { kind: 'opaque', type: 'Q8_K', block: 256, blockBytes: 292 },
    dtype: 'float32',
    shape: [1, 256],
    rows: 1,
    cols: 256,
    byteLength: 292,
    segments: [{ source: 0, offset: 0, length: 292, rowStart: 0, rows: 1 }],
  }
  const tensors = openTensors(model([entry(F32, 10, 16, 0), opaque], [file]).reader)
  expect(() => tensors.get('x')).toThrowError(expect.objectContaining({ code: 'TENSOR_NOT_FOUND' }))
  expect(() => tensors.get('__proto__')).toThrowError(expect.objectContaining({ code: 'TENSOR_NOT_FOUND' }))
  const w = tensors.get('w')
  for (const [a, b] of [
    [-1, 2],
    [0, 11],
    [5, 4],
    [0.5, 2],
    [0, Number.NaN],
  ] as const)
    await expect(w.rows(a, b)).rejects.toMatchObject({ code: 'TENSOR_RANGE' })
  await expect(w.rowsAt([10])).rejects.toMatchObject({ code: 'TENSOR_RANGE' })
  await expect(
    w.slice([
      [0, 1],
      [0, 17],
    ]),
  ).rejects.toMatchObject({ code: 'TENSOR_RANGE' })
  await expect(
    w.slice([
      [0, 1],
      [0, 1],
      [0, 1],
    ]),
  ).rejects.toMatchObject({ code: 'TENSOR_RANGE' })
  await expect(w.astype('int8' as 'float32')).rejects.toMatchObject({ code: 'REQUEST_INVALID' })
  for (const use of [
    () => tensors.get('q').read(),
    () => tensors.get('q').rows(0, 1),
    () => tensors.get('q').rowsAt([0]),
    () => tensors.get('q').slice([]),
  ])
    await expect(use()).rejects.toMatchObject({ code: 'QUANT_UNSUPPORTED', details: { type: 'Q8_K', tensor: 'q' } })
  expect(await tensors.get('q').bytes()).toEqual(file.slice(0, 292)) // copying needs no decoder
})

test('panels come by whole panels as bytes', async () => {
  const { file, stored } = encoded(INT4, 40, 64)
  const w = openTensors(model([entry(INT4, 40, 64, 0)], [file]).reader).get('w')
  expect(await w.rowBytes(16, 40)).toEqual(stored.slice(576))
  await expect(w.rowBytes(0, 20)).rejects.toMatchObject({ code: 'TENSOR_RANGE' })
})

test('a cancelled read ends', async () => {
  const { file } = encoded(F32, 10, 16)
  const w = openTensors(model([entry(F32, 10, 16, 0)], [file]).reader).get('w')
  const signal = AbortSignal.abort()
  for (const use of [
    () => w.read({ signal }),
    () => w.rows(0, 1, { signal }),
    () => w.rowsAt([0], { signal }),
    () => w.slice([], { signal }),
  ])
    await expect(use()).rejects.toMatchObject({ code: 'ABORTED' })
})

test('decoding takes no more memory than the result and a chunk', async () => {
  // 64 MiB of float16 as one vector: one row, far larger than a chunk.
  const n = 32 * 1024 ** 2
  const file = new Uint8Array(n * 2)
  const e: TensorEntry = { ...entry(F16, 1, n, 0), shape: [n] }
  const m = model([e], [file])
  let streamed = 0
  for await (const { data } of openTensors(m.reader).get('w').stream({ as: 'float32' })) {
    expect(data.byteLength).toBeLessThanOrEqual(4 * 1024 ** 2)
    streamed += data.length
  }
  expect(streamed).toBe(n)
  expect(Math.max(...m.sources[0]!.ranges.map((r) => r.length))).toBeLessThanOrEqual(1024 ** 2)
  expect(codecOf(F16).byteLength(1, n)).toBe(file.length)
})
