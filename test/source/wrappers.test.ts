// What each wrapper does beyond the contract: exact reads, caps, counts, order, cancellation.

import fc from 'fast-check'
import pLimit from 'p-limit'
import { expect, test } from 'vitest'
import { cached } from '#sluice/source/cached.js'
import { type CoalescedBatch, coalesced, planCoalesced } from '#sluice/source/coalesced.js'
import { counted } from '#sluice/source/counted.js'
import { limited } from '#sluice/source/limited.js'
import { MemorySource } from '#sluice/source/memory.js'
import { slice } from '#sluice/source/slice.js'
import type { ByteSource, ReadOptions } from '#sluice/source/source.js'
import { seededBytes } from './files.ts'

const bytes = seededBytes(10_000, 2)
const recorded = () => counted(new MemorySource(bytes), { record: true })
const code = (error: unknown) => (error as { code?: string }).code

/** A source whose reads end when the test says so. */
class ManualSource implements ByteSource {
  readonly size = bytes.byteLength
  readonly id = 'manual'
  readonly kind = 'manual'
  readonly alignment = 1
  readonly started: {
    offset: number
    length: number
    signal: AbortSignal | undefined
    finish: (error?: Error) => void
  }[] = []
  read(offset: number, length: number, options?: ReadOptions): Promise<Uint8Array> {
    return new Promise((resolve, reject) => {
      this.started.push({
        offset,
        length,
        signal: options?.signal,
        finish: (error) => (error ? reject(error) : resolve(bytes.slice(offset, offset + length))),
      })
    })
  }
  close(): void {}
}
const turn = () => new Promise((r) => setTimeout(r, 1))

test('counted: reads, bytes, ranges, views, blocking reads', async () => {
  const s = recorded()
  await s.read(5, 10)
  s.view!(0, 100)
  s.readSync!(1, 2)
  expect([s.reads, s.bytes]).toEqual([3, 112])
  expect(s.ranges).toEqual([
    { offset: 5, length: 10 },
    { offset: 0, length: 100 },
    { offset: 1, length: 2 },
  ])
  s.reset()
  expect([s.reads, s.bytes, s.ranges.length]).toEqual([0, 0, 0])
})

test('coalesced: the exact reads', async () => {
  const inner = recorded()
  const batches: CoalescedBatch[] = []
  const s = coalesced(inner, { maxGapBytes: 10, maxReadBytes: 1000, onBatch: (b) => batches.push(b) })
  const wanted: [number, number][] = [
    [500, 100], // alone
    [20, 10], // with the next ones: gaps of 10 and overlap
    [0, 10],
    [25, 20],
    [2000, 800], // with the next it would be too long
    [2800, 300],
    [9000, 0],
  ]
  const got = await Promise.all(wanted.map(([o, n]) => s.read(o, n)))
  for (const [i, [o, n]] of wanted.entries()) expect(Buffer.compare(got[i]!, bytes.subarray(o, o + n))).toBe(0)
  expect(inner.ranges).toEqual([
    { offset: 0, length: 45 },
    { offset: 500, length: 100 },
    { offset: 2000, length: 800 },
    { offset: 2800, length: 300 },
    { offset: 9000, length: 0 },
  ])
  expect(batches).toEqual([{ requestedReads: 7, requestedBytes: 1240, issuedReads: 5, issuedBytes: 1245 }])
  await s.read(0, 1)
  await s.read(1, 1)
  expect(inner.reads).toBe(7) // not together, not merged
})

test('coalesced: plans cover what was asked, in the fewest runs that the rules allow', () => {
  const request = fc.record({ offset: fc.nat(5000), length: fc.nat(300) })
  fc.assert(
    fc.property(fc.array(request, { maxLength: 40 }), fc.nat(200), (requests, gap) => {
      const groups = planCoalesced(requests, gap, 1000)
      expect(groups.flatMap((g) => g.members)).toHaveLength(requests.length)
      for (const g of groups) {
        for (const m of g.members) expect(m.offset >= g.start && m.offset + m.length <= g.end).toBe(true)
        if (g.members.length > 1) expect(g.end - g.start).toBeLessThanOrEqual(1000)
      }
      for (let i = 1; i < groups.length; i++) {
        const [a, b] = [groups[i - 1]!, groups[i]!]
        const first = b.members[0]!
        const joined = Math.max(a.end, first.offset + first.length) - a.start
        expect(b.start - a.end > gap || joined > 1000).toBe(true)
      }
    }),
  )
})

test('coalesced: one that cancels does not disturb the others; when all cancel the read is cancelled', async () => {
  const inner = new ManualSource()
  const s = coalesced(inner)
  const one = new AbortController()
  const two = new AbortController()
  const into = new Uint8Array(10).fill(0xee)
  const a = s.read(0, 10, { signal: one.signal, into }) as Promise<Uint8Array>
  const b = s.read(10, 10, { signal: two.signal }) as Promise<Uint8Array>
  await turn()
  expect(inner.started).toHaveLength(1)
  one.abort()
  expect(await a.catch(code)).toBe('ABORTED')
  expect(inner.started[0]!.signal!.aborted).toBe(false)
  inner.started[0]!.finish()
  expect(Buffer.compare(await b, bytes.subarray(10, 20))).toBe(0)
  expect(into.every((x) => x === 0xee)).toBe(true)

  const c = s.read(0, 10, { signal: two.signal }) as Promise<Uint8Array>
  const d = s.read(10, 10, { signal: two.signal }) as Promise<Uint8Array>
  await turn()
  two.abort()
  expect(await c.catch(code)).toBe('ABORTED')
  expect(await d.catch(code)).toBe('ABORTED')
  await turn()
  expect(inner.started[1]!.signal!.aborted).toBe(true)
})

test('coalesced: an error reaches everybody who waits', async () => {
  const inner = new ManualSource()
  const s = coalesced(inner)
  const reads = [s.read(0, 10), s.read(10, 10)] as Promise<Uint8Array>[]
  await turn()
  inner.started[0]!.finish(new Error('disk gone'))
  for (const r of reads) await expect(r).rejects.toThrow('disk gone')
})

test('cached: a block is read once, the least recently used goes first, the cap holds', async () => {
  const inner = recorded()
  const s = cached(inner, { capBytes: 3000, blockBytes: 1000 })
  const blocks = async (offset: number, length: number) => {
    inner.reset()
    const got = await s.read(offset, length)
    expect(Buffer.compare(got, bytes.subarray(offset, offset + length))).toBe(0)
    return inner.ranges.map((r) => r.offset / 1000)
  }
  expect(await blocks(10, 20)).toEqual([0])
  expect(await blocks(900, 200)).toEqual([1])
  expect(await blocks(0, 1)).toEqual([])
  expect(await blocks(2500, 1)).toEqual([2])
  expect(await blocks(0, 1)).toEqual([]) // 0 is now used later than 1
  expect(await blocks(3000, 1)).toEqual([3]) // 1 goes
  expect(await blocks(0, 1)).toEqual([])
  expect(await blocks(2000, 1000)).toEqual([])
  expect(await blocks(1000, 1)).toEqual([1])
  // More than half the cap passes by, and leaves the cache as it was.
  inner.reset()
  await s.read(0, 1501)
  expect(inner.ranges).toEqual([{ offset: 0, length: 1501 }])
  expect(await blocks(2000, 1)).toEqual([])
})

test('cached: many ask for one block, one read; a failed one is read again; a cancel is not the others’', async () => {
  const inner = new ManualSource()
  const s = cached(inner, { capBytes: 4000, blockBytes: 1000 })
  const stop = new AbortController()
  const a = s.read(0, 5, { signal: stop.signal }) as Promise<Uint8Array>
  const b = s.read(5, 5) as Promise<Uint8Array>
  await turn()
  expect(inner.started).toHaveLength(1)
  stop.abort()
  expect(await a.catch(code)).toBe('ABORTED')
  inner.started[0]!.finish(new Error('once'))
  await expect(b).rejects.toThrow('once')
  const again = s.read(5, 5) as Promise<Uint8Array>
  await turn()
  inner.started[1]!.finish()
  expect(Buffer.compare(await again, bytes.subarray(5, 10))).toBe(0)
})

test('cached: refuses a cap below one block', () => {
  for (const o of [{ capBytes: 10, blockBytes: 20 }, { capBytes: Number.NaN }, { capBytes: 10, blockBytes: 0 }])
    expect(() => cached(new MemorySource(bytes), o)).toThrow('at least one block')
})

test('limited: never more at once, in order, and a waiting one cancels at once', async () => {
  const inner = new ManualSource()
  const s = limited(inner, 2)
  const stop = new AbortController()
  const reads = [0, 1, 2, 3].map((i) => s.read(i, 1, i === 2 ? { signal: stop.signal } : {}) as Promise<Uint8Array>)
  await turn()
  expect(inner.started.map((r) => r.offset)).toEqual([0, 1])
  stop.abort()
  expect(await reads[2]!.catch(code)).toBe('ABORTED')
  inner.started[0]!.finish()
  await turn()
  expect(inner.started.map((r) => r.offset)).toEqual([0, 1, 3]) // the cancelled one never started
  inner.started[1]!.finish()
  inner.started[2]!.finish()
  for (const i of [0, 1, 3]) expect((await reads[i]!)[0]).toBe(bytes[i])
})

test('limited: a running read owns its buffer and answers its own cancel', async () => {
  const inner = new ManualSource()
  const s = limited(inner, 1)
  const stop = new AbortController()
  let settled = false
  const read = (s.read(0, 5, { signal: stop.signal }) as Promise<Uint8Array>).finally(() => {
    settled = true
  })
  await turn()
  stop.abort()
  await turn()
  expect(settled).toBe(false)
  inner.started[0]!.finish()
  expect((await read).byteLength).toBe(5)
})

test('limited: several sources share one limit', async () => {
  const [a, b] = [new ManualSource(), new ManualSource()]
  const limit = pLimit(1)
  const first = limited(a, limit).read(0, 1)
  const second = limited(b, limit).read(0, 1)
  await turn()
  expect([a.started.length, b.started.length]).toEqual([1, 0])
  a.started[0]!.finish()
  await first
  await turn()
  b.started[0]!.finish()
  await second
})

test('one signal for hundreds of reads raises no warning', async () => {
  const warnings: Error[] = []
  const listen = (w: Error) => warnings.push(w)
  process.on('warning', listen)
  const s = limited(coalesced(new MemorySource(bytes)), 2)
  const { signal } = new AbortController()
  await Promise.all(Array.from({ length: 300 }, (_, i) => s.read(i, 10, { signal })))
  await turn()
  process.off('warning', listen)
  expect(warnings).toEqual([])
})

test('slice: its own range, its own close', async () => {
  const inner = new MemorySource(bytes)
  const s = slice(inner, 100, 50)
  expect(s.size).toBe(50)
  expect(Buffer.compare(await s.read(10, 40), bytes.subarray(110, 150))).toBe(0)
  expect(() => s.read(10, 41)).toThrow('past the end')
  const inside = slice(s, 5, 5)
  expect(Buffer.compare(inside.view!(0, 5), bytes.subarray(105, 110))).toBe(0)
  await s.close()
  expect(() => s.read(0, 1)).toThrow('after close')
  expect((await inner.read(0, 1))[0]).toBe(bytes[0])
  for (const [o, n] of [
    [-1, 5],
    [9990, 11],
    [0, 2 ** 53],
  ] as const)
    expect(() => slice(inner, o, n)).toThrow('past the end')
})
