// What was written is read back, byte for byte: every dtype, layouts, strides, segments, aliases, inline, side files.
import { createHash } from 'node:crypto'
import { readFileSync, statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import canonicalize from 'canonicalize'
import { expect, test } from 'vitest'
import type { ModelReader, TensorEntry } from '#sluice/format/reader.js'
import { openWia } from '#sluice/format/wia/read.js'
import { pageRange } from '#sluice/format/wia/verify.js'
import { METADATA, plain, seeded, tempFolder, write } from './fixtures.ts'

async function bytesOf(reader: ModelReader, entry: TensorEntry): Promise<Uint8Array> {
  const parts = []
  for (const s of entry.segments) parts.push(await reader.sources[s.source]!.read(s.offset, s.length))
  return Buffer.concat(parts)
}
const same = (a: Uint8Array, b: Uint8Array) => expect(Buffer.compare(a, b)).toBe(0)

const DTYPES = [
  'float32',
  'float16',
  'bfloat16',
  'int64',
  'int32',
  'int16',
  'int8',
  'uint8',
  'bool',
  'complex64',
] as const

test('the ten standard dtypes and the six others come back as they were', async () => {
  const out = join(tempFolder(), 'm.wia')
  const more = ['float64', 'uint16', 'uint32', 'uint64', 'float8_e4m3', 'float8_e5m2'] as const
  const tensors = [...DTYPES, ...more].map((d) => plain(`t.${d}`, [3, 5], d))
  await write(out, tensors)
  const reader = await openWia(out, { verify: 'eager' })
  expect([...reader.tensors.keys()]).toEqual(tensors.map((t) => t.name))
  for (const t of tensors) {
    const e = reader.tensors.get(t.name)!
    expect(e).toMatchObject({
      dtype: t.dtype,
      shape: [3, 5],
      rows: 3,
      cols: 5,
      encoding: t.encoding,
      byteLength: t.byteLength,
    })
    same(await bytesOf(reader, e), t.bytes)
    expect(e.checksum).toBe(createHash('sha256').update(t.bytes).digest('hex'))
  }
  expect(reader.head.extensionsRequired).toEqual(new Set(['wia.extra_dtypes']))
  await reader.close()
})

test('a tensor larger than a shard is split at panel and page boundaries and reads as one', async () => {
  const out = join(tempFolder(), 'm.wia')
  const big = plain('big', [1000, 100], 'float32') // 400,000 bytes; 16 rows = 6400
  const small = plain('small', [7])
  const int4 = plain('q', [200, 96], 'float32', {
    encoding: { kind: 'panel', scheme: 'int4', block: 32, scale: 'f16', exponent: -3 },
    byteLength: Math.ceil(200 / 16) * 3 * 288,
  })
  await write(out, [small, big, int4], { maxShardBytes: 65536, pageBytes: 20000 })
  const reader = await openWia(out, { verify: 'eager' })
  const e = reader.tensors.get('big')!
  expect(e.segments.length).toBeGreaterThan(6)
  let row = 0
  for (const s of e.segments) {
    expect(s.rowStart).toBe(row)
    expect(s.offset % 4096).toBe(0)
    expect(s.length).toBe(s.rows * 400)
    row += s.rows
  }
  expect(row).toBe(1000)
  same(await bytesOf(reader, e), big.bytes)
  same(await bytesOf(reader, reader.tensors.get('q')!), int4.bytes)
  expect(reader.tensors.get('q')!.encoding).toEqual(int4.encoding)
  for (const s of reader.sources) expect(s.size).toBeLessThanOrEqual(65536)
  // Pages by an independent cut of the input.
  const pages = e.pages!
  for (let p = 0; p < pages.count; p++) {
    const part = big.bytes.subarray(p * pages.rowsPerPage * 400, Math.min(1000, (p + 1) * pages.rowsPerPage) * 400)
    expect(Buffer.from(await pages.sha256(p)).toString('hex')).toBe(createHash('sha256').update(part).digest('hex'))
    const range = pageRange(e, p, pages.rowsPerPage)
    same(await reader.sources[range.source]!.read(range.offset, range.length), part)
  }
  await reader.close()
})

test('pages are about 1 MiB, multiples of 4096 bytes where one fits, never above 4 MiB', async () => {
  const out = join(tempFolder(), 'm.wia')
  await write(out, [plain('a', [4096, 640], 'bfloat16'), plain('wide', [32, 50000], 'float32')], {}, 1 << 20)
  const reader = await openWia(out)
  const a = reader.tensors.get('a')!.pages!
  expect((a.rowsPerPage * 1280) % 4096).toBe(0)
  expect(a.rowsPerPage * 1280).toBeLessThanOrEqual(1 << 20)
  expect(a.rowsPerPage * 1280).toBeGreaterThan(1 << 19)
  expect(reader.tensors.get('wide')!.pages!.rowsPerPage).toBe(16)
  await reader.close()
})

test('aliases share bytes, inline constants look like external data, empty tensors exist', async () => {
  const out = join(tempFolder(), 'm.wia')
  const a = plain('embed', [20, 8])
  const c = plain('const', [3, 3], 'int64', { inline: true })
  const scalar = plain('scalar', [], 'float32')
  const none = plain('none', [0, 4])
  const head = { ...plain('head', [20, 8]), aliasOf: 'embed' }
  await write(out, [a, c, scalar, none, head, plain('__proto__', [2])])
  const reader = await openWia(out, { verify: 'eager' })
  expect([...reader.tensors.keys()]).toEqual(['embed', 'scalar', '__proto__', 'const', 'none', 'head'])
  const h = reader.tensors.get('head')!
  expect(h.aliasOf).toBe('embed')
  expect(h.segments).toEqual(reader.tensors.get('embed')!.segments)
  same(await bytesOf(reader, reader.tensors.get('const')!), c.bytes)
  same(await bytesOf(reader, reader.tensors.get('scalar')!), scalar.bytes)
  expect(reader.tensors.get('none')).toMatchObject({ byteLength: 0, segments: [], shape: [0, 4] })
  expect(reader.tensors.get('__proto__')!.shape).toEqual([2])
  await reader.close()
})

test('strides, layouts and LINEAR quantization', async () => {
  const out = join(tempFolder(), 'm.wia')
  // A transposed 4×6: element (i, j) at j*4 + i.
  const t = plain('transposed', [4, 6], 'float32', { strides: [1, 4] })
  // Padded rows: 3 rows of 5 in steps of 8.
  const padded = plain('padded', [3, 5], 'float32', { strides: [8, 1], byteLength: (1 + 2 * 8 + 4) * 4 })
  const image = plain('image', [2, 3, 4, 5], 'float32', { layout: 'channels-last' })
  const hwc = plain('hwc', [2, 4, 5, 3], 'float32', { layout: 'nd-hwc' })
  const packed = plain('packed', [4, 8], 'int8', { layout: 'packed-int8' })
  const linear = { scheme: 'linear' as const, scales: [0.5, 0.25], zeroPoints: [0, -3], axis: 0 }
  const q = plain('q', [2, 7], 'int8', { dtype: 'float32', linear })
  const one = plain('one', [9], 'uint8', {
    dtype: 'float32',
    linear: { scheme: 'linear', scales: [2], zeroPoints: [128] },
  })
  await write(out, [t, padded, image, hwc, packed, q, one])
  const reader = await openWia(out, { verify: 'eager' })
  expect(reader.tensors.get('transposed')).toMatchObject({ strides: [1, 4], byteLength: 96 })
  expect(reader.tensors.get('padded')).toMatchObject({ strides: [8, 1], byteLength: 84 })
  // N, H, W, C in memory: C steps by 1, W by 3, H by 15, N by 60.
  expect(reader.tensors.get('image')).toMatchObject({ layout: 'channels-last', strides: [60, 1, 15, 3] })
  expect(reader.tensors.get('hwc')!.strides).toBeUndefined()
  expect(reader.tensors.get('packed')!.layout).toBe('packed-int8')
  expect(reader.tensors.get('q')).toMatchObject({
    dtype: 'float32',
    encoding: { kind: 'plain', dtype: 'int8' },
    linear,
  })
  expect(reader.tensors.get('one')!.linear).toEqual({ scheme: 'linear', scales: [2], zeroPoints: [128] })
  expect(reader.head.quantization).toMatchObject({ scheme: 'LINEAR', perChannel: true, axis: 0 })
  for (const x of [t, padded, image, hwc, packed, q, one])
    same(await bytesOf(reader, reader.tensors.get(x.name)!), x.bytes)
  await reader.close()
})

test('every block scheme has the length the format states', async () => {
  const out = join(tempFolder(), 'm.wia')
  // By hand from FORMAT §5.1 for 20 rows (2 panels) × 70 columns: bytes of a block.
  const blocks: [string, 32 | 64, 'f16' | 'f32', number][] = [
    ['int8', 32, 'f16', 512 + 32],
    ['int4', 32, 'f16', 256 + 32],
    ['int4', 64, 'f32', 512 + 64],
    ['int4m', 32, 'f16', 256 + 64],
    ['int4m', 64, 'f32', 512 + 128],
    ['nf4', 64, 'f16', 512 + 32],
    ['fp8_e4m3', 32, 'f32', 512 + 64],
    ['fp8_e5m2', 64, 'f16', 1024 + 32],
  ]
  const tensors = blocks.map(([scheme, block, scale, bytes], i) =>
    plain(`t${i}`, [20, 70], 'float32', {
      encoding: { kind: 'panel', scheme: scheme as 'int8', block, scale, exponent: i - 4 },
      byteLength: 2 * Math.ceil(70 / block) * bytes,
    }),
  )
  await write(out, tensors)
  const reader = await openWia(out, { verify: 'eager' })
  for (const t of tensors) {
    expect(reader.tensors.get(t.name)!.encoding).toEqual(t.encoding)
    same(await bytesOf(reader, reader.tensors.get(t.name)!), t.bytes)
  }
  expect(reader.head.quantization).toMatchObject({
    scheme: 'mixed',
    range: { fp8_e4m3: [-448, 448], fp8_e5m2: [-57344, 57344] },
  })
  await reader.close()
})

test('side files: configuration, graph, tokenizer, adapters, licence', async () => {
  const out = join(tempFolder(), 'm.wia')
  async function* stream() {
    yield Buffer.from('weights ')
    yield Buffer.from('of an adapter')
  }
  await write(out, [plain('a', [4])], {
    metadata: {
      ...METADATA,
      author: 'Zoë',
      license: 'MIT',
      created_date: '2026-01-02',
      input_shape: ['batch', 3],
      tags: ['x'],
    },
    architecture: { nodes: [] },
    config: { hidden_size: 64 },
    tokenizerFiles: new Map([['tokenizer.json', Buffer.from('{}')]]),
    sideFiles: new Map<string, Uint8Array | (() => AsyncIterable<Uint8Array>)>([
      ['metadata/license.txt', Buffer.from('MIT')],
      ['adapters/pirate/adapter_config.json', Buffer.from('{"r":8}')],
      ['adapters/pirate/adapter_model.safetensors', stream],
    ]),
    extensions: { used: ['com.example.note'], data: { 'com.example.note': { a: 1 } } },
  })
  for (const path of [out, join(out, 'manifest.json')]) {
    const reader = await openWia(path, { verify: 'eager' })
    expect(reader.config).toEqual({ hidden_size: 64 })
    expect(reader.architecture).toEqual({ nodes: [] })
    expect(reader.metadata).toMatchObject({
      author: 'Zoë',
      license: 'MIT',
      created_date: '2026-01-02',
      input_shape: ['batch', 3],
    })
    expect(Buffer.from(await reader.tokenizerFiles.get('tokenizer.json')!()).toString()).toBe('{}')
    expect(reader.adapters).toMatchObject([{ name: 'pirate', path: join(out, 'adapters', 'pirate') }])
    expect(Buffer.from(await reader.readFile('adapters/pirate/adapter_model.safetensors')).toString()).toBe(
      'weights of an adapter',
    )
    const sizes = ['manifest.json', 'architecture.json', 'config/model.json'].map((f) => statSync(join(out, f)).size)
    expect(reader.bytesRead).toBe(sizes.reduce((a, b) => a + b))
    await reader.close()
  }
})

test('identity is the SHA-256 of the canonical manifest, whatever its spelling on disk', async () => {
  const out = join(tempFolder(), 'm.wia')
  await write(out, [plain('b', [40, 40]), plain('a', [4])])
  const file = join(out, 'manifest.json')
  const text = readFileSync(file, 'utf8')
  // RFC 8785 by an independent implementation.
  expect(text).toBe(canonicalize(JSON.parse(text)))
  const identity = createHash('sha256').update(text).digest('hex')
  writeFileSync(file, JSON.stringify(JSON.parse(text), null, 2))
  const reader = await openWia(out)
  expect(reader.identity).toBe(identity)
  await reader.close()
})

test('the same input gives the same bytes, whatever the chunks', async () => {
  const folder = tempFolder()
  const tensors = [plain('b', [300, 40]), plain('a', [4]), plain('c', [64, 64], 'bfloat16')]
  const options = {
    maxShardBytes: 32768,
    pageBytes: 8192,
    shardChecksums: true,
    sideFiles: new Map([['metadata/x', seeded(1, 9)]]),
  }
  await write(join(folder, 'one'), tensors, options, 7)
  await write(join(folder, 'two'), tensors, options, 100000)
  const one = await openWia(join(folder, 'one'), { verify: 'eager' })
  const two = await openWia(join(folder, 'two'))
  expect(one.identity).toBe(two.identity)
  for (const s of [...one.head.shards.map((x) => x.file), 'weights/pages.sha256', 'manifest.json'])
    same(readFileSync(join(folder, 'one', s)), readFileSync(join(folder, 'two', s)))
  await one.close()
  await two.close()
})
