// The addon by itself: what it maps, shows, forgets and refuses. Skipped where it is not built for the system.
import { execFileSync } from 'node:child_process'
import { closeSync, openSync, readSync, truncateSync } from 'node:fs'
import { constants } from 'node:os'
import { join } from 'node:path'
import { Worker } from 'node:worker_threads'
import { afterAll, expect, test } from 'vitest'
import { ADDON_PATH, type Addon, loadAddon, type Mapping } from '#sluice/source/addon.js'
import type { MmapSource } from '#sluice/source/mmap.js'
import { openFile } from '#sluice/source/openFile.js'
import { scratchFolder, seededBytes, writeBytes } from './files.ts'

const addon = loadAddon() as Addon
const native = test.skipIf(addon === undefined)
const folder = scratchFolder()
const SIZE = 1024 * 1024 + 99
const bytes = seededBytes(SIZE, 11)
const path = writeBytes(join(folder, 'a.bin'), bytes)
const fd = openSync(path, 'r')
afterAll(() => closeSync(fd))

native('is the build of its sources', () => {
  const out = execFileSync(process.execPath, [join(import.meta.dirname, '../../scripts/build-addon.mjs'), '--check'], {
    encoding: 'utf8',
  })
  expect(out).toContain(addon.version)
  expect(addon.version).toMatch(/^[0-9a-f]{16}$/)
})

native('maps at an offset, copies, shows, and takes the view away', async () => {
  const m = addon.map(fd, addon.pageSize, 5000)
  const expected = bytes.subarray(addon.pageSize + 7, addon.pageSize + 107)
  const out = new Uint8Array(100)
  expect(addon.copy(m, 7, out)).toBe(100)
  expect(Buffer.compare(out, expected)).toBe(0)
  expect(await addon.copyAsync(m, 7, out.fill(0))).toBe(100)
  expect(Buffer.compare(out, expected)).toBe(0)
  const view = new Uint8Array(addon.buffer(m, 7, 100))
  expect(Buffer.compare(view, expected)).toBe(0)
  expect(addon.unmap(m)).toBe(true)
  expect(view.byteLength).toBe(0)
  expect(addon.unmap(m)).toBe(true)
  expect(() => addon.copy(m, 0, out)).toThrow('unmapped')
  expect(() => addon.buffer(m, 0, 1)).toThrow('unmapped')
  expect(() => addon.madvise(m, 0, 1, 'random')).toThrow('unmapped')
})

native('a copy that runs keeps the mapping', async () => {
  const m = addon.map(fd, 0, SIZE)
  const out = new Uint8Array(SIZE)
  const copies = Array.from({ length: 8 }, () => addon.copyAsync(m, 0, out))
  expect(addon.unmap(m)).toBe(false)
  for (const n of await Promise.all(copies)) expect(n).toBe(SIZE)
  expect(Buffer.compare(out, bytes)).toBe(0)
  expect(addon.unmap(m)).toBe(true)
})

native('pages beyond the end of a file that was cut are an error code', async () => {
  const p = writeBytes(join(folder, 'cut.bin'), bytes)
  const f = openSync(p, 'r')
  const m = addon.map(f, 0, SIZE)
  truncateSync(p, 8192)
  const out = new Uint8Array(4096)
  expect(addon.copy(m, 0, out)).toBe(4096)
  expect(addon.copy(m, 8192, out)).toBe(-constants.errno.EFAULT)
  expect(await addon.copyAsync(m, 65536, out)).toBe(-constants.errno.EFAULT)
  expect(addon.copy(m, 4096, new Uint8Array(8192))).toBeLessThan(8192)
  addon.unmap(m)
  closeSync(f)
})

native('writing to a view changes neither the file nor ends the process', async () => {
  const s = await openFile(path, { mode: 'mmap' })
  const view = s.view!(100, 10)
  view.fill(1)
  const now = new Uint8Array(10)
  readSync(fd, now, 0, 10, 100)
  expect(Buffer.compare(now, bytes.subarray(100, 110))).toBe(0)
  await s.close()
})

native('views across windows of 1 GiB, and longer than one', async () => {
  const p = writeBytes(join(folder, 'windows.bin'), new Uint8Array(1))
  const G = 1024 ** 3
  truncateSync(p, 6 * G)
  const f = openSync(p, 'r+')
  const { writeSync } = await import('node:fs')
  for (const at of [G - 2, 2 * G - 2, 4 * G - 2]) writeSync(f, new Uint8Array([1, 2, 3, 4]), 0, 4, at)
  closeSync(f)
  const s = await openFile(p, { mode: 'mmap' })
  for (const at of [G - 2, 2 * G - 2, 4 * G - 2]) {
    expect([...s.view!(at, 4)]).toEqual([1, 2, 3, 4])
    expect([...s.view!(at - 1000, G).subarray(1000, 1004)]).toEqual([1, 2, 3, 4])
  }
  const long = s.view!(G - 2, 3 * G + 10)
  expect([...long.subarray(0, 4)]).toEqual([1, 2, 3, 4])
  expect([...long.subarray(3 * G, 3 * G + 4)]).toEqual([1, 2, 3, 4])
  await s.close()
  expect(long.byteLength).toBe(0)
})

native('tells and changes what is in memory', async () => {
  const p = writeBytes(join(folder, 'residency.bin'), seededBytes(4 * 1024 * 1024, 5))
  execFileSync('sync', [p])
  const s = (await openFile(p, { mode: 'mmap' })) as MmapSource
  const half = 2 * 1024 * 1024
  s.advise(0, s.size, 'dontneed')
  expect(s.resident(0, s.size)).toBe(0)
  // Drop-behind: a bulk read leaves nothing; the same read without it leaves all.
  const dropping = await openFile(p, { mode: 'pread', dropBehind: true })
  await dropping.read(1000, half)
  dropping.readSync!(half + 123, 1024 * 1024)
  expect(s.resident(0, s.size)).toBe(0)
  for (let i = 0; i < 1100; i++) await dropping.read(i * 3000, 4096) // small ones together, 4 MiB of them
  expect(s.resident(0, s.size)).toBeLessThan(half)
  const keeping = await openFile(p, { mode: 'pread' })
  await keeping.read(0, half)
  expect(s.resident(0, half)).toBe(half)
  s.advise(0, s.size, 'dontneed')
  // Mapped reads with drop-behind leave nothing either, direct ones never do.
  const mapped = await openFile(p, { mode: 'mmap', dropBehind: true })
  await mapped.read(0, half)
  mapped.readSync!(half, half)
  expect(s.resident(0, s.size)).toBe(0)
  for (const open of [dropping, keeping, mapped, s]) await open.close()
})

native('refuses wrong arguments by exception', () => {
  const m = addon.map(fd, 0, SIZE)
  const out = new Uint8Array(10)
  const calls: (() => unknown)[] = []
  const odd = [
    undefined,
    null,
    -1,
    0.5,
    Number.NaN,
    2 ** 60,
    Infinity,
    -1n,
    2n ** 60n,
    2n ** 70n,
    'x',
    {},
    [],
    Symbol(),
  ]
  for (const x of odd as never[]) {
    calls.push(
      () => addon.map(x, 0, 1),
      () => addon.map(fd, x, 1),
      () => addon.map(fd, 0, x),
      () => addon.unmap(x),
      () => addon.copy(x, 0, out),
      () => addon.copy(m, x, out),
      () => addon.copy(m, 0, x),
      () => addon.copyAsync(x, 0, out),
      () => addon.buffer(m, x, 1),
      () => addon.buffer(m, 0, x),
      () => addon.pread(fd, x, out),
      () => addon.pread(fd, 0, x),
      () => addon.fadvise(fd, 0, 1, x),
      () => addon.madvise(m, 0, 1, x),
      () => addon.resident(m, x, 1),
    )
  }
  calls.push(
    () => addon.map(fd, 1, 100), // not a multiple of the page
    () => addon.map(fd, 0, 0),
    () => addon.map(9999, 0, 1),
    () => addon.copy(m, SIZE - 9, out),
    () => addon.buffer(m, SIZE, 1),
    () => addon.copy(Object.create(m as object) as Mapping, 0, out),
    () => addon.copy(m, 0, new Uint16Array(2) as never),
    () => (addon.copy as unknown as () => void)(),
  )
  for (const call of calls) expect(call, call.toString()).toThrow()
  expect(addon.pread(9999, 0, out)).toBe(-constants.errno.EBADF)
  expect(addon.copy(m, 0n as never, out)).toBe(10)
  addon.unmap(m)
})

native('pread fills shared memory and stops at the end of the file', () => {
  const shared = new Uint8Array(new SharedArrayBuffer(200))
  expect(addon.pread(fd, SIZE - 100, shared)).toBe(100)
  expect(Buffer.compare(shared.slice(0, 100), bytes.subarray(SIZE - 100))).toBe(0)
})

native('loads in worker threads that come and go, with mappings left open', async () => {
  const code = `
    const { parentPort, workerData } = require('node:worker_threads')
    const addon = require(workerData.addon)
    const fd = require('node:fs').openSync(workerData.path, 'r')
    const m = addon.map(fd, 0, 4096)
    globalThis.left = new Uint8Array(addon.buffer(m, 0, 4096))
    const out = new Uint8Array(16)
    addon.copyAsync(m, 32, out).then(() => parentPort.postMessage([...out]))`
  for (let i = 0; i < 5; i++) {
    const worker = new Worker(code, { eval: true, workerData: { addon: ADDON_PATH, path } })
    const got = await new Promise((resolve, reject) => worker.once('message', resolve).once('error', reject))
    expect(got).toEqual([...bytes.subarray(32, 48)])
    await worker.terminate()
  }
})

native('mappings that nobody closed are collected, and views keep theirs', () => {
  const script = `
    import { openFile } from '#sluice/source/openFile.js'
    import { readFileSync } from 'node:fs'
    const maps = () => readFileSync('/proc/self/maps', 'utf8').split('\\n').filter((l) => l.includes(process.argv[1])).length
    let kept
    for (let i = 0; i < 50; i++) kept = (await openFile(process.argv[1], { mode: 'mmap' })).view(10, 20)
    const before = maps()
    for (let i = 0; i < 20; i++) { global.gc(); await new Promise((r) => setTimeout(r, 5)) }
    console.log(before, maps(), kept.length, kept[0])`
  const out = execFileSync(process.execPath, ['--expose-gc', '--input-type=module', '-e', script, path], {
    encoding: 'utf8',
    cwd: join(import.meta.dirname, '../..'),
  })
  const [before, after, length, first] = out.trim().split(' ').map(Number)
  expect(before).toBe(50)
  expect(after).toBeLessThan(5)
  expect(after).toBeGreaterThanOrEqual(1)
  expect(length).toBe(20)
  expect(first).toBe(bytes[10])
})
