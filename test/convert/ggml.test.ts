// GGUF models of block types become packages: kept bit for bit, or refused with nothing left behind.
import { existsSync, mkdtempSync, readdirSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, expect } from 'vitest'
import { open } from '#sluice/api/model.js'
import { convertToWia } from '#sluice/convert/convert.js'
import type { Quantization } from '#sluice/convert/policy.js'
import { openTensors } from '#sluice/tensor/lazy.js'
import { data, dataTest } from '../data.ts'

const root = mkdtempSync(join(tmpdir(), 'sluice-convert-'))
afterAll(() => rmSync(root, { recursive: true }))

async function convert(path: string, output: string, quantization: Quantization) {
  const model = await open(path)
  try {
    return await convertToWia(model.reader, model.architecture(), output, { quantization })
  } finally {
    await model.close()
  }
}

/** Bits of every weight, by what it is for: names differ between the formats. */
async function digests(path: string): Promise<Map<string, Uint32Array>> {
  const model = await open(path)
  try {
    const { names } = model.architecture()
    const tensors = openTensors(model.reader)
    const out = new Map<string, Uint32Array>()
    for (const [role, name] of names) {
      const values = await tensors.get(name).astype('float32')
      out.set(role, new Uint32Array(values.buffer, values.byteOffset, values.length))
    }
    return out
  } finally {
    await model.close()
  }
}

dataTest.each([
  ['stories260k', 'stories260K-ffn192-Q4_1.gguf'],
  ['stories260k', 'stories260K-ffn192-Q5_0.gguf'],
  ['stories260k', 'stories260K-ffn192-MXFP4.gguf'],
  ['stories4m', 'stories4m-IQ4_XS.gguf'],
  ['stories4m', 'stories4m-Q4_K.gguf'],
])('%s %s is kept: every number has the same bits in the package', async (folder, file) => {
  const path = data(folder, 'gguf', file)
  const output = join(root, file.replace('.gguf', '.wia'))
  const report = await convert(path, output, 'keep')
  expect(report.worst).toBeUndefined()
  const wanted = await digests(path)
  const got = await digests(output)
  expect([...got.keys()].sort()).toEqual([...wanted.keys()].sort())
  for (const [role, bits] of wanted) expect(Buffer.compare(bytesOf(bits), bytesOf(got.get(role)!)), role).toBe(0)
})

dataTest('a type without an exact encoding is refused by name, and converts with a quantization', async () => {
  const path = data('stories4m', 'gguf', 'stories4m-Q4_K_M-by-llamacpp.gguf')
  const output = join(root, 'mixed.wia')
  await expect(convert(path, output, 'keep')).rejects.toMatchObject({
    code: 'QUANT_UNSUPPORTED',
    details: { type: 'Q6_K' },
  })
  expect(existsSync(output)).toBe(false)
  expect(readdirSync(root).filter((f) => f.includes('mixed'))).toEqual([])
  const report = await convert(path, output, 'int8')
  expect(report.worst!.error!.relativeRmse).toBeLessThan(0.01)
})

function bytesOf(bits: Uint32Array): Uint8Array {
  return new Uint8Array(bits.buffer, bits.byteOffset, bits.byteLength)
}
