import fc from 'fast-check'
import { expect, test } from 'vitest'
import { cutMatrix, pageExtent } from '#sluice/pager/pages.js'
import { placeOf, placeReads } from '#sluice/pager/place.js'
import { createRing } from '#sluice/pager/ring.js'
import { F16, F32, INT4, makeModel, Q4_0 } from './fixture.ts'

const spec = fc.record({
  rows: fc.integer({ min: 1, max: 500 }),
  cols: fc.constantFrom(32, 96),
  encoding: fc.constantFrom(F32, F16, INT4, Q4_0),
  split: fc.constantFrom(16, 64, 160, 1000 * 16),
  gap: fc.nat(10_000),
})

test('pages cover every row once, in order, and their ranges every stored byte once', () => {
  fc.assert(
    fc.property(spec, fc.integer({ min: 1, max: 20_000 }), fc.integer({ min: 1, max: 3 }), (s, target, sources) => {
      const model = makeModel([s], sources, 1)
      const entry = model.reader.tensors.get('m0')!
      const cut = cutMatrix(entry, target)
      expect(cut.rowsPerPage % 16).toBe(0)
      let row = 0
      const got: Uint8Array[] = []
      for (let i = 0; i < cut.pageCount; i++) {
        const e = pageExtent(cut, i)
        expect(e.rowStart).toBe(row)
        expect(e.rows).toBe(i < cut.pageCount - 1 ? cut.rowsPerPage : s.rows - row)
        row += e.rows
        for (const r of e.ranges) got.push(model.files[r.source]!.subarray(r.offset, r.offset + r.length))
        expect(e.ranges.reduce((n, r) => n + r.length, 0)).toBe(e.bytes)
      }
      expect(row).toBe(s.rows)
      const stored = entry.segments.map((g) => model.files[g.source]!.subarray(g.offset, g.offset + g.length))
      expect(Buffer.concat(got).equals(Buffer.concat(stored))).toBe(true)
    }),
  )
})

test('pages follow a page table exactly', () => {
  const [a, b] = [48, 4096].map((table) => {
    const model = makeModel([{ rows: 100, cols: 64, encoding: F32, table }], 1, 1)
    return cutMatrix(model.reader.tensors.get('m0')!, 1)
  })
  expect(a).toMatchObject({ rowsPerPage: 48, pageCount: 3 })
  expect(b).toMatchObject({ rowsPerPage: 4096, pageCount: 1 })
  const odd = makeModel([{ rows: 100, cols: 64, encoding: F32, table: 40 }], 1, 1)
  expect(() => cutMatrix(odd.reader.tensors.get('m0')!)).toThrow(
    expect.objectContaining({ code: 'FORMAT_UNSUPPORTED' }),
  )
})

test('few huge rows and offsets beyond 2^32 stay exact', () => {
  const cols = 3 * 2 ** 30
  const cut = cutMatrix({
    name: 'huge',
    shape: [40, cols],
    dtype: 'float32',
    encoding: F32,
    rows: 40,
    cols,
    byteLength: 40 * cols * 4,
    segments: [{ source: 0, offset: 2 ** 45 + 7, length: 40 * cols * 4, rowStart: 0, rows: 40 }],
  })
  expect(cut.pageCount).toBe(3)
  expect(pageExtent(cut, 2).ranges).toEqual([{ source: 0, offset: 2 ** 45 + 7 + 32 * cols * 4, length: 8 * cols * 4 }])
  const p = placeOf(cut, 1, [{ size: 2 ** 50, alignment: 4096 }], false)
  expect(p.shift).toBe(7)
  expect(p.reads).toEqual([
    { source: 0, offset: 2 ** 45 + 16 * cols * 4, length: 16 * cols * 4 + 4096, shift: 7, at: 0 },
  ])
})

test('a place holds its reads: whole blocks around the bytes, never past the end of the source', () => {
  fc.assert(
    fc.property(
      fc.nat(1e6),
      fc.integer({ min: 1, max: 1e6 }),
      fc.nat(9000),
      fc.boolean(),
      (offset, length, rest, exact) => {
        const size = offset + length + rest
        const place = placeReads([{ source: 0, offset, length }], [{ size, alignment: 4096 }], exact)
        const [read] = place.reads
        expect(read!.offset).toBeLessThanOrEqual(offset)
        expect(read!.offset + place.shift).toBe(offset)
        expect(read!.offset + read!.length).toBeGreaterThanOrEqual(offset + length)
        expect(read!.offset + read!.length).toBeLessThanOrEqual(size)
        expect(read!.at + read!.length).toBeLessThanOrEqual(place.bytes)
        expect(place.bytes % place.alignment).toBe(0)
        if (exact) expect(read).toMatchObject({ offset, length })
        else expect(read!.offset % 4096).toBe(0)
      },
    ),
  )
})

test('ring slots never overlap while held, and an empty ring takes anything up to its size', () => {
  const step = fc.oneof(fc.integer({ min: 1, max: 400 }), fc.constant(0))
  fc.assert(
    fc.property(fc.array(step, { maxLength: 300 }), (steps) => {
      const ring = createRing(1000)
      const held: { at: number; bytes: number }[] = []
      for (const bytes of steps) {
        if (bytes === 0) {
          if (held.shift() !== undefined) ring.giveBack()
          if (held.length === 0) {
            expect(ring.take(1000)).toBe(0)
            ring.giveBack()
          }
          continue
        }
        const at = ring.take(bytes)
        if (at < 0) {
          expect(held.length).toBeGreaterThan(0)
          continue
        }
        expect(at + bytes).toBeLessThanOrEqual(1000)
        for (const h of held) expect(at + bytes <= h.at || h.at + h.bytes <= at).toBe(true)
        held.push({ at, bytes })
      }
      // Two of half the size always fit.
      ring.clear()
      expect([ring.take(500), ring.take(500), ring.take(1)]).toEqual([0, 500, -1])
      ring.giveBack()
      expect(ring.take(500)).toBe(0)
    }),
  )
})
