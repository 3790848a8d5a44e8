// The pager over real files: the reader is a thread of its own.
import { mkdtempSync, readdirSync, readlinkSync, rmSync, truncateSync, utimesSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, expect, test } from 'vitest'
import { isSluiceError } from '#sluice/base/errors.js'
import { selectKernels } from '#sluice/kernels/select.js'
import { createArenas, MAX_ARENA_BYTES } from '#sluice/memory/arena.js'
import { createBudget } from '#sluice/memory/budget.js'
import { ARENA_RESERVED_BYTES } from '#sluice/memory/memory.js'
import { createPageClient } from '#sluice/pager/client.js'
import { createPager, type PagerOptions } from '#sluice/pager/create.js'
import { loadAddon } from '#sluice/source/addon.js'
import { openFile } from '#sluice/source/openFile.js'
import type { ByteSource } from '#sluice/source/source.js'
import {
  expectedPages,
  F16,
  F32_BIG,
  INT4,
  makeModel,
  onDisk,
  Q4_0,
  Q8_0,
  readerOf,
  startConsumers,
} from './fixture.ts'

const consumers = startConsumers(2)
afterAll(() => consumers.stop())

const MiB = 1024 ** 2
const kernels = await selectKernels()

// Pages of about 1 MiB and of a few KiB, at odd offsets, over three files.
const mixed = makeModel(
  [
    { rows: 1600, cols: 2048, encoding: F16, gap: 1234 },
    { rows: 40, cols: 64, encoding: F16, table: 16, gap: 6 },
    { rows: 640, cols: 4096, encoding: INT4, table: 64, gap: 777 },
    { rows: 700, cols: 1024, encoding: Q4_0, gap: 32 },
    { rows: 500, cols: 1024, encoding: F32_BIG, split: 208, gap: 5 },
    { rows: 333, cols: 512, encoding: Q8_0, split: 160 },
  ],
  3,
  42,
)

function optionsFor(
  reader: PagerOptions['reader'],
  more: Partial<PagerOptions> & { weightBytes: number },
): PagerOptions {
  return {
    reader,
    names: [...reader.tensors.keys()],
    arenas: createArenas(),
    kernels,
    budget: createBudget(64 * MiB),
    threads: 2,
    ...more,
  }
}

/** Files of the model this process has open. */
function openHandles(paths: readonly string[]): number {
  const names = readdirSync('/proc/self/fd').map((fd) => {
    try {
      return readlinkSync(`/proc/self/fd/${fd}`)
    } catch {
      return ''
    }
  })
  return names.filter((n) => paths.includes(n)).length
}

const threads = () => readdirSync('/proc/self/task').length

for (const ioMode of ['auto', 'pread', 'direct', 'mmap'] as const)
  for (const weightBytes of [9 * MiB, 40 * MiB])
    test(`${ioMode}, ${weightBytes / MiB} MiB: right bytes, nothing left open`, async (context) => {
      const disk = await onDisk(mixed)
      try {
        const before = openHandles(disk.paths)
        const options = optionsFor(disk.reader, { ioMode, weightBytes, pageBytes: MiB })
        const pager = await createPager(options).catch((error: unknown) => {
          // A mode the machine does not have is refused, never replaced.
          if (ioMode === 'auto' || ioMode === 'pread' || !isSluiceError(error, 'SOURCE_MODE')) throw error
          context.skip(`${ioMode} is not available here: ${error.message}`)
        })
        const alone = threads()
        await pager!.start()
        expect(threads()).toBeGreaterThan(alone)
        const outcomes = await consumers.run(2, {
          ...expectedPages(mixed, pager!),
          shared: pager!.shared,
          memories: options.arenas.arenas.map((a) => a.memory),
          firstPass: 1,
          passes: 3,
          seed: 1,
          pauseMs: 0.2,
        })
        for (const o of outcomes) expect(o).toEqual({ seen: 3 * pager!.shared.state.length, stallNs: o.stallNs })
        const report = pager!.report()
        if (ioMode !== 'auto') expect(report.ioMode).toBe(ioMode)
        expect(report.pageCache).toBe(
          report.ioMode === 'direct' ? 'none' : loadAddon() === undefined ? 'kept' : 'dropped',
        )
        const { streamedBytesPerPass, streamedPages, ringBytes } = pager!.plan()
        expect(streamedPages > 0).toBe(weightBytes === 9 * MiB)
        await pager!.close()
        // Pass 1 reads all, passes 2 and 3 the streamed bytes, and some are read ahead for pass 4.
        const { bytesRead } = pager!.report()
        const size = mixed.files.reduce((s, f) => s + f.length, 0)
        const ahead = bytesRead - size - 2 * streamedBytesPerPass
        const slack = report.ioMode === 'direct' ? pager!.shared.state.length * 8192 : 20_000 // whole blocks; gaps
        expect(ahead).toBeGreaterThanOrEqual(-slack)
        expect(ahead).toBeLessThanOrEqual(ringBytes + slack)
        expect(openHandles(disk.paths)).toBe(before)
        expect(threads()).toBeLessThanOrEqual(alone)
        expect(options.budget.used).toBe(0)
      } finally {
        await disk.remove()
      }
    })

test('direct places cost whole blocks for large pages only, and stay inside the memory given', async (context) => {
  const disk = await onDisk(mixed)
  try {
    const weightBytes = 9 * MiB
    const options = optionsFor(disk.reader, { ioMode: 'direct', weightBytes, pageBytes: MiB })
    const pager = await createPager(options).catch((error: unknown) => {
      if (!isSluiceError(error, 'SOURCE_MODE')) throw error
      context.skip('no direct I/O here')
    })
    const taken = options.arenas.arenas.reduce((s, a) => s + (MAX_ARENA_BYTES - ARENA_RESERVED_BYTES - a.free), 0)
    expect(taken).toBeLessThanOrEqual(weightBytes + 2 * 4096)
    expect(options.budget.used).toBeLessThanOrEqual(weightBytes)
    await pager!.close()
  } finally {
    await disk.remove()
  }
})

test('a file that shrinks or is written to while streaming is an error that names it', async () => {
  for (const spoil of ['shrink', 'touch'] as const)
    for (const ioMode of ['auto', 'pread'] as const) {
      const disk = await onDisk(mixed)
      const options = optionsFor(disk.reader, { ioMode, weightBytes: 9 * MiB })
      const pager = await createPager(options)
      const errors: Error[] = []
      pager.onError((e) => errors.push(e))
      await pager.start()
      const running = consumers.run(2, {
        ...expectedPages(mixed, pager),
        shared: pager.shared,
        memories: options.arenas.arenas.map((a) => a.memory),
        firstPass: 1,
        passes: 10_000,
        seed: 1,
        pauseMs: 0,
      })
      await new Promise((r) => setTimeout(r, 100))
      if (spoil === 'shrink') truncateSync(disk.paths[1]!, 5000)
      else utimesSync(disk.paths[1]!, 1, 1)
      for (const o of await running) expect(Object.keys(o).sort()).toEqual(['left', 'seen', 'stallNs'])
      await new Promise((r) => setTimeout(r, 20))
      expect(errors.length).toBe(1)
      expect(errors[0]).toMatchObject({ code: 'SOURCE_CHANGED', name: 'SourceError' })
      expect(errors[0]!.message).toContain(disk.paths[1])
      expect(isSluiceError(errors[0], 'SOURCE_CHANGED')).toBe(true)
      await pager.close()
      await disk.remove()
    }
})

test('a file replaced between open and start is refused by start', async () => {
  const disk = await onDisk(mixed)
  const options = optionsFor(disk.reader, { weightBytes: 9 * MiB, ioMode: 'pread' })
  const pager = await createPager(options)
  writeFileSync(disk.paths[2]!, 'short')
  await expect(pager.start()).rejects.toMatchObject({ code: 'SOURCE_CHANGED' })
  await expect(pager.reset(2)).rejects.toMatchObject({ code: 'SOURCE_CHANGED' })
  await pager.close()
  expect(options.budget.used).toBe(0)
  await disk.remove()
})

test('close at any moment leaves no thread behind', async () => {
  const disk = await onDisk(mixed)
  const alone = threads()
  for (const ms of [-1, 0, 1, 5, 20, 60]) {
    const options = optionsFor(disk.reader, { weightBytes: 9 * MiB })
    const pager = await createPager(options)
    const started = pager.start()
    started.catch(() => {})
    if (ms >= 0) await new Promise((r) => setTimeout(r, ms))
    const resetting = ms === 60 ? pager.reset(7) : undefined
    resetting?.catch(() => {})
    await Promise.all([pager.close(), pager.close()])
    const how = await started.then(
      () => 'ok',
      (e) => e.code,
    )
    expect(['ok', 'CLOSED']).toContain(how)
    expect(threads()).toBeLessThanOrEqual(alone)
    expect(openHandles(disk.paths)).toBe(disk.paths.length)
    expect(options.budget.used).toBe(0)
  }
  await disk.remove()
})

type Resident = ByteSource & { resident(at: number, bytes: number): number }

test.skipIf(loadAddon() === undefined)('no page cache is left behind, whatever the mode', async (context) => {
  const folder = mkdtempSync(join(tmpdir(), 'sluice-cache-'))
  const path = join(folder, 'zeros.bin')
  const rows = 8192
  const cols = 8192 // 128 MiB of float16, in a file without blocks: reads of it fill the page cache all the same
  writeFileSync(path, '')
  truncateSync(path, rows * cols * 2)
  // A file system that lives in memory (tmpfs) has nothing to drop.
  const plain = (await openFile(path, { mode: 'mmap' })) as Resident
  plain.readSync!(0, 64 * 1024)
  plain.advise!(0, plain.size, 'dontneed')
  const drops = plain.resident(0, plain.size) === 0
  await plain.close()
  if (!drops) {
    rmSync(folder, { recursive: true })
    context.skip('the file system of the temporary folder keeps its pages')
  }
  for (const ioMode of ['pread', 'mmap', 'auto'] as const) {
    const source = await openFile(path, { mode: 'pread' })
    const segments = [{ source: 0, offset: 0, length: rows * cols * 2, rowStart: 0, rows }]
    const size = { shape: [rows, cols], rows, cols, byteLength: rows * cols * 2 }
    const entry = { name: 'zeros', dtype: 'float16', encoding: F16, segments, ...size } as const
    const reader = readerOf(new Map([['zeros', entry]]), [source])
    const budget = createBudget(128 * MiB)
    const pager = await createPager(
      optionsFor(reader, { ioMode, weightBytes: 64 * MiB, ringBytes: 8 * MiB, budget, threads: 1 }),
    )
    await pager.start()
    expect(['none', 'dropped']).toContain(pager.report().pageCache)
    // This thread computes: it may block, the reader is another one.
    const client = createPageClient(pager.shared)
    const probe = (await openFile(path, { mode: 'mmap' })) as Resident
    for (let pass = 1; pass <= 3; pass++)
      for (let page = 0; page < pager.shared.state.length; page++) {
        expect(client.acquire(page, pass)).toBe(true)
        client.release(page)
        if (page % 16 === 0) expect(probe.resident(0, probe.size)).toBeLessThan(48 * MiB) // what the system reads ahead of a mapping, at most 8 MiB here for each read in flight
      }
    await pager.close()
    expect(probe.resident(0, probe.size)).toBeLessThan(MiB)
    await probe.close()
    await source.close()
  }
  rmSync(folder, { recursive: true })
})
