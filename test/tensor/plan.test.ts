import fc from 'fast-check'
import { expect, test } from 'vitest'
import type { TensorEntry } from '#sluice/format/reader.js'
import { mergeReads, planUnits, unitLayout } from '#sluice/tensor/plan.js'
import { type Axis, rowSlices, runs, simplifyAxes, sliceAxes, stridesOf } from '#sluice/tensor/strided.js'
import { entry } from './readers.ts'

const BF16 = { kind: 'plain', dtype: 'bfloat16' } as const
const Q8 = { kind: 'ggml', type: 'Q8_0' } as const
const INT4 = { kind: 'panel', scheme: 'int4', block: 32, scale: 'f16', exponent: 0 } as const

const r = (source: number, offset: number, length: number) => ({ source, offset, length })
const bare = (reads: readonly { source: number; offset: number; length: number }[]) =>
  reads.map(({ source, offset, length }) => r(source, offset, length))

test('units: elements, blocks of a row, panels of 16 rows', () => {
  expect(unitLayout(entry(BF16, 5, 64, 100))).toMatchObject({ unitElements: 1, unitBytes: 2, units: 320 })
  expect(unitLayout(entry(Q8, 5, 64, 100))).toMatchObject({ unitElements: 32, unitBytes: 34, units: 10 })
  // 64 columns = two blocks of 288 bytes a panel (docs/FORMAT.md §5.1); 40 rows = 3 panels
  expect(unitLayout(entry(INT4, 40, 64, 100))).toMatchObject({ unitElements: 1024, unitBytes: 576, units: 3 })
})

test('one row of a plain matrix is its bytes', () => {
  expect(planUnits(unitLayout(entry(BF16, 5, 64, 100)), 3 * 64, 4 * 64)).toEqual([r(0, 100 + 3 * 128, 128)])
})

test('one row of panels is its panel', () => {
  expect(planUnits(unitLayout(entry(INT4, 40, 64, 100)), 1, 2)).toEqual([r(0, 676, 576)])
})

const SPLIT: TensorEntry = {
  ...entry(BF16, 40, 64, 0),
  segments: [
    { source: 0, offset: 4096, length: 16 * 128, rowStart: 0, rows: 16 },
    { source: 1, offset: 0, length: 16 * 128, rowStart: 16, rows: 16 },
    { source: 2, offset: 8192, length: 8 * 128, rowStart: 32, rows: 8 },
  ],
}

test('rows over three shards are three ranges', () => {
  const layout = unitLayout(SPLIT)
  expect(planUnits(layout, 10 * 64, 35 * 64)).toEqual([r(0, 4096 + 1280, 768), r(1, 0, 2048), r(2, 8192, 384)])
  expect(planUnits(layout, 16 * 64, 17 * 64)).toEqual([r(1, 0, 128)])
  expect(planUnits(layout, 5, 5)).toEqual([])
})

test('segments that are not the rows are refused', () => {
  const bad = (change: object): TensorEntry => ({
    ...SPLIT,
    segments: [SPLIT.segments[0]!, { ...SPLIT.segments[1]!, ...change }, SPLIT.segments[2]!],
  })
  for (const change of [{ rowStart: 17 }, { length: 2047 }, { rows: 17 }, { length: 2050 }])
    expect(() => unitLayout(bad(change))).toThrowError(expect.objectContaining({ code: 'FORMAT_INVALID' }))
  expect(() => unitLayout({ ...SPLIT, segments: SPLIT.segments.slice(0, 2) })).toThrowError(
    expect.objectContaining({ code: 'FORMAT_INVALID' }),
  )
  const panels = entry(INT4, 40, 64, 0)
  const cut = {
    ...panels,
    segments: [
      { ...panels.segments[0]!, rows: 8, length: 576 },
      { source: 0, offset: 576, length: 1152, rowStart: 8, rows: 32 },
    ],
  }
  expect(() => unitLayout(cut)).toThrowError(expect.objectContaining({ code: 'FORMAT_INVALID' }))
})

test('near ranges are read together, far ones apart, sources apart', () => {
  const ranges = [r(0, 10_000, 100), r(0, 0, 100), r(0, 150, 50), r(1, 200, 10), r(0, 4296, 4)]
  expect(bare(mergeReads(ranges))).toEqual([r(0, 0, 4300), r(0, 10_000, 100), r(1, 200, 10)])
  expect(bare(mergeReads(ranges, { maxGapBytes: 50 }))).toEqual([
    r(0, 0, 200),
    r(0, 4296, 4),
    r(0, 10_000, 100),
    r(1, 200, 10),
  ])
  expect(bare(mergeReads(ranges, { maxGapBytes: 0 }))).toHaveLength(5)
})

test('a repeated or covered range costs no read, an empty one neither', () => {
  expect(bare(mergeReads([r(0, 0, 100), r(0, 0, 100), r(0, 20, 10), r(0, 50, 0)]))).toEqual([r(0, 0, 100)])
})

test('no read is longer than asked for, and never longer than 1 GiB', () => {
  const GiB = 1024 ** 3
  expect(bare(mergeReads([r(0, 8, 2.5 * GiB)]))).toEqual([r(0, 8, GiB), r(0, 8 + GiB, GiB), r(0, 8 + 2 * GiB, GiB / 2)])
  expect(bare(mergeReads([r(0, 0, 5 * GiB)], { maxReadBytes: 4 * GiB }))).toHaveLength(5)
  // Offsets past 2^32 and near 2^53 stay exact.
  expect(bare(mergeReads([r(0, 2 ** 52, 10), r(0, 2 ** 52 + 20, 10)]))).toEqual([r(0, 2 ** 52, 30)])
})

test('parts of merged reads are exactly the ranges', () => {
  const range = fc.record({ source: fc.nat(1), offset: fc.nat(500), length: fc.nat(60) })
  fc.assert(
    fc.property(
      fc.array(range, { maxLength: 30 }),
      fc.nat(40),
      fc.integer({ min: 1, max: 8 }),
      (ranges, gap, eights) => {
        const most = eights * 8
        const reads = mergeReads(ranges, { maxGapBytes: gap, maxReadBytes: most })
        const covered = new Map(ranges.map((x) => [x, 0]))
        for (const read of reads) {
          expect(read.length).toBeLessThanOrEqual(most)
          for (const p of read.parts) {
            expect(p.range.source).toBe(read.source)
            expect(p.range.offset + p.from).toBe(read.offset + p.at)
            expect(p.at + p.length).toBeLessThanOrEqual(read.length)
            expect(p.from).toBe(covered.get(p.range))
            covered.set(p.range, covered.get(p.range)! + p.length)
          }
        }
        for (const [x, n] of covered) expect(n).toBe(x.length)
      },
    ),
    { seed: 1, numRuns: 500 },
  )
})

test('axes that continue each other are one run', () => {
  const e = entry(BF16, 6, 8, 0, { shape: [2, 3, 8] })
  expect(
    simplifyAxes(
      sliceAxes(e, [
        [0, 2],
        [0, 3],
        [0, 8],
      ]).axes,
    ),
  ).toEqual([{ count: 48, stride: 1, step: 1 }])
  expect([
    ...runs(
      0,
      sliceAxes(e, [
        [0, 2],
        [1, 3],
        [0, 8],
      ]).axes,
    ),
  ]).toEqual([
    [
      { from: 0, length: 16, to: 0, step: 1 },
      { from: 24, length: 16, to: 16, step: 1 },
    ],
  ])
})

test('channels-last strides', () => {
  expect(stridesOf({ ...entry(BF16, 6, 4, 0), shape: [2, 3, 5, 7], layout: 'channels-last' })).toEqual([105, 1, 21, 3])
  expect(stridesOf({ ...entry(BF16, 6, 4, 0), shape: [2, 3, 5, 7] })).toEqual([105, 35, 7, 1])
})

test('runs name every element of a slice once, in storage order, whatever the strides', () => {
  const shape = fc.array(fc.integer({ min: 1, max: 5 }), { minLength: 1, maxLength: 4 })
  fc.assert(
    fc.property(shape, fc.infiniteStream(fc.nat(1000)), (dims, random) => {
      const next = () => random.next().value
      // Strides of an array of larger extents, axes shuffled: disjoint, with holes.
      const order = [...dims.keys()].sort(() => (next() % 3) - 1)
      const strides = new Array<number>(dims.length)
      let step = 1 + (next() % 2)
      for (const k of order) {
        strides[k] = step
        step *= dims[k]! + (next() % 2)
      }
      const ranges = dims.map((d) => {
        const a = next() % d
        return [a, a + 1 + (next() % (d - a))] as const
      })
      const e = { ...entry(BF16, 1, 1, 0), shape: dims, strides }
      const { start, axes } = sliceAxes(e, ranges)
      const got = new Map<number, number>()
      let last = -1
      for (const batch of runs(start, axes))
        for (const run of batch)
          for (let i = 0; i < run.length; i++) {
            expect(run.from + i).toBeGreaterThan(last)
            last = run.from + i
            got.set(run.to + i * run.step, run.from + i)
          }
      const sizes = ranges.map(([a, b]) => b - a)
      const count = sizes.reduce((a, b) => a * b, 1)
      expect(got.size).toBe(count)
      for (let n = 0; n < count; n++) {
        let rest = n
        let at = 0
        for (let k = dims.length - 1; k >= 0; k--) {
          at += (ranges[k]![0] + (rest % sizes[k]!)) * strides[k]!
          rest = Math.floor(rest / sizes[k]!)
        }
        expect(got.get(n)).toBe(at)
      }
    }),
    { seed: 1, numRuns: 300 },
  )
})

test('an empty slice has no runs; many runs come in batches', () => {
  expect([...runs(0, [{ count: 0, stride: 1, step: 1 }])]).toEqual([])
  const columns: Axis[] = [{ count: 10_000, stride: 7, step: 1 }]
  const batches = [...runs(0, columns)]
  expect(batches.map((b) => b.length)).toEqual([4096, 4096, 1808])
  expect(batches[2]!.at(-1)).toEqual({ from: 69_993, length: 1, to: 9999, step: 1 })
})

test('rows of the matrix view as slices', () => {
  expect([...rowSlices([2, 3, 4], 2, 5)]).toEqual([
    [
      [0, 1],
      [2, 3],
      [0, 4],
    ],
    [
      [1, 2],
      [0, 2],
      [0, 4],
    ],
  ])
  expect([...rowSlices([5, 4], 1, 4)]).toEqual([
    [
      [1, 4],
      [0, 4],
    ],
  ])
  expect([...rowSlices([4], 0, 1)]).toEqual([[[0, 4]]])
  expect([...rowSlices([], 0, 1)]).toEqual([[]])
})
