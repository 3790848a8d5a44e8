// openModel chooses the reader by what a path is.
import { mkdirSync, symlinkSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { isSluiceError } from '#sluice/base/errors.js'
import { openModel, sniff } from '#sluice/format/open.js'
import { data, dataTest } from '../data.ts'
import { plain, tempFolder, write } from './wia/fixtures.ts'

const code = async (run: () => Promise<unknown>): Promise<string> => {
  try {
    return `${JSON.stringify(await run())}`
  } catch (error) {
    return isSluiceError(error) ? error.code : String(error)
  }
}

/** The smallest safetensors file: one float32. */
function safetensors(): Uint8Array {
  const header = Buffer.from('{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}')
  const length = Buffer.alloc(8)
  length.writeBigUInt64LE(BigInt(header.length))
  return Buffer.concat([length, header, Buffer.alloc(4)])
}

test('a package, a safetensors file, its folder and a blob without an ending', async () => {
  const folder = tempFolder()
  const out = join(folder, 'm.wia')
  await write(out, [plain('a', [4])])
  for (const path of [out, join(out, 'manifest.json')]) {
    const reader = await openModel(path, { verify: 'eager', mode: 'pread' })
    expect(reader.format).toBe('wia')
    await reader.close()
  }
  mkdirSync(join(folder, 'hf'))
  writeFileSync(join(folder, 'hf/model.safetensors'), safetensors())
  writeFileSync(join(folder, 'blob'), safetensors())
  for (const path of [join(folder, 'hf'), join(folder, 'hf/model.safetensors'), join(folder, 'blob')]) {
    const reader = await openModel(path, { mode: 'pread' })
    expect([reader.format, [...reader.tensors.keys()]]).toEqual(['safetensors', ['a']])
    await reader.close()
  }
})

test('a folder with a GGUF or a split one; several are refused; what is not read is refused by name', async () => {
  const folder = tempFolder()
  const at = (name: string, ...files: string[]) => {
    mkdirSync(join(folder, name))
    for (const f of files) writeFileSync(join(folder, name, f), 'GGUF')
    return join(folder, name)
  }
  const split = at('split', 'm-00001-of-00002.gguf', 'm-00002-of-00002.gguf')
  expect(await sniff(split)).toBe('gguf')
  expect(await sniff(join(split, 'm-00002-of-00002.gguf'))).toBe('gguf')
  expect(await code(() => openModel(at('two', 'a.gguf', 'b.gguf')))).toBe('FORMAT_INVALID')
  expect(await code(() => openModel(at('torch', 'pytorch_model.bin')))).toBe('FORMAT_UNSUPPORTED')
  expect(await code(() => openModel(at('empty')))).toBe('FORMAT_INVALID')
  expect(await code(() => openModel(join(folder, 'nowhere')))).toBe('SOURCE_IO')
  writeFileSync(join(folder, 'model.wia'), 'WIA1....')
  expect(await code(() => openModel(join(folder, 'model.wia')))).toBe('NOT_IMPLEMENTED')
  writeFileSync(join(folder, 'damaged.gguf'), 'no')
  expect(await code(() => openModel(join(folder, 'damaged.gguf')))).toBe('FORMAT_INVALID')
  writeFileSync(join(folder, 'x.onnx'), 'no')
  expect(await code(() => openModel(join(folder, 'x.onnx')))).toBe('FORMAT_UNSUPPORTED')
  symlinkSync(join(folder, 'loop'), join(folder, 'loop'))
  expect(await code(() => openModel(join(folder, 'loop')))).toBe('SOURCE_IO')
})

dataTest('real models of both foreign formats', async () => {
  for (const [path, format] of [
    [data('stories260k/hf'), 'safetensors'],
    [data('stories260k/gguf/stories260K-F32.gguf'), 'gguf'],
  ] as const) {
    const reader = await openModel(path)
    expect(reader.format).toBe(format)
    expect(reader.tensors.size).toBeGreaterThan(40)
    await reader.close()
  }
})
