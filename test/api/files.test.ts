// The part that runs in browsers, from memory and from Blobs: compared with what the readers of Node see.
import { readFileSync, rmSync } from 'node:fs'
import { mkdtemp } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import fc from 'fast-check'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { BlobSource, type FileIndex, isSluiceError, MemorySource, readIndex, readRows } from '#sluice/browser.js'
import { open } from '#sluice/index.js'
import { writeCheckpoint } from '../cli/checkpoint.ts'
import { data, dataTest } from '../data.ts'

let dir: string
let bytes: Uint8Array<ArrayBuffer>
beforeAll(async () => {
  dir = await mkdtemp(join(tmpdir(), 'sluice-api-'))
  writeCheckpoint(dir)
  bytes = new Uint8Array(readFileSync(join(dir, 'model.safetensors')))
})
afterAll(() => rmSync(dir, { recursive: true, force: true }))

/** Every tensor, its first rows and its last, as open() reads them. */
async function expectSame(path: string, index: FileIndex, source: MemorySource | BlobSource): Promise<void> {
  const model = await open(path)
  try {
    expect([...index.tensors.keys()]).toEqual(model.tensorNames)
    for (const tensor of index.tensors.values()) {
      const { entry } = model.tensor(tensor.name)
      const { name, shape, dtype, encoding, rows, cols } = tensor
      expect({ name, shape, dtype, encoding, rows, cols }).toEqual({
        name: entry.name,
        shape: entry.shape,
        dtype: entry.dtype,
        encoding: entry.encoding,
        rows: entry.rows,
        cols: entry.cols,
      })
      if (encoding.kind === 'opaque') continue
      for (const [from, to] of [
        [0, Math.min(2, rows)],
        [rows - 1, rows],
      ] as const)
        expect(await readRows(source, tensor, from, to)).toEqual(await model.tensor(name).rows(from, to))
    }
  } finally {
    await model.close()
  }
}

describe('readIndex and readRows', () => {
  test('safetensors from memory and from a Blob', async () => {
    for (const source of [new MemorySource(bytes), new BlobSource(new Blob([bytes]), 'model.safetensors')]) {
      const index = await readIndex(source)
      expect(index.format).toBe('safetensors')
      expect(index.bytesRead).toBeLessThan(4096)
      await expectSame(dir, index, source)
    }
  })

  dataTest('GGUF, both byte orders, quantized too', async () => {
    for (const file of [
      'stories260k/gguf/stories260K-F16.gguf',
      'stories260k/gguf/stories260K-ffn192-Q4_0.gguf',
      'foreign/gguf/stories260K-ffn192-Q8_0-bigendian.gguf',
      'foreign/gguf/stories260K-ffn192-Q8_0-v2.gguf',
    ]) {
      const source = new BlobSource(new Blob([new Uint8Array(readFileSync(data(file)))]), file)
      const index = await readIndex(source)
      expect([file, index.format, index.metadata['general.architecture']]).toEqual([file, 'gguf', 'llama'])
      await expectSame(data(file), index, source)
    }
  })

  test('rows that do not exist are refused', async () => {
    const source = new MemorySource(bytes)
    const tensor = (await readIndex(source)).tensors.get('model.norm.weight')!
    for (const [from, to] of [
      [0, 2],
      [-1, 1],
      [1, 0],
      [0.5, 1],
      [Number.NaN, 1],
    ] as const)
      await expect(readRows(source, tensor, from, to)).rejects.toMatchObject({ code: 'TENSOR_RANGE' })
    await expect(readRows(source, { ...tensor, length: tensor.length - 4 }, 0, 1)).rejects.toMatchObject({
      code: 'FORMAT_INVALID',
    })
  })

  test('any change of the header is read or refused by a typed error', async () => {
    const header = 8 + Number(new DataView(bytes.buffer).getBigUint64(0, true))
    const at = fc.nat({ max: header - 1 })
    const change = fc.array(fc.tuple(at, fc.nat({ max: 255 })), { minLength: 1, maxLength: 4 })
    await fc.assert(
      fc.asyncProperty(change, fc.option(fc.nat({ max: bytes.length })), async (changes, cut) => {
        const copy = bytes.slice(0, cut ?? bytes.length)
        for (const [i, value] of changes) if (i < copy.length) copy[i] = value
        try {
          await readIndex(new MemorySource(copy))
        } catch (err) {
          if (!isSluiceError(err)) throw err
        }
      }),
      { numRuns: 300, seed: 5 },
    )
  })
})

describe('BlobSource', () => {
  test('reads ranges, into a buffer too', async () => {
    const source = new BlobSource(new Blob([bytes]))
    expect(source.size).toBe(bytes.length)
    expect(await source.read(5, 7)).toEqual(bytes.slice(5, 12))
    const into = new Uint8Array(10)
    const out = await source.read(1, 4, { into })
    expect([out.buffer, [...into]]).toEqual([into.buffer, [...bytes.slice(1, 5), 0, 0, 0, 0, 0, 0]])
    expect(await source.read(bytes.length, 0)).toEqual(new Uint8Array(0))
  })

  test('refuses as every source does', async () => {
    const source = new BlobSource(new Blob([bytes]))
    await expect(source.read(0, bytes.length + 1)).rejects.toMatchObject({ code: 'SOURCE_RANGE' })
    await expect(source.read(-1, 1)).rejects.toMatchObject({ code: 'SOURCE_RANGE' })
    await expect(source.read(0, 2, { into: new Uint8Array(1) })).rejects.toMatchObject({ code: 'REQUEST_INVALID' })
    await expect(source.read(0, 1, { signal: AbortSignal.abort() })).rejects.toMatchObject({ code: 'ABORTED' })
    source.close()
    await expect(source.read(0, 1)).rejects.toMatchObject({ code: 'SOURCE_CLOSED' })
  })

  test('a file that is gone gives SOURCE_CHANGED', async () => {
    const gone = {
      size: 10,
      slice: () => ({ arrayBuffer: () => Promise.reject(new DOMException('gone', 'NotReadableError')) }),
    }
    await expect(new BlobSource(gone as never).read(0, 1)).rejects.toMatchObject({ code: 'SOURCE_CHANGED' })
    const short = { size: 10, slice: () => ({ arrayBuffer: () => Promise.resolve(new ArrayBuffer(3)) }) }
    await expect(new BlobSource(short as never).read(0, 4)).rejects.toMatchObject({ code: 'SOURCE_CHANGED' })
  })
})
