import { Worker } from 'node:worker_threads'
import fc from 'fast-check'
import { expect, test } from 'vitest'
import { createArenas, MAX_ARENA_BYTES } from '#sluice/memory/arena.js'
import { ARENA_RESERVED_BYTES } from '#sluice/memory/memory.js'

const KiB = 1024
const MiB = 1024 * KiB

test('allocations are aligned, apart from each other, above the reserved part, and inside the memory', () => {
  const alloc = fc.record({ bytes: fc.integer({ min: 0, max: 200_000 }), align: fc.constantFrom(1, 4, 64, 512, 4096) })
  fc.assert(
    fc.property(fc.array(alloc, { maxLength: 60 }), (wants) => {
      const set = createArenas({ maxArenaBytes: 16 * 65536, reserved: 65536 })
      const end: number[] = []
      for (const { bytes, align } of wants) {
        const page = set.alloc(bytes, align)
        expect(page.bytes).toBe(bytes)
        expect(page.address % align).toBe(0)
        expect(page.address).toBeGreaterThanOrEqual(end[page.arena] ?? 65536)
        end[page.arena] = page.address + bytes
        expect(end[page.arena]).toBeLessThanOrEqual(set.arenas[page.arena]!.memory.buffer.byteLength)
      }
    }),
    { numRuns: 50 },
  )
})

test('adds an arena when none has room, and refuses what no arena holds', () => {
  const set = createArenas({ maxArenaBytes: 1 * MiB, reserved: 64 * KiB })
  expect(set.arenas.length).toBe(1)
  expect(set.alloc(900 * KiB, 64).arena).toBe(0)
  expect(set.alloc(900 * KiB, 64).arena).toBe(1)
  expect(set.alloc(30 * KiB, 64).arena).toBe(1)
  expect(() => set.alloc(961 * KiB, 64)).toThrow(expect.objectContaining({ code: 'BUDGET_EXCEEDED' }))
  expect(set.arenas.length).toBe(2)
  expect(() => set.arenas[0]!.alloc(100 * KiB, 64)).toThrow(expect.objectContaining({ code: 'BUDGET_EXCEEDED' }))
})

test('addresses reach past 2^31 and nothing is resident that was not touched', () => {
  const set = createArenas()
  const before = process.memoryUsage().rss
  const low = set.alloc(3 * 1024 ** 3, 64)
  const high = set.alloc(64 * KiB, 4096)
  expect(low.address).toBe(ARENA_RESERVED_BYTES)
  expect(high.address).toBeGreaterThan(2 ** 31)
  const bytes = new Uint8Array(set.arenas[high.arena]!.memory.buffer, high.address, high.bytes)
  bytes.fill(7)
  expect(bytes[high.bytes - 1]).toBe(7)
  expect(process.memoryUsage().rss - before).toBeLessThan(64 * MiB)
  expect(set.alloc(2 * 1024 ** 3, 64).arena).toBe(1)
})

test('reserve grows once', () => {
  const { arenas } = createArenas()
  const { memory } = arenas[0]!
  arenas[0]!.reserve(100 * MiB)
  const { buffer } = memory
  for (let i = 0; i < 100; i++) arenas[0]!.alloc(MiB, 64)
  expect(memory.buffer).toBe(buffer)
})

test('another thread sees bytes beyond the size it was given, after reading memory.buffer again', async () => {
  const set = createArenas({ reserved: 65536 })
  const { memory } = set.arenas[0]!
  const worker = new Worker(
    `const { workerData: memory, parentPort } = require('node:worker_threads')
     const before = memory.buffer.byteLength
     parentPort.once('message', (address) => {
       parentPort.postMessage([before, new Uint8Array(memory.buffer, address, 1)[0]])
     })
     parentPort.postMessage('up')`,
    { eval: true, workerData: memory },
  )
  const next = () => new Promise((resolve) => worker.once('message', resolve))
  await next()
  const page = set.alloc(50 * MiB, 64)
  const last = page.address + page.bytes - 1
  new Uint8Array(memory.buffer)[last] = 42
  worker.postMessage(last)
  expect(await next()).toEqual([65536, 42])
  await worker.terminate()
})

test('refuses impossible sizes', () => {
  for (const maxArenaBytes of [0, 1, 65537, MAX_ARENA_BYTES + 65536, Number.NaN])
    expect(() => createArenas({ maxArenaBytes })).toThrow(expect.objectContaining({ code: 'REQUEST_INVALID' }))
  expect(() => createArenas().alloc(-1, 64)).toThrow(expect.objectContaining({ code: 'REQUEST_INVALID' }))
  expect(() => createArenas().alloc(1, 0)).toThrow(expect.objectContaining({ code: 'REQUEST_INVALID' }))
})
