// The contract of ByteSource as tests. Every implementation and every wrapper runs all of them.
import { closeSync, openSync, rmSync, truncateSync, writeFileSync, writeSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import type { ByteSource } from '#sluice/source/source.js'
import { seededBytes } from './files.ts'

/** Opens what is under test over the file at `path`, whose bytes are `bytes`. */
export type Open = (path: string, bytes: Uint8Array) => Promise<ByteSource>

export interface ContractTraits {
  /** Bytes stay readable after the file is cut or changed: they were in memory. */
  detached?: boolean
  /** Cannot open files of 2 GiB or more. */
  small?: boolean
}

const SIZE = 3 * 4096 + 777 // ends inside a block
const code = (error: unknown) => (error as { code?: unknown }).code

/** Both an error thrown at once and a rejected promise. */
async function failure(call: () => unknown): Promise<unknown> {
  try {
    await call()
  } catch (error) {
    return code(error)
  }
  return 'no error'
}

let files = 0

export function contract(name: string, folder: string, open: Open, traits: ContractTraits = {}): void {
  const bytes = seededBytes(SIZE, 7)

  async function using(work: (source: ByteSource, path: string) => Promise<void>, content = bytes): Promise<void> {
    const path = join(folder, `contract-${files++}.bin`)
    writeFileSync(path, content)
    const source = await open(path, content)
    try {
      await work(source, path)
    } finally {
      await source.close()
      rmSync(path, { force: true })
    }
  }

  const ranges: [number, number][] = [
    [0, 1],
    [0, SIZE],
    [0, 4096],
    [4096, 8192],
    [4096, SIZE - 4096],
    [1, 4096],
    [4095, 2],
    [511, 513],
    [SIZE - 1, 1],
    [3 * 4096, 777],
    [8191, SIZE - 8191],
  ]

  describe(name, () => {
    test('tells its size', () => using(async (s) => expect(s.size).toBe(SIZE)))

    test('reads exact ranges into new buffers', () =>
      using(async (s) => {
        for (const [offset, length] of ranges) {
          const got = await s.read(offset, length)
          expect(got.byteLength).toBe(length)
          expect(Buffer.compare(got, bytes.subarray(offset, offset + length)), `${offset}+${length}`).toBe(0)
        }
      }))

    test('a new buffer belongs to the reader', () =>
      using(async (s) => {
        const got = await s.read(0, 100)
        got.fill(0)
        expect(Buffer.compare(await s.read(0, 100), bytes.subarray(0, 100))).toBe(0)
      }))

    test('reads into a given buffer and touches nothing beside', () =>
      using(async (s) => {
        for (const [offset, length] of ranges)
          for (const shift of [0, 64, 4096, 4097]) {
            const whole = new Uint8Array(SIZE + 8192).fill(0xee)
            const into = whole.subarray(shift, shift + length)
            expect(await s.read(offset, length, { into })).toBe(into)
            expect(Buffer.compare(into, bytes.subarray(offset, offset + length)), `${offset}+${length}@${shift}`).toBe(
              0,
            )
            expect(whole.subarray(0, shift).every((b) => b === 0xee)).toBe(true)
            expect(whole.subarray(shift + length).every((b) => b === 0xee)).toBe(true)
          }
      }))

    test('a buffer that is longer is filled at its beginning only', () =>
      using(async (s) => {
        const into = new Uint8Array(5000).fill(0xee)
        const got = await s.read(100, 4500, { into })
        expect(got.byteLength).toBe(4500)
        expect(got.buffer).toBe(into.buffer)
        expect(Buffer.compare(got, bytes.subarray(100, 4600))).toBe(0)
        expect(into.subarray(4500).every((b) => b === 0xee)).toBe(true)
        expect(await failure(() => s.read(0, 100, { into: new Uint8Array(99) }))).toBe('REQUEST_INVALID')
      }))

    test('reads into shared WebAssembly memory', () =>
      using(async (s) => {
        const memory = new WebAssembly.Memory({ initial: 1, maximum: 4, shared: true })
        for (const [offset, length] of ranges)
          for (const address of [0, 4096, 4096 + 64, 8191]) {
            const into = new Uint8Array(memory.buffer, address, length)
            new Uint8Array(memory.buffer).fill(0xee)
            await s.read(offset, length, { into })
            expect(
              Buffer.compare(into, bytes.subarray(offset, offset + length)),
              `${offset}+${length}@${address}`,
            ).toBe(0)
            const after = new Uint8Array(memory.buffer, address + length, 4096)
            expect(after.every((b) => b === 0xee)).toBe(true)
          }
      }))

    test('a read of nothing gives nothing, up to the end itself', () =>
      using(async (s) => {
        for (const offset of [0, 5, SIZE]) expect((await s.read(offset, 0)).byteLength).toBe(0)
      }))

    test('refuses every range that is not inside', () =>
      using(async (s) => {
        const bad: [number, number][] = [
          [SIZE, 1],
          [0, SIZE + 1],
          [SIZE + 1, 0],
          [-1, 1],
          [0, -1],
          [0.5, 1],
          [0, Number.NaN],
          [Number.MAX_SAFE_INTEGER, 1],
          [1, Number.MAX_SAFE_INTEGER],
          [2 ** 60, 2 ** 60],
          [Number.POSITIVE_INFINITY, 0],
        ]
        for (const [offset, length] of bad)
          expect(await failure(() => s.read(offset, length)), `${offset}+${length}`).toBe('SOURCE_RANGE')
        if (s.view !== undefined)
          for (const [offset, length] of bad)
            expect(await failure(() => s.view!(offset, length)), `view ${offset}+${length}`).toBe('SOURCE_RANGE')
        if (s.readSync !== undefined)
          for (const [offset, length] of bad)
            expect(await failure(() => s.readSync!(offset, length)), `sync ${offset}+${length}`).toBe('SOURCE_RANGE')
      }))

    test('blocking reads and views give the same bytes', () =>
      using(async (s) => {
        for (const [offset, length] of ranges) {
          const expected = bytes.subarray(offset, offset + length)
          if (s.readSync !== undefined) {
            const into = new Uint8Array(length)
            expect(s.readSync(offset, length, into)).toBe(into)
            expect(Buffer.compare(into, expected)).toBe(0)
          }
          if (s.view !== undefined) expect(Buffer.compare(s.view(offset, length), expected)).toBe(0)
        }
      }))

    test('advice never fails', () =>
      using(async (s) => {
        for (const hint of ['sequential', 'random', 'willneed', 'dontneed'] as const)
          for (const [offset, length] of [...ranges, [SIZE, 100], [2 ** 50, 2 ** 50]] as [number, number][])
            s.advise?.(offset, length, hint)
        expect(Buffer.compare(await s.read(0, SIZE), bytes)).toBe(0)
      }))

    test('many reads at once do not mix', () =>
      using(async (s) => {
        const jobs = Array.from({ length: 200 }, (_, i) => {
          const offset = (i * 977) % (SIZE - 600)
          const length = 1 + ((i * 131) % 600)
          return { offset, length }
        })
        const got = await Promise.all(jobs.map((j) => s.read(j.offset, j.length)))
        for (const [i, j] of jobs.entries())
          expect(Buffer.compare(got[i]!, bytes.subarray(j.offset, j.offset + j.length))).toBe(0)
      }))

    test('a signal that has fired cancels before anything is read', () =>
      using(async (s) => {
        const into = new Uint8Array(SIZE).fill(0xee)
        expect(await failure(() => s.read(0, SIZE, { signal: AbortSignal.abort(), into }))).toBe('ABORTED')
        expect(into.every((b) => b === 0xee)).toBe(true)
      }))

    test('a signal that fires while reading leaves the source usable', () =>
      using(async (s) => {
        const stop = new AbortController()
        const reads = Array.from({ length: 20 }, (_, i) =>
          failure(() => s.read(i * 100, 9000, { signal: stop.signal })),
        )
        stop.abort()
        for (const result of await Promise.all(reads)) expect(['ABORTED', 'no error']).toContain(result)
        expect(Buffer.compare(await s.read(0, SIZE), bytes)).toBe(0)
      }))

    test('closes twice, and is closed then', () =>
      using(async (s) => {
        await s.read(0, 1)
        await s.close()
        await s.close()
        expect(await failure(() => s.read(0, 1))).toBe('SOURCE_CLOSED')
        expect(await failure(() => s.read(0, SIZE))).toBe('SOURCE_CLOSED')
        if (s.view !== undefined) expect(await failure(() => s.view!(0, 1))).toBe('SOURCE_CLOSED')
        if (s.readSync !== undefined) expect(await failure(() => s.readSync!(0, 1))).toBe('SOURCE_CLOSED')
        s.advise?.(0, 100, 'dontneed')
      }))

    test('close waits for reads in flight', () =>
      using(async (s) => {
        const reads = Array.from({ length: 50 }, (_, i) => Promise.resolve(s.read(i, 10000)).catch(code))
        await s.close()
        for (const [i, got] of (await Promise.all(reads)).entries())
          if (got !== 'SOURCE_CLOSED') expect(Buffer.compare(got as Uint8Array, bytes.subarray(i, i + 10000))).toBe(0)
      }))

    test('an empty file is an empty source', () =>
      using(async (s) => {
        expect(s.size).toBe(0)
        expect((await s.read(0, 0)).byteLength).toBe(0)
        expect(await failure(() => s.read(0, 1))).toBe('SOURCE_RANGE')
        if (s.view !== undefined) expect(s.view(0, 0).byteLength).toBe(0)
      }, new Uint8Array(0)))

    test.skipIf(traits.detached)('a file that shrinks is an error, not a crash', () =>
      using(async (s, path) => {
        truncateSync(path, 5000)
        expect(await failure(() => s.read(8192, 4096))).toBe('SOURCE_CHANGED')
        expect(await failure(() => s.read(0, SIZE))).toBe('SOURCE_CHANGED')
        expect(await failure(() => s.read(4096, 4096))).toBe('SOURCE_CHANGED')
        if (s.view !== undefined) expect(await failure(() => s.view!(8192, 4096))).toBe('SOURCE_CHANGED')
        if (s.readSync !== undefined) expect(await failure(() => s.readSync!(8192, 4096))).toBe('SOURCE_CHANGED')
      }),
    )

    test.skipIf(traits.detached)('a file that is written to is an error, not other weights', () =>
      using(async (s, path) => {
        await new Promise((r) => setTimeout(r, 20)) // clocks of file systems tick in 4 to 10 ms
        writeFileSync(path, seededBytes(SIZE, 8))
        expect(await failure(() => s.read(0, 4096))).toBe('SOURCE_CHANGED')
      }),
    )

    test.skipIf(traits.detached || traits.small)('offsets beyond 4 GiB are exact', async () => {
      const path = join(folder, `sparse-${files++}.bin`)
      const size = 5 * 1024 ** 3
      const at = 4.5 * 1024 ** 3 - 100
      try {
        const fd = openSync(path, 'w')
        writeSync(fd, bytes, 0, SIZE, at)
        closeSync(fd)
        truncateSync(path, size)
        const s = await open(path, bytes)
        try {
          expect(s.size).toBe(size)
          expect(Buffer.compare(await s.read(at, SIZE), bytes)).toBe(0)
          expect((await s.read(at - 2 ** 32, 4096)).every((b) => b === 0)).toBe(true)
          expect((await s.read(size - 3, 3)).every((b) => b === 0)).toBe(true)
          if (s.view !== undefined) expect(Buffer.compare(s.view(at, SIZE), bytes)).toBe(0)
          // a view across 2^32
          if (s.view !== undefined) expect(s.view(2 ** 32 - 5000, 10000).every((b) => b === 0)).toBe(true)
          if (s.readSync !== undefined) expect(Buffer.compare(s.readSync(at, SIZE), bytes)).toBe(0)
          expect(await failure(() => s.read(size - 1, 2))).toBe('SOURCE_RANGE')
        } finally {
          await s.close()
        }
      } finally {
        rmSync(path, { force: true })
      }
    })
  })
}
