// Opening: how much is read, what is checked when, and files that change the folder under the reader.
import { mkdirSync, readFileSync, renameSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { isSluiceError } from '#sluice/base/errors.js'
import { openWia } from '#sluice/format/wia/read.js'
import { type OpenMode, openFile } from '#sluice/source/openFile.js'
import type { ByteSource } from '#sluice/source/source.js'
import { METADATA, plain, seeded, tempFolder, write } from './fixtures.ts'

/** Counts what is read through it. */
function counting() {
  const log: { path: string; offset: number; length: number }[] = []
  const openSource = async (path: string, mode: OpenMode): Promise<ByteSource> => {
    const source = await openFile(path, { mode })
    const read = source.read.bind(source)
    source.read = (offset, length, options) => {
      log.push({ path, offset, length })
      return read(offset, length, options)
    }
    return source
  }
  return { log, openSource }
}

const code = async (run: () => Promise<unknown>): Promise<string> => {
  try {
    await run()
    return 'nothing was thrown'
  } catch (error) {
    return isSluiceError(error) ? error.code : String(error)
  }
}

test('opening reads the index and nothing else; the page table is read at the first page', async () => {
  const out = join(tempFolder(), 'm.wia')
  await write(out, [plain('a', [512, 512])], {
    architecture: { nodes: [] },
    config: { a: 1 },
    tokenizerFiles: new Map([['t', seeded(1, 50)]]),
  })
  const { log, openSource } = counting()
  const reader = await openWia(out, { openSource })
  expect(log.map((r) => r.path.slice(out.length + 1)).sort()).toEqual([
    'architecture.json',
    'config/model.json',
    'manifest.json',
  ])
  expect(log.reduce((n, r) => n + r.length, 0)).toBe(reader.bytesRead)
  log.length = 0
  const pages = reader.tensors.get('a')!.pages!
  await pages.sha256(0)
  await pages.sha256(0)
  expect(log.map((r) => r.path.slice(out.length + 1))).toEqual(['weights/pages.sha256'])
  expect(() => pages.sha256(pages.count)).toThrow(/no such page/)
  await reader.close()
})

test('a package of 100,000 tensors opens by its index alone', async () => {
  const out = join(tempFolder(), 'm.wia')
  const tensors: { [name: string]: object } = {}
  const count = 100_000
  const zero = '0'.repeat(64)
  for (let i = 0; i < count; i++)
    tensors[`model.layers.${i >> 7}.mlp.experts.${i & 127}.w1.weight`] = {
      dtype: 'bfloat16',
      shape: [4, 8],
      shard: i % 4,
      offset: Math.floor(i / 4) * 64,
      length: 64,
      checksum: `sha256:${zero}`,
    }
  mkdirSync(join(out, 'weights'), { recursive: true })
  const shards = [0, 1, 2, 3].map((i) => ({ file: `weights/${i}.bin`, bytes: (count / 4) * 64 }))
  for (const s of shards) writeFileSync(join(out, s.file), new Uint8Array(s.bytes))
  writeFileSync(
    join(out, 'manifest.json'),
    JSON.stringify({ ...METADATA, format_version: '1.0.0', files: {}, shards, tensors }),
  )
  const { log, openSource } = counting()
  const reader = await openWia(out, { openSource })
  expect(reader.tensors.size).toBe(count)
  expect(log.map((r) => r.path)).toEqual([join(out, 'manifest.json')])
  expect(reader.bytesRead).toBe(readFileSync(join(out, 'manifest.json')).byteLength)
  // In storage order: shard, then offset.
  const first = [...reader.tensors.values()].slice(0, 3).map((t) => t.segments[0]!)
  expect(first.map((s) => [s.source, s.offset])).toEqual([
    [0, 0],
    [0, 64],
    [0, 128],
  ])
  await reader.close()
})

test('verify off leaves no hashes, lazy leaves them to the reader, eager finds one flipped bit and says where', async () => {
  const out = join(tempFolder(), 'm.wia')
  await write(out, [plain('a', [40, 16]), plain('b', [512, 256])], { pageBytes: 65536 })
  const shard = join(out, 'weights/model-00000.bin')
  const bytes = readFileSync(shard)
  bytes[4096 + 70_000]! ^= 0x10
  writeFileSync(shard, bytes)
  const off = await openWia(out, { verify: 'off' })
  expect(off.tensors.get('b')).not.toHaveProperty('pages')
  expect(off.tensors.get('b')).not.toHaveProperty('checksum')
  expect(await code(() => off.check())).toBe('REQUEST_INVALID')
  await off.close()
  const error = await openWia(out, { verify: 'eager' }).catch((e: unknown) => e)
  expect(isSluiceError(error, 'CHECKSUM_MISMATCH') && error.details).toMatchObject({
    file: shard,
    tensor: 'b',
    page: 1,
  })
  const lazy = await openWia(out)
  const faults: object[] = []
  await lazy.check({ onFault: (f) => faults.push(f) })
  expect(faults).toMatchObject([{ tensor: 'b', page: 1, offset: 4096 + 65536 }, { tensor: 'b' }])
  await lazy.close()
  expect(await code(() => openWia(out, { verify: 'eager', signal: AbortSignal.abort() }))).toBe('ABORTED')
})

test('links: a hub cache opens, a link out of the package does not', async () => {
  const folder = tempFolder()
  const out = join(folder, 'm.wia')
  await write(out, [plain('a', [40, 16])])
  // Every file a link into ../blobs, as a hub cache has them.
  const hub = join(folder, 'hub', 'snapshot')
  const blobs = join(folder, 'hub', 'blobs')
  mkdirSync(join(hub, 'weights'), { recursive: true })
  mkdirSync(blobs)
  for (const [i, f] of ['manifest.json', 'weights/model-00000.bin', 'weights/pages.sha256'].entries()) {
    writeFileSync(join(blobs, String(i)), readFileSync(join(out, f)))
    symlinkSync(join(blobs, String(i)), join(hub, f))
  }
  await (await openWia(hub, { verify: 'eager' })).close()

  const shard = join(out, 'weights/model-00000.bin')
  renameSync(shard, join(folder, 'outside.bin'))
  symlinkSync(join(folder, 'outside.bin'), shard)
  expect(await code(() => openWia(out))).toBe('PATH_FORBIDDEN')
  await (await openWia(out, { extraRoots: [folder] })).close()
  rmSync(shard)
  symlinkSync('/dev/zero', shard)
  expect(await code(() => openWia(out))).toBe('PATH_FORBIDDEN')
})

test('a folder where a file should be, and a path that does not exist, are typed errors', async () => {
  const out = join(tempFolder(), 'm.wia')
  expect(await code(() => openWia(out))).toBe('SOURCE_IO')
  await write(out, [plain('a', [40, 16])])
  rmSync(join(out, 'weights/model-00000.bin'))
  mkdirSync(join(out, 'weights/model-00000.bin'))
  expect(await code(() => openWia(out))).toBe('SOURCE_IO')
})

test('a shard cut off after opening gives a typed error at the read', async () => {
  const out = join(tempFolder(), 'm.wia')
  await write(out, [plain('a', [512, 256])])
  const reader = await openWia(out, { mode: 'pread' })
  writeFileSync(join(out, 'weights/model-00000.bin'), new Uint8Array(100))
  expect(['SOURCE_CHANGED', 'SOURCE_IO']).toContain(await code(() => reader.check()))
  await reader.close()
})
