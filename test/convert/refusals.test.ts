// What conversion refuses, and that nothing is left under the output's name when it does.
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { appendFileSync, cpSync, existsSync, mkdirSync, readdirSync, renameSync, rmSync, writeFileSync } from 'node:fs'
import { basename, dirname, join } from 'node:path'
import { expect, test } from 'vitest'
import { open } from '#sluice/api/model.js'
import { isSluiceError, type SluiceError } from '#sluice/base/errors.js'
import { type ConvertOptions, convertToWia } from '#sluice/convert/convert.js'
import { OutputFolder } from '#sluice/format/wia/output.js'
import { SIZE } from '../arch/toy.ts'
import { folder } from '../format/safetensors/build.ts'
import { contents, convert, STORYTELLER, scratch, toyFiles, withModel } from './made.ts'

const root = scratch()
const at = (name: string) => join(root, name)

async function refusal(work: () => Promise<unknown>): Promise<SluiceError> {
  try {
    await work()
  } catch (error) {
    if (isSluiceError(error)) return error
    throw error
  }
  throw new Error('was not refused')
}

/** The refusal of a conversion to `name`, after which nothing of it is there. */
async function nothingLeft(source: string, name: string, options: ConvertOptions = {}): Promise<SluiceError> {
  const error = await refusal(() => convert(source, at(name), options))
  expect(readdirSync(root).filter((n) => n.includes(name))).toEqual([])
  return error
}

const Q = 'model.layers.1.self_attn.q_proj.weight'

test.each([
  ['NaN', Number.NaN, 3],
  ['infinity', Number.POSITIVE_INFINITY, 5],
  ['-infinity', Number.NEGATIVE_INFINITY, 0],
])('%s in a weight names tensor and element', async (_, value, index) => {
  const source = folder(toyFiles(SIZE, {}, (t) => (t.get(Q)!.data[index] = value)))
  for (const quantization of ['int8', 'int4', 'nf4', 'fp8_e5m2', 'f16', 'bf16'] as const) {
    const error = await nothingLeft(source, 'nan', { quantization })
    expect([error.code, error.message]).toEqual(['QUANT_RANGE', expect.stringContaining(`${Q}, element ${index}`)])
    expect(error.details).toMatchObject({ tensor: Q, element: index })
  }
  // Kept numbers are not judged: NaN and all, they are the bytes that were there.
  await convert(source, at(`kept-${index}`), { quantization: 'f32' })
  await withModel(at(`kept-${index}`), async (m) => expect((await m.tensor(Q).astype('float32'))[index]).toBe(value))
})

test('a number too large for float16 names tensor and element', async () => {
  const source = folder(toyFiles(SIZE, {}, (t) => (t.get(Q)!.data[SIZE.hidden * 2 + 1] = 1e6)))
  const error = await nothingLeft(source, 'large', { quantization: 'f16' })
  expect([error.code, error.details.tensor, error.details.element]).toEqual(['QUANT_RANGE', Q, SIZE.hidden * 2 + 1])
  // Blocks have a power of two of their own.
  await convert(source, at('large-int8'), { quantization: 'int8' })
})

test('missing, extra and misshapen tensors by name, before anything is written', async () => {
  const missing = folder(toyFiles(SIZE, {}, (t) => t.delete(Q)))
  const extra = folder(toyFiles(SIZE, {}, (t) => t.set('model.extra', { shape: [1], data: new Float32Array(1) })))
  const shape = folder(toyFiles(SIZE, {}, (t) => t.set('model.norm.weight', { shape: [2], data: new Float32Array(2) })))
  for (const [source, code, name] of [
    [missing, 'TENSOR_MISSING', Q],
    [extra, 'TENSOR_UNEXPECTED', 'model.extra'],
    [shape, 'TENSOR_SHAPE', 'model.norm.weight'],
  ] as const) {
    const error = await nothingLeft(source, code)
    expect([error.code, error.message]).toEqual([code, expect.stringContaining(name)])
  }
})

test('cancelled half-way', async () => {
  const abort = new AbortController()
  const model = await open(STORYTELLER)
  let reads = 0
  const sources = model.reader.sources.map((s) => ({
    ...s,
    id: s.id,
    size: s.size,
    close: () => s.close(),
    read: (...args: Parameters<typeof s.read>) => {
      if (++reads === 20) abort.abort()
      return s.read(...args)
    },
  }))
  try {
    const error = await refusal(() =>
      convertToWia({ ...model.reader, sources }, model.architecture(), at('abort'), {
        quantization: 'int4',
        signal: abort.signal,
      }),
    )
    expect(error.code).toBe('ABORTED')
  } finally {
    await model.close()
  }
  expect(reads).toBeGreaterThanOrEqual(20)
  expect(readdirSync(root).filter((n) => n.includes('abort'))).toEqual([])
})

test('a full disk is foreseen, an existing output is refused', async () => {
  const error = await nothingLeft(STORYTELLER, 'full', { freeBytes: () => 5_000_000 })
  expect([error.code, error.details.freeBytes]).toEqual(['DISK_FULL', 5_000_000])
  expect(error.details.requiredBytes).toBeGreaterThan(5_300_000)

  await convert(STORYTELLER, at('taken'), { quantization: 'int8' })
  const before = contents(at('taken'))
  expect((await refusal(() => convert(STORYTELLER, at('taken')))).code).toBe('OUTPUT_EXISTS')
  expect(contents(at('taken'))).toEqual(before)
  await convert(STORYTELLER, at('taken'), { force: true })
  expect(contents(at('taken'))).not.toEqual(before)
  mkdirSync(at('other'))
  writeFileSync(join(at('other'), 'letter.txt'), 'dear')
  expect((await refusal(() => convert(STORYTELLER, at('other'), { force: true }))).code).toBe('OUTPUT_EXISTS')
  expect(readdirSync(at('other'))).toEqual(['letter.txt'])
})

test('source and output in each other’s way', async () => {
  cpSync(STORYTELLER, at('deep/model.wia'), { recursive: true })
  const source = at('deep/model.wia')
  const before = contents(source)
  for (const [output, options] of [
    [source, {}],
    [source, { force: true, quantization: 'int8' }],
    [join(source, 'inner.wia'), {}],
    [join(source, '..', 'model.wia', 'weights', 'x'), {}],
    [at('deep'), { force: true }],
  ] as [string, ConvertOptions][])
    expect((await refusal(() => convert(source, output, options))).code, output).toBe('REQUEST_INVALID')
  const checkpoint = folder(toyFiles(SIZE))
  expect((await refusal(() => convert(checkpoint, checkpoint, { force: true }))).code).toBe('REQUEST_INVALID')
  // A file's neighbours are no part of it.
  await convert(join(checkpoint, 'model.safetensors'), join(checkpoint, 'beside.wia'))
  expect(contents(source)).toEqual(before)
})

test('a source that changes meanwhile', async () => {
  const source = folder(toyFiles(SIZE))
  const model = await open(source, { ioMode: 'pread' })
  try {
    appendFileSync(join(source, 'model.safetensors'), 'more')
    const error = await refusal(() => convertToWia(model.reader, model.architecture(), at('changed')))
    expect(error.code).toBe('SOURCE_CHANGED')
  } finally {
    await model.close()
  }
  expect(readdirSync(root).filter((n) => n.includes('changed'))).toEqual([])
})

const partials = (name: string) => readdirSync(root).filter((n) => n.startsWith(`.${name}.partial-`))

test('a killed conversion leaves a hidden folder that the next one clears away; those of others stay', async () => {
  // The child stops for good in the middle of the first tensor.
  const script = `
    import { createWiaWriter } from '#sluice/format/wia/write.js'
    const w = createWiaWriter(process.argv[1], { metadata: { model_name: 'k', version: '1.0.0' } })
    w.plan([{ name: 't', shape: [64], dtype: 'float32', encoding: { kind: 'plain', dtype: 'float32' }, rows: 1, cols: 64, byteLength: 256 }])
    await w.put('t', (async function* () {
      yield new Uint8Array(128)
      console.log('writing')
      await new Promise((resolve) => setTimeout(resolve, 60_000))
    })())`
  const kill = async () => {
    const child = spawn(process.execPath, ['--input-type=module', '-e', script, at('killed')], {
      cwd: dirname(import.meta.dirname),
      stdio: ['ignore', 'pipe', 'inherit'],
    })
    await once(child.stdout, 'data')
    const during = partials('killed')
    await convert(STORYTELLER, at('killed'), { force: true })
    expect(partials('killed')).toEqual(during) // it is alive: hands off
    child.kill('SIGKILL')
    await once(child, 'exit')
    return during
  }
  const left = await kill()
  expect(left).toHaveLength(1)
  expect(partials('killed')).toEqual(left)
  const foreign = left[0]!.replace(/partial-[0-9a-f]{8}/, 'partial-00000000')
  mkdirSync(at(foreign))
  const similar = `.killed.partial-notes`
  mkdirSync(at(similar))
  await convert(STORYTELLER, at('killed'), { force: true })
  expect(partials('killed').sort()).toEqual([foreign, similar].sort())

  // Killed between moving the old package aside and putting the new one in its place: the old one comes back.
  renameSync(at('killed'), at(`${left[0]}.old`))
  mkdirSync(at(left[0]!))
  expect(existsSync(at('killed'))).toBe(false)
  expect((await refusal(() => convert(STORYTELLER, at('killed')))).code).toBe('OUTPUT_EXISTS')
  expect(contents(at('killed')).has('manifest.json')).toBe(true)
  expect(partials('killed').sort()).toEqual([foreign, similar].sort())
  rmSync(at(foreign), { recursive: true })
})

test('a temporary folder says whose it is', () => {
  const name = basename(new OutputFolder(at('mine'), false).temporary)
  expect(name).toMatch(new RegExp(`^\\.mine\\.partial-[0-9a-f]{8}-${process.pid}-[0-9a-f]{8}$`))
})
