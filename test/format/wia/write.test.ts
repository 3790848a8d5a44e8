// The writer keeps its promises when things go wrong: nothing under the final name, nothing left behind, nothing overwritten unasked.
import { execFileSync } from 'node:child_process'
import { existsSync, mkdirSync, readdirSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs'
import { join, resolve } from 'node:path'
import { expect, test } from 'vitest'
import { isSluiceError } from '#sluice/base/errors.js'
import { openWia } from '#sluice/format/wia/read.js'
import { createWiaWriter } from '#sluice/format/wia/write.js'
import { chunks, METADATA, plain, tempFolder, write } from './fixtures.ts'

const code = async (run: () => unknown): Promise<string> => {
  try {
    await run()
    return 'nothing was thrown'
  } catch (error) {
    return isSluiceError(error) ? error.code : String(error)
  }
}

test('an existing output is refused, and replaced with force only when it is a package', async () => {
  const folder = tempFolder()
  const out = join(folder, 'm.wia')
  await write(out, [plain('a', [4])])
  expect(await code(() => write(out, [plain('b', [4])]))).toBe('OUTPUT_EXISTS')
  await write(out, [plain('b', [4])], { force: true })
  const reader = await openWia(out, { verify: 'eager' })
  expect([...reader.tensors.keys()]).toEqual(['b'])
  await reader.close()

  const home = join(folder, 'home')
  mkdirSync(home)
  writeFileSync(join(home, 'letters.txt'), 'dear')
  expect(await code(() => write(home, [plain('b', [4])], { force: true }))).toBe('OUTPUT_EXISTS')
  symlinkSync(out, join(folder, 'link'))
  expect(await code(() => write(join(folder, 'link'), [plain('b', [4])], { force: true }))).toBe('OUTPUT_EXISTS')
  expect(readdirSync(folder).sort()).toEqual(['home', 'link', 'm.wia'])
})

test('an aborted writer leaves nothing', async () => {
  const folder = tempFolder()
  const out = join(folder, 'm.wia')
  const a = plain('a', [64, 64])
  const writer = createWiaWriter(out, { metadata: METADATA })
  writer.plan([a])
  await writer.put('a', chunks(a.bytes))
  expect(readdirSync(folder).length).toBe(1)
  await writer.abort()
  await writer.abort()
  expect(readdirSync(folder)).toEqual([])
  expect(await code(() => writer.finish())).toBe('REQUEST_INVALID')
})

test('a source that fails, data of another length, wrong order, a signal: all leave nothing', async () => {
  const folder = tempFolder()
  const a = plain('a', [64, 64])
  const start = (options = {}) => {
    const writer = createWiaWriter(join(folder, 'm.wia'), { metadata: METADATA, ...options })
    writer.plan([a, plain('i', [2], 'float32', { inline: true })])
    return writer
  }
  async function* broken() {
    yield a.bytes.subarray(0, 100)
    throw new Error('the source broke')
  }
  expect(await code(() => start().put('a', broken()))).toBe('Error: the source broke')
  expect(await code(() => start().put('a', [a.bytes, new Uint8Array(1)]))).toBe('FORMAT_INVALID')
  expect(await code(() => start().put('a', [a.bytes.subarray(1)]))).toBe('FORMAT_INVALID')
  expect(await code(() => start().put('i', [new Uint8Array(8)]))).toBe('REQUEST_INVALID')
  expect(await code(() => start().put('a', [new Float32Array(4096) as unknown as Uint8Array]))).toBe('REQUEST_INVALID')
  expect(await code(() => start().finish())).toBe('REQUEST_INVALID')
  expect(await code(() => start({ signal: AbortSignal.abort() }).put('a', [a.bytes]))).toBe('ABORTED')
  expect(readdirSync(folder)).toEqual([])
})

test('a disk that is too small is foreseen', async () => {
  const folder = tempFolder()
  const a = plain('a', [64, 64])
  expect(await code(() => write(join(folder, 'm.wia'), [a], { freeBytes: () => 16383 }))).toBe('DISK_FULL')
  expect(readdirSync(folder)).toEqual([])
  await write(join(folder, 'm.wia'), [a], { freeBytes: () => 20000 })
})

const script = (body: string) => `
  import { createWiaWriter } from '${resolve(import.meta.dirname, '../../../dist/format/wia/write.js')}'
  const bytes = new Uint8Array(1 << 20)
  const t = { name: 'a', shape: [1024, 256], dtype: 'float32', encoding: { kind: 'plain', dtype: 'float32' }, rows: 1024, cols: 256, byteLength: 1 << 20 }
  const writer = createWiaWriter(process.argv[1], { metadata: { model_name: 'x', version: '1.0.0' } })
  writer.plan([t])
  ${body}`

test.skipIf(process.platform === 'win32')(
  'a write that the system refuses for space is DISK_FULL and leaves nothing',
  () => {
    const folder = tempFolder()
    // A limit on file size is a full disk that needs no rights: write(2) fails with EFBIG.
    const program = script(`
    try { await writer.put('a', [bytes]); await writer.finish(); console.log('written') }
    catch (error) { console.log(error.code) }`)
    const run = `ulimit -f 256; exec "$0" --input-type=module -e "$1" "$2"`
    const printed = execFileSync('sh', ['-c', run, process.execPath, program, join(folder, 'm.wia')], {
      encoding: 'utf8',
    })
    expect(printed.trim()).toBe('DISK_FULL')
    expect(readdirSync(folder)).toEqual([])
  },
)

test.skipIf(process.platform === 'win32')('a killed writer leaves nothing under the final name', () => {
  const folder = tempFolder()
  const program = script(`
    async function* half() { yield bytes.subarray(0, 1 << 19); process.kill(process.pid, 'SIGKILL'); await new Promise(() => setTimeout(() => {}, 1e6)) }
    await writer.put('a', half())`)
  expect(() =>
    execFileSync(process.execPath, ['--input-type=module', '-e', program, join(folder, 'm.wia')], { stdio: 'ignore' }),
  ).toThrow()
  expect(existsSync(join(folder, 'm.wia'))).toBe(false)
  expect(readdirSync(folder).every((f) => f.startsWith('.m.wia.partial-'))).toBe(true)
})

test('what a reader would refuse is refused before a byte is written', async () => {
  const folder = tempFolder()
  const out = join(folder, 'm.wia')
  const planned = (t: ReturnType<typeof plain>, options = {}) =>
    code(() => createWiaWriter(out, { metadata: METADATA, ...options }).plan([t]))
  const panel = { kind: 'panel', scheme: 'int4', block: 32, scale: 'f16', exponent: 0 } as const
  const a = plain('a', [4, 4])
  expect(await planned({ ...a, name: '' })).toBe('FORMAT_INVALID')
  expect(await planned({ ...a, byteLength: 60 })).toBe('FORMAT_INVALID')
  expect(await planned({ ...a, rows: 2, cols: 8 })).toBe('FORMAT_INVALID')
  expect(await planned({ ...a, strides: [0, 1] })).toBe('FORMAT_INVALID')
  expect(await planned({ ...a, layout: 'diagonal' })).toBe('FORMAT_UNSUPPORTED')
  expect(await planned({ ...a, aliasOf: 'nothing' })).toBe('FORMAT_INVALID')
  expect(await planned({ ...a, encoding: { kind: 'ggml', type: 'Q8_0' } })).toBe('FORMAT_UNSUPPORTED')
  expect(await planned({ ...a, encoding: { kind: 'plain', dtype: 'float32', bigEndian: true } })).toBe(
    'FORMAT_UNSUPPORTED',
  )
  expect(await planned({ ...a, dtype: 'float16', encoding: panel, byteLength: 288 })).toBe('FORMAT_INVALID')
  expect(await planned({ ...a, encoding: { ...panel, block: 48 as 32 }, byteLength: 288 })).toBe('QUANT_UNSUPPORTED')
  expect(await planned(plain('big', [2 ** 20]), { maxShardBytes: 65536 })).toBe('REQUEST_INVALID')
  expect(await planned(plain('big', [2 ** 19], 'float32', { inline: true }))).toBe('FORMAT_INVALID')
  expect(await planned(a, { extensions: { data: { unused: 1 } } })).toBe('FORMAT_INVALID')
  expect(await planned(a, { quantization: { scheme: 'int4' } })).toBe('FORMAT_INVALID')
  expect(await planned(a, { metadata: { ...METADATA, author: 7 } })).toBe('FORMAT_INVALID')
  expect(await planned(a, { metadata: { ...METADATA, surprise: 7 } })).toBe('FORMAT_INVALID')
  expect(await planned(a, { sideFiles: new Map([['../x', new Uint8Array()]]) })).toBe('PATH_FORBIDDEN')
  expect(await planned(a, { sideFiles: new Map([['weights/x.bin', new Uint8Array()]]) })).toBe('PATH_FORBIDDEN')
  expect(await planned(a, { maxShardBytes: 100 })).toBe('REQUEST_INVALID')
  expect(await planned(a, { pageBytes: 2 ** 23 })).toBe('REQUEST_INVALID')
  expect(readdirSync(folder)).toEqual([])
})

test('memory stays small while a large tensor streams', async () => {
  const out = join(tempFolder(), 'm.wia')
  const t = plain('t', [1, 1])
  const big = { ...t, shape: [16384, 2048], rows: 16384, cols: 2048, byteLength: 16384 * 2048 * 4 }
  const piece = new Uint8Array(1 << 20)
  const writer = createWiaWriter(out, { metadata: METADATA })
  writer.plan([big])
  const before = process.memoryUsage().rss
  let peak = 0
  await writer.put(
    't',
    (function* () {
      for (let i = 0; i < 128; i++) {
        piece.fill(i)
        yield piece
        peak = Math.max(peak, process.memoryUsage().rss)
      }
    })(),
  )
  await writer.finish()
  expect(peak - before).toBeLessThan(40e6)
  const bytes = readFileSync(join(out, 'weights/model-00000.bin'))
  for (let i = 0; i < 128; i++) expect(bytes[i * (1 << 20) + 12345]).toBe(i)
})
