import { cpSync, mkdirSync, readdirSync, readFileSync, symlinkSync } from 'node:fs'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { isSluiceError } from '#sluice/base/errors.js'
import { openSafetensors } from '#sluice/format/safetensors/read.js'
import { type CountedSource, counted } from '#sluice/source/counted.js'
import { openFile } from '#sluice/source/openFile.js'
import { data, dataTest } from '../../data.ts'
import { f32, folder, safetensors } from './build.ts'

const A = { name: 'a', dtype: 'F32', shape: [2, 3], bytes: f32(1, 2, 3, 4, 5, 6) }
const B = { name: '__proto__', dtype: 'F32', shape: [2], bytes: f32(7, 8) }

function indexOf(map: Record<string, string>): string {
  // Not an object literal with __proto__ in it: that would set the prototype.
  return `{"metadata":{"total_size":32},"weight_map":{${Object.entries(map).map(([k, v]) => `${JSON.stringify(k)}:${JSON.stringify(v)}`)}}}`
}
const GOOD_MAP = Object.fromEntries([
  ['a', 's1.safetensors'],
  ['__proto__', 's2.safetensors'],
])

async function refusal(path: string): Promise<string> {
  try {
    const reader = await openSafetensors(path)
    await reader.close()
  } catch (error) {
    if (isSluiceError(error)) return error.code
    throw error
  }
  return 'accepted'
}

test('opens a file and reads nothing but its header', async () => {
  const file = safetensors([A, B])
  const root = folder({ 'model.safetensors': file })
  const sources: CountedSource[] = []
  const open = async (path: string) => {
    sources.push(counted(await openFile(path, { mode: 'pread' })))
    return sources.at(-1)!
  }
  const reader = await openSafetensors(join(root, 'model.safetensors'), { open })
  expect(sources[0]!.bytes).toBe(file.length - 32)
  expect(reader.bytesRead).toBe(file.length - 32)
  expect([...reader.tensors.keys()]).toEqual(['a', '__proto__'])
  expect(reader.tensors.get('a')).toEqual({
    name: 'a',
    shape: [2, 3],
    dtype: 'float32',
    encoding: { kind: 'plain', dtype: 'float32' },
    rows: 2,
    cols: 3,
    byteLength: 24,
    segments: [{ source: 0, offset: file.length - 32, length: 24, rowStart: 0, rows: 2 }],
  })
  expect(reader.config).toEqual({})
  await reader.close()
})

test('a folder with an index: config, tokenizer files, tensors in storage order', async () => {
  const root = folder({
    's1.safetensors': safetensors([A], { format: 'pt' }),
    's2.safetensors': safetensors([B]),
    'model.safetensors.index.json': indexOf(GOOD_MAP),
    'config.json': '{"model_type":"llama","quantization_config":{"quant_method":"gptq"}}',
    'tokenizer.json': '{"version":"1.0"}',
  })
  for (const path of [root, join(root, 'model.safetensors.index.json')]) {
    const reader = await openSafetensors(path)
    expect([...reader.tensors].map(([name, t]) => [name, t.segments[0]!.source])).toEqual([
      ['a', 0],
      ['__proto__', 1],
    ])
    expect(reader.config).toEqual({ model_type: 'llama', quantization_config: { quant_method: 'gptq' } })
    expect(reader.metadata).toEqual({ total_size: 32, format: 'pt' })
    expect([...reader.tokenizerFiles.keys()]).toEqual(['tokenizer.json'])
    expect(new TextDecoder().decode(await reader.tokenizerFiles.get('tokenizer.json')!())).toBe('{"version":"1.0"}')
    await reader.close()
  }
})

test.each([
  ['a tensor that the shard lacks', { ...GOOD_MAP, c: 's1.safetensors' }, 'FORMAT_INVALID'],
  ['a tensor that the index lacks', { a: 's1.safetensors', b: 's2.safetensors' }, 'FORMAT_INVALID'],
  [
    'tensors in each other’s shard',
    Object.fromEntries([
      ['a', 's2.safetensors'],
      ['__proto__', 's1.safetensors'],
    ]),
    'FORMAT_INVALID',
  ],
  ['a file that is not there', { ...GOOD_MAP, c: 's3.safetensors' }, 'SOURCE_IO'],
  ['a file outside', { ...GOOD_MAP, c: '../s3.safetensors' }, 'PATH_FORBIDDEN'],
  ['an absolute path', { ...GOOD_MAP, c: '/etc/x.safetensors' }, 'PATH_FORBIDDEN'],
  ['a file of another kind', { ...GOOD_MAP, c: 'pytorch_model.bin' }, 'FORMAT_INVALID'],
])('an index with %s is refused', async (_, map, code) => {
  const root = folder({
    's1.safetensors': safetensors([A]),
    's2.safetensors': safetensors([B]),
    'model.safetensors.index.json': indexOf(map as Record<string, string>),
  })
  expect(await refusal(root)).toBe(code)
})

test('one tensor in two shards is refused', async () => {
  const root = folder({
    's1.safetensors': safetensors([A]),
    's2.safetensors': safetensors([{ ...A, bytes: f32(0, 0, 0, 0, 0, 0) }, B]),
    'model.safetensors.index.json': indexOf(GOOD_MAP),
  })
  expect(await refusal(root)).toBe('FORMAT_INVALID')
})

test('a folder without a model, or with two, is refused', async () => {
  expect(await refusal(folder({ 'config.json': '{}' }))).toBe('FORMAT_INVALID')
  expect(await refusal(folder({ 'a.safetensors': safetensors([A]), 'b.safetensors': safetensors([A]) }))).toBe(
    'FORMAT_INVALID',
  )
  expect(await refusal('/nonexistent/model')).toBe('SOURCE_IO')
})

test('a broken shard closes what was opened before it', async () => {
  const root = folder({
    's1.safetensors': safetensors([A]),
    's2.safetensors': safetensors([B]).slice(0, -1),
    'model.safetensors.index.json': indexOf(GOOD_MAP),
  })
  const sources: CountedSource[] = []
  const open = async (path: string) => {
    sources.push(counted(await openFile(path, { mode: 'pread' })))
    return sources.at(-1)!
  }
  await expect(openSafetensors(root, { open })).rejects.toMatchObject({ code: 'FORMAT_INVALID' })
  expect(sources).toHaveLength(2)
  for (const s of sources) await expect(async () => s.read(0, 1)).rejects.toMatchObject({ code: 'SOURCE_CLOSED' })
})

test('a hub cache opens: a snapshot is a folder of links into blobs. A link elsewhere does not', async () => {
  const root = folder({
    'blobs/aa': indexOf(GOOD_MAP),
    'blobs/bb': safetensors([A]),
    'blobs/cc': safetensors([B]),
    'blobs/dd': '{"model_type":"llama"}',
    'elsewhere/secret': 'secret',
  })
  const snapshot = join(root, 'snapshots/1')
  mkdirSync(snapshot, { recursive: true })
  const links = {
    'model.safetensors.index.json': 'aa',
    's1.safetensors': 'bb',
    's2.safetensors': 'cc',
    'config.json': 'dd',
  }
  for (const [name, blob] of Object.entries(links)) symlinkSync(`../../blobs/${blob}`, join(snapshot, name))
  symlinkSync('../../elsewhere/secret', join(snapshot, 'tokenizer.json'))
  const reader = await openSafetensors(snapshot)
  expect([...reader.tensors.keys()]).toEqual(['a', '__proto__'])
  expect(reader.config).toEqual({ model_type: 'llama' })
  await expect(reader.tokenizerFiles.get('tokenizer.json')!()).rejects.toMatchObject({ code: 'PATH_FORBIDDEN' })
  await reader.close()
})

test('100,000 tensors open', async () => {
  const tensors = Array.from({ length: 100_000 }, (_, i) => ({
    name: `model.layers.${i >> 8}.mlp.experts.${i & 255}.down_proj.weight`,
    dtype: 'BF16',
    shape: [1, 2],
    bytes: new Uint8Array(4),
  }))
  const root = folder({ 'model.safetensors': safetensors(tensors) })
  const reader = await openSafetensors(root)
  expect(reader.tensors.size).toBe(100_000)
  await reader.close()
})

// Where our rules are stricter than the reference: the table of docs/VERDICTS.md.
const STRICTER = new Map([
  ['malformed/field-extra.safetensors', 'FORMAT_INVALID'],
  ['malformed/leading-space.safetensors', 'FORMAT_INVALID'],
  ['valid/all-dtypes.safetensors', 'FORMAT_UNSUPPORTED'],
])

dataTest('every file gets the verdict of the reference implementation, or a documented stricter one', async () => {
  const root = data('foreign/safetensors')
  const { cases } = JSON.parse(readFileSync(join(root, 'verdicts.json'), 'utf8')) as {
    cases: Record<string, { rust_crate: string; detail: string }>
  }
  expect(Object.keys(cases).length).toBe(
    readdirSync(join(root, 'malformed')).length + readdirSync(join(root, 'valid')).length,
  )
  const document = readFileSync(join(import.meta.dirname, '../../../docs/VERDICTS.md'), 'utf8')
  for (const [name, verdict] of Object.entries(cases)) {
    const ours = await refusal(join(root, name))
    if (STRICTER.has(name)) {
      expect(verdict.rust_crate, name).toBe('accepts')
      expect(ours, name).toBe(STRICTER.get(name))
      expect(document).toContain(`\`${name}\``)
    } else {
      expect(ours === 'accepted' ? 'accepts' : 'refuses', `${name}: ${ours}`).toBe(verdict.rust_crate)
      // JSON_INVALID, FORMAT_…: never a failure of the machine that reads
      expect(ours).toMatch(/^(accepted|FORMAT_|JSON_)/)
    }
  }
})

dataTest('names of the reference for a valid file: escapes, scripts, path-like, __proto__', async () => {
  const reader = await openSafetensors(data('foreign/safetensors/valid/escaped-names.safetensors'))
  expect([...reader.tensors.keys()].sort()).toEqual(
    ['../../etc/passwd', '', '__proto__', 'a"b\\c', 'constructor', '모델.층.0'].sort(),
  )
  await reader.close()
})

dataTest('a real checkpoint in three shards opens in any mode', async () => {
  for (const mode of ['pread', 'auto', 'direct'] as const) {
    const reader = await openSafetensors(data('stories260k/hf'), { mode })
    expect(reader.tensors.size).toBe(47)
    expect(reader.sources).toHaveLength(3)
    expect(reader.config).toMatchObject({ model_type: 'llama', hidden_size: 64 })
    expect([...reader.tokenizerFiles.keys()]).toEqual([
      'tokenizer.json',
      'tokenizer.model',
      'tokenizer_config.json',
      'special_tokens_map.json',
      'generation_config.json',
    ])
    expect(reader.bytesRead).toBeLessThan(20_000)
    await reader.close()
  }
})

dataTest('a copy of a checkpoint has its identity; one of another dtype has not', async () => {
  const copy = folder({})
  cpSync(data('stories260k/hf-f16'), join(copy, 'm'), { recursive: true })
  const ids = []
  for (const path of [data('stories260k/hf-f16'), join(copy, 'm'), data('stories260k/hf-bf16')]) {
    const reader = await openSafetensors(path)
    ids.push(reader.identity)
    await reader.close()
  }
  expect(ids[0]).toBe(ids[1])
  expect(ids[0]).not.toBe(ids[2])
})
