import { copyFileSync, readdirSync, readFileSync, statSync } from 'node:fs'
import { join } from 'node:path'
import { gguf as oracle } from '@huggingface/gguf'
import { expect, test } from 'vitest'
import { isSluiceError } from '#sluice/base/errors.js'
import { openGguf } from '#sluice/format/gguf/read.js'
import { ggmlType } from '#sluice/format/gguf/types.js'
import { openSafetensors } from '#sluice/format/safetensors/read.js'
import { type CountedSource, counted } from '#sluice/source/counted.js'
import { openFile } from '#sluice/source/openFile.js'
import { data, dataTest } from '../../data.ts'
import { folder } from '../safetensors/build.ts'
import { ARRAY, gguf, type Meta, STRING, type Tensor, U32 } from './build.ts'

async function refusal(path: string): Promise<string> {
  try {
    const reader = await openGguf(path)
    await reader.close()
  } catch (error) {
    if (isSluiceError(error)) return error.code
    throw error
  }
  return 'accepted'
}

function tensor(name: string, type = 0): Tensor {
  return { name, ne: [2], type, bytes: new Uint8Array(8) }
}

function part(no: number, tensors: Tensor[], more: readonly Meta[] = [], total = 3, count = 2): Uint8Array {
  return gguf([['split.no', 2, no], ['split.count', 2, count], ['split.tensors.count', 5, total], ...more], tensors)
}

const ONE = 'm-00001-of-00002.gguf'
const TWO = 'm-00002-of-00002.gguf'
const ARCH: Meta = ['general.architecture', STRING, 'llama']

test('a split model opens by its first file or its folder; tensors are in order of the files', async () => {
  const root = folder({ [ONE]: part(0, [tensor('a'), tensor('b')], [ARCH]), [TWO]: part(1, [tensor('c')], [ARCH]) })
  for (const path of [root, join(root, ONE)]) {
    const reader = await openGguf(path)
    expect([...reader.tensors].map(([name, t]) => [name, t.segments[0]!.source])).toEqual([
      ['a', 0],
      ['b', 0],
      ['c', 1],
    ])
    expect(reader.sources).toHaveLength(2)
    expect(reader.metadata).toEqual({ architecture: 'llama' })
    await reader.close()
  }
})

const A2 = part(0, [tensor('a'), tensor('b')], [ARCH])
test.each<[string, Record<string, Uint8Array>, string]>([
  ['missing', {}, 'SOURCE_IO'],
  ['another part', { [TWO]: part(0, [tensor('c')]) }, 'FORMAT_INVALID'],
  ['of another split', { [TWO]: part(1, [tensor('c')], [], 3, 3) }, 'FORMAT_INVALID'],
  ['of another total', { [TWO]: part(1, [tensor('c')], [], 4) }, 'FORMAT_INVALID'],
  ['short of a tensor', { [TWO]: part(1, []) }, 'FORMAT_INVALID'],
  ['one with a tensor of the first', { [TWO]: part(1, [tensor('a')]) }, 'FORMAT_INVALID'],
  [
    'of another architecture',
    { [TWO]: part(1, [tensor('c')], [['general.architecture', STRING, 'gpt2']]) },
    'FORMAT_INVALID',
  ],
  ['one with more metadata', { [TWO]: part(1, [tensor('c')], [['x', U32, 1]]) }, 'FORMAT_INVALID'],
  ['without split keys', { [TWO]: gguf([], [tensor('c')]) }, 'FORMAT_INVALID'],
])('a second part that is %s is refused', async (_, files, code) => {
  expect(await refusal(join(folder({ [ONE]: A2, ...files }), ONE))).toBe(code)
})

test('a split model is refused by another file than the first, or under another name', async () => {
  const root = folder({ [ONE]: A2, [TWO]: part(1, [tensor('c')]), 'x.gguf': A2 })
  await expect(openGguf(join(root, TWO))).rejects.toThrow(/m-00001-of-00002/)
  expect(await refusal(join(root, 'x.gguf'))).toBe('FORMAT_INVALID')
  expect(await refusal(root)).toBe('FORMAT_INVALID')
  expect(await refusal(folder({}))).toBe('FORMAT_INVALID')
})

test('opening reads the header in growing steps, not the tensors: at most twice the header and 16 KiB', async () => {
  const tokens = Array.from({ length: 20_000 }, (_, i) => `t${i}`)
  const header = gguf([['tokenizer.ggml.tokens', ARRAY, [STRING, tokens]]], [])
  const big: Tensor = { name: 'w', ne: [1024, 1024], type: 0, bytes: new Uint8Array(4 * 1024 ** 2) }
  const root = folder({ 'm.gguf': gguf([['tokenizer.ggml.tokens', ARRAY, [STRING, tokens]]], [big]) })
  const sources: CountedSource[] = []
  const open = async (path: string) => {
    sources.push(counted(await openFile(path, { mode: 'pread' }), { record: true }))
    return sources.at(-1)!
  }
  const reader = await openGguf(join(root, 'm.gguf'), { open })
  expect(reader.bytesRead).toBe(sources[0]!.bytes)
  expect(reader.bytesRead).toBeLessThan(2 * header.length + 16384)
  let at = 0
  for (const r of sources[0]!.ranges) {
    expect(r.offset).toBe(at) // nothing is read twice
    at += r.length
  }
  expect((reader.config['tokenizer.ggml.tokens'] as string[]).length).toBe(20_000)
  await reader.close()
})

test('types without a decoder are listed as opaque', async () => {
  // Q8_K: ggml has it in memory only.
  const root = folder({ 'm.gguf': gguf([], [{ name: 'w', ne: [256, 2], type: 15, bytes: new Uint8Array(584) }]) })
  const reader = await openGguf(root)
  expect(reader.tensors.get('w')).toMatchObject({
    shape: [2, 256],
    dtype: 'float32',
    encoding: { kind: 'opaque', type: 'Q8_K', block: 256, blockBytes: 292 },
    byteLength: 584,
  })
  await reader.close()
})

// Where our rules are stricter than ggml's header check: the table of docs/VERDICTS.md.
const STRICTER = new Map([['malformed/truncated-data.gguf', 'FORMAT_INVALID']])

dataTest('every file gets ggml’s verdict, or a documented stricter one', async () => {
  const root = data('foreign/gguf')
  const { cases } = JSON.parse(readFileSync(join(root, 'malformed/verdicts.json'), 'utf8')) as {
    cases: Record<string, { ggml: string }>
  }
  expect(Object.keys(cases).length).toBe(readdirSync(join(root, 'malformed')).length - 1)
  const document = readFileSync(join(import.meta.dirname, '../../../docs/VERDICTS.md'), 'utf8')
  for (const [name, verdict] of Object.entries(cases)) {
    const ours = await refusal(join(root, name))
    expect(ours).toMatch(/^(accepted|FORMAT_)/)
    if (STRICTER.has(name)) {
      expect(verdict.ggml, name).toBe('accepts')
      expect(ours, name).toBe(STRICTER.get(name))
      expect(document).toContain(`\`${name}\``)
    } else expect(ours === 'accepted' ? 'accepts' : 'refuses', `${name}: ${ours}`).toBe(verdict.ggml)
  }
})

function ggufFiles(): string[] {
  return [
    ...['stories260k/gguf', 'stories4m/gguf', 'stories-moe/gguf', 'tokenizers', 'foreign/gguf'].flatMap((d) =>
      readdirSync(data(d))
        .filter((n) => n.endsWith('.gguf') && n !== 'nested-array.gguf') // the oracle reads no nested arrays
        .map((n) => join(d, n)),
    ),
  ]
}

// As JSON shows them: the oracle has bigint where we have numbers or decimal strings, and its TextDecoder drops a byte order
// mark at the beginning of a text (a token of its own in the vocabulary of phi-3), which we keep.
const shown = (value: unknown) =>
  JSON.stringify(value, (_, v) => {
    if (typeof v === 'bigint') return Number.isSafeInteger(Number(v)) ? Number(v) : String(v)
    return typeof v === 'string' ? v.replace(/^\ufeff/, '') : v
  })

dataTest('metadata and tensor lists equal those of an independent reader', async () => {
  const files = ggufFiles()
  expect(files.length).toBeGreaterThan(20)
  for (const file of files) {
    const theirs = await oracle(data(file), { allowLocalFile: true })
    const reader = await openGguf(data(file))
    const { version, tensor_count, kv_count, ...metadata } = theirs.metadata as Record<string, unknown>
    expect(version, file).toBeOneOf([2, 3])
    expect(reader.tensors.size, file).toBe(Number(tensor_count))
    expect(Object.keys(reader.config).length, file).toBe(Number(kv_count))
    for (const key of Object.keys(reader.config))
      expect(shown(reader.config[key]) === shown(metadata[key]), `${file} ${key}`).toBe(true)
    expect(
      [...reader.tensors.values()].map((t) => [t.name, [...t.shape]]),
      file,
    ).toEqual(theirs.tensorInfos.map((t) => [t.name, t.shape.map(Number).reverse()]))
    for (const t of theirs.tensorInfos) {
      const entry = reader.tensors.get(t.name)!
      expect(entry.segments[0]!.offset, `${file} ${t.name}`).toBe(Number(theirs.tensorDataOffset) + Number(t.offset))
      const type = ggmlType(t.dtype, 'x')
      expect(entry.byteLength).toBe((entry.rows * entry.cols * type.blockBytes) / type.block)
    }
    await reader.close()
  }
})

dataTest('every metadata type, as the file’s author wrote it down', async () => {
  const expected = JSON.parse(readFileSync(data('foreign/gguf/all-metadata-types.json'), 'utf8')) as {
    metadata: Record<string, unknown>
    nested: Record<string, unknown>
    tensors: Record<string, { shape?: number[] }>
  }
  for (const [file, more] of [
    ['all-metadata-types.gguf', {}],
    ['nested-array.gguf', expected.nested],
  ] as const) {
    const reader = await openGguf(data('foreign/gguf', file))
    // 64-bit numbers that fit are numbers here, and always strings there.
    const asThere = (v: unknown): unknown => (Array.isArray(v) ? v.map(asThere) : v)
    const wanted = { ...expected.metadata, ...more, 'x.arr.i64': [-1, '9007199254740993'] }
    for (const [key, value] of Object.entries(wanted)) expect(asThere(reader.config[key]), key).toEqual(value)
    for (const [name, t] of Object.entries(expected.tensors))
      if (t.shape !== undefined) expect(reader.tensors.get(name)!.shape).toEqual(t.shape)
    await reader.close()
  }
})

dataTest('block sizes are those of the blocks ggml wrote', async () => {
  const blocks = await openSafetensors(data('quant/ggml-blocks.safetensors'))
  const types = new Map(
    Array.from({ length: 43 }, (_, id) => id).flatMap((id) => {
      try {
        const type = ggmlType(id, 'x')
        return [[type.name, type] as const]
      } catch {
        return []
      }
    }),
  )
  let checked = 0
  for (const [name, entry] of blocks.tensors) {
    if (!name.endsWith('.blocks')) continue
    const type = types.get(name.slice(0, -7))!
    expect(entry.cols, name).toBe((512 * type.blockBytes) / type.block)
    checked++
  }
  expect(checked).toBe(27)
  await blocks.close()
})

dataTest('a vocabulary of 152,000 tokens is read once and nothing after it', async () => {
  const path = data('tokenizers/ggml-vocab-qwen2.gguf')
  const reader = await openGguf(path)
  // Header reads grow in steps: at most the header and as much again.
  expect(reader.bytesRead).toBeLessThanOrEqual(2 * statSync(path).size)
  await reader.close()
})

dataTest('a copy under the same name has the same identity', async () => {
  const root = folder({})
  const path = data('stories260k/gguf/stories260K-F16.gguf')
  copyFileSync(path, join(root, 'x.gguf'))
  const a = await openGguf(path)
  const b = await openGguf(join(root, 'x.gguf'))
  const c = await openGguf(data('stories260k/gguf/stories260K-BF16.gguf'))
  expect(a.identity).toBe(b.identity)
  expect(a.identity).not.toBe(c.identity)
  for (const r of [a, b, c]) await r.close()
})
