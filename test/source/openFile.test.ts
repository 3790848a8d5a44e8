// Opening: every mode is obeyed or refused, odd files are refused by name, other threads find the same bytes or say why not.
import { execFileSync } from 'node:child_process'
import { chmodSync, closeSync, mkdirSync, openSync, renameSync, symlinkSync, truncateSync, utimesSync } from 'node:fs'
import { join } from 'node:path'
import { Worker } from 'node:worker_threads'
import { expect, test } from 'vitest'
import { isSluiceError } from '#sluice/base/errors.js'
import { loadAddon } from '#sluice/source/addon.js'
import { openFile, openFileSync } from '#sluice/source/openFile.js'
import { scratchFolder, seededBytes, writeBytes } from './files.ts'

const folder = scratchFolder()
const bytes = seededBytes(100_000, 3)
const path = writeBytes(join(folder, 'a.bin'), bytes)

const failure = async (work: () => unknown) => {
  try {
    await work()
  } catch (error) {
    if (isSluiceError(error)) return error
    throw error
  }
  throw new Error('nothing was thrown')
}

test('auto is the mapping where the addon is, else pread', async () => {
  const s = await openFile(path)
  expect(s.kind).toBe(loadAddon() === undefined ? 'pread' : 'mmap')
  await s.close()
})

test('without the addon auto is pread, and mmap is refused', async () => {
  process.env.SLUICE_NO_ADDON = '1'
  try {
    const s = await openFile(path, { dropBehind: true })
    expect(s.kind).toBe('pread')
    expect((s as unknown as { dropBehind: boolean }).dropBehind).toBe(false)
    expect(Buffer.compare(await s.read(0, 100_000), bytes)).toBe(0)
    await s.close()
    expect((await failure(() => openFile(path, { mode: 'mmap' }))).code).toBe('SOURCE_MODE')
  } finally {
    delete process.env.SLUICE_NO_ADDON
  }
})

test('an unknown mode is refused by name', async () => {
  const error = await failure(() => openFile(path, { mode: 'fast' as 'auto' }))
  expect(error.code).toBe('REQUEST_INVALID')
  expect(error.message).toContain('fast')
})

const modes = ['auto', 'pread', 'mmap', 'direct', 'mmap-io'] as const
test.each(modes)('%s: what is not a regular file is refused at once', async (mode) => {
  const fifo = join(folder, `fifo-${mode}`)
  execFileSync('mkfifo', [fifo])
  mkdirSync(join(folder, `folder-${mode}`))
  symlinkSync('nothing', join(folder, `dangling-${mode}`))
  const odd = [
    fifo,
    join(folder, `folder-${mode}`),
    '/dev/zero',
    join(folder, `dangling-${mode}`),
    join(folder, 'none'),
    `${path}/x`,
  ]
  for (const p of odd) {
    const error = await failure(() => openFile(p, { mode }))
    // A mode that is not there at all may say so first.
    expect(['SOURCE_IO', ...(mode === 'mmap' ? ['SOURCE_MODE'] : [])]).toContain(error.code)
    expect(error.message).toContain(p)
  }
})

test('a RAM file system without direct I/O: obeyed or refused, never swapped', async () => {
  for (const place of [folder, '/dev/shm', '/proc/self']) {
    const p = place === '/proc/self' ? '/proc/self/maps' : join(place, `sluice-direct-${process.pid}`)
    try {
      if (place !== '/proc/self') writeBytes(p, bytes)
    } catch {
      continue
    }
    try {
      const s = await openFile(p, { mode: 'direct' })
      expect(s.kind).toBe('direct')
      await s.close()
    } catch (error) {
      expect(isSluiceError(error, 'SOURCE_MODE'), String(error)).toBe(true)
    } finally {
      if (place === '/dev/shm') execFileSync('rm', ['-f', p])
    }
  }
})

test.skipIf(process.getuid?.() === 0)('no permission names the path and the remedy', async () => {
  const p = writeBytes(join(folder, 'locked.bin'), bytes)
  chmodSync(p, 0)
  const error = await failure(() => openFile(p))
  expect(error.code).toBe('SOURCE_IO')
  expect(error.message).toMatch(/locked\.bin.*permission|permission.*locked\.bin/)
})

test('too many open files says how to raise the limit', () => {
  const script = `
    import { openFile } from '#sluice/source/openFile.js'
    const open = []
    try { for (;;) open.push(await openFile(process.argv[1], { mode: 'pread' })) } catch (e) { console.log(e.code, e.message) }`
  const out = execFileSync(
    'bash',
    ['-c', `ulimit -n 64; exec "${process.execPath}" --input-type=module -e "$1" "$2"`, '-', script, path],
    {
      encoding: 'utf8',
      cwd: join(import.meta.dirname, '../..'),
    },
  )
  expect(out).toMatch(/^SOURCE_IO .*ulimit -n/)
})

test('a failed open leaves no handle behind', async () => {
  const before = openSync(path, 'r')
  closeSync(before)
  for (let i = 0; i < 20; i++) {
    await failure(() => openFile(folder))
    await failure(() => openFileSync({ kind: 'file', path, mode: 'pread', size: 1, inode: '0:0', mtimeNs: '0' }))
    await failure(() => openFileSync({ kind: 'file', path, mode: 'direct', size: 1, inode: '0:0', mtimeNs: '0' }))
  }
  const after = openSync(path, 'r')
  closeSync(after)
  expect(after).toBe(before)
})

test('a descriptor opens the same file, or says that it is another', async () => {
  const p = writeBytes(join(folder, 'described.bin'), bytes)
  for (const mode of ['pread', 'auto'] as const) {
    const s = await openFile(p, { mode })
    const again = openFileSync(structuredClone(s.descriptor!))
    expect(again.kind).toBe(s.kind)
    expect(Buffer.compare(again.readSync!(5, 500), bytes.subarray(5, 505))).toBe(0)
    await again.close()
    await s.close()
  }
  const s = await openFile(p, { mode: 'pread' })
  const descriptor = s.descriptor!
  renameSync(writeBytes(join(folder, 'other.bin'), bytes), p) // same bytes, another file
  expect((await failure(() => openFileSync(descriptor))).code).toBe('SOURCE_CHANGED')
  // The handle that is open still reads the old file.
  expect(Buffer.compare(await s.read(0, 1000), bytes.subarray(0, 1000))).toBe(0)
  await s.close()

  const q = writeBytes(join(folder, 'touched.bin'), bytes)
  const d = openFileSync({ ...(await described(q)) })
  await d.close()
  const old = await described(q)
  utimesSync(q, 1, 1)
  expect((await failure(() => openFileSync(old))).code).toBe('SOURCE_CHANGED')
  const cut = await described(q)
  truncateSync(q, 10)
  expect((await failure(() => openFileSync(cut))).message).toContain('100000 to 10 bytes')
})

async function described(p: string) {
  const s = await openFile(p)
  await s.close()
  return s.descriptor!
}

test('worker threads read the same bytes in every mode', async () => {
  for (const mode of ['auto', 'pread', 'direct'] as const) {
    const s = await openFile(path, { mode }).catch((e) => {
      if (isSluiceError(e, 'SOURCE_MODE')) return undefined
      throw e
    })
    if (s === undefined) continue
    const shared = new SharedArrayBuffer(100_000)
    const code = `
      const { parentPort, workerData } = require('node:worker_threads')
      import('#sluice/source/openFile.js').then(({ openFileSync }) => {
        const s = openFileSync(workerData.descriptor)
        s.readSync(0, s.size, new Uint8Array(workerData.shared))
        return s.close().then(() => parentPort.postMessage(s.kind))
      })`
    const worker = new Worker(code, { eval: true, workerData: { descriptor: s.descriptor, shared } })
    const kind = await new Promise((resolve, reject) => worker.once('message', resolve).once('error', reject))
    await worker.terminate()
    expect(kind).toBe(s.kind)
    expect(Buffer.compare(new Uint8Array(shared), bytes)).toBe(0)
    await s.close()
  }
})

test('mmap-io works on the main thread and below 2 GiB only', async () => {
  const big = writeBytes(join(folder, 'big.bin'), new Uint8Array(1))
  truncateSync(big, 2 ** 31)
  expect((await failure(() => openFile(big, { mode: 'mmap-io' }))).code).toBe('SOURCE_MODE')
  const code = `
    const { parentPort, workerData } = require('node:worker_threads')
    import('#sluice/source/openFile.js').then(({ openFile }) => openFile(workerData, { mode: 'mmap-io' }))
      .then(() => parentPort.postMessage('opened'), (e) => parentPort.postMessage(e.code))`
  const worker = new Worker(code, { eval: true, workerData: path })
  expect(await new Promise((resolve, reject) => worker.once('message', resolve).once('error', reject))).toBe(
    'SOURCE_MODE',
  )
  await worker.terminate()
})
