// The pager over memory sources: the loop runs on this thread, compute threads are real.
import fc from 'fast-check'
import { afterAll, expect, test } from 'vitest'
import { KERNEL_SETS, selectKernels } from '#sluice/kernels/select.js'
import { createArenas } from '#sluice/memory/arena.js'
import { createBudget } from '#sluice/memory/budget.js'
import { ARENA_RESERVED_BYTES } from '#sluice/memory/memory.js'
import { createPageClient } from '#sluice/pager/client.js'
import { createPager, type PagerOptions, planPager } from '#sluice/pager/create.js'
import { cutMatrix } from '#sluice/pager/pages.js'
import { createShared } from '#sluice/pager/shared.js'
import { createStream } from '#sluice/pager/stream.js'
import {
  BF16_BIG,
  expectedPages,
  F16,
  F32,
  F32_BIG,
  INT4,
  type Model,
  MXFP4,
  makeModel,
  Q4_0,
  Q4_1,
  Q5_1,
  Q5_1_BIG,
  Q8_0,
  Q8_0_BIG,
  readerOf,
  startConsumers,
  watched,
} from './fixture.ts'

const consumers = startConsumers(3)
afterAll(() => consumers.stop())

const GiB = 1024 ** 3

// Every set that runs here repacks the same bytes.
const tried = await Promise.allSettled(KERNEL_SETS.map((force) => selectKernels({ force })))
const kernelSets = tried.flatMap((t) => (t.status === 'fulfilled' ? [t.value] : []))

function setup(model: Model, options: Partial<PagerOptions> & { weightBytes: number }) {
  const arenas = options.arenas ?? createArenas({ reserved: 65536 })
  const budget = options.budget ?? createBudget(GiB)
  const reader = options.reader ?? model.reader
  return { arenas, budget, reader, names: [...reader.tensors.keys()], threads: 1, ...options } as PagerOptions
}

/** The smallest memory, and that for everything. */
function bounds(options: PagerOptions): { low: number; high: number } {
  const { plan } = planPager({ ...options, weightBytes: GiB })
  let low = 1
  try {
    planPager({ ...options, weightBytes: 1 })
  } catch (error) {
    low = (error as { details: { requiredBytes: number } }).details.requiredBytes
  }
  return { low, high: plan.summary.residentBytes }
}

const memoriesOf = (o: PagerOptions) => o.arenas.arenas.map((a) => a.memory)

const matrix = fc.record({
  rows: fc.integer({ min: 1, max: 200 }),
  cols: fc.constantFrom(32, 64, 160),
  encoding: fc.constantFrom(F32, F16, F32_BIG, BF16_BIG, INT4, Q4_0, Q8_0, Q8_0_BIG, Q4_1, MXFP4, Q5_1, Q5_1_BIG),
  split: fc.option(fc.constantFrom(16, 48, 96), { nil: undefined }),
  table: fc.option(fc.constantFrom(16, 32, 112), { nil: undefined }),
  gap: fc.integer({ min: 0, max: 40 }),
})

test('every compute thread sees exactly the right bytes of every page in every pass', async () => {
  await fc.assert(
    fc.asyncProperty(
      fc.array(matrix, { minLength: 1, maxLength: 6 }),
      fc.integer({ min: 1, max: 3 }),
      fc.integer({ min: 1, max: 3 }),
      fc.double({ min: 0, max: 1.2, noNaN: true }),
      fc.constantFrom(1000, 3000, 16000),
      fc.integer({ min: 1, max: 6 }),
      fc.constantFrom(...kernelSets),
      fc.nat(1e6),
      async (specs, sources, threads, part, pageBytes, reads, kernels, seed) => {
        const clean = specs.map(({ split, table, ...s }) => ({
          ...s,
          ...(split === undefined ? {} : { split }),
          ...(table === undefined ? {} : { table }),
        }))
        const model = makeModel(clean, sources, seed)
        // Small arenas, so that pages lie in several.
        const arenas = createArenas({ maxArenaBytes: ARENA_RESERVED_BYTES + 4 * 65536 })
        const options = setup(model, { weightBytes: 1, threads, pageBytes, reads, arenas, kernels })
        const { low, high } = bounds(options)
        const weightBytes = Math.max(low, Math.floor(part * high))
        const pager = await createPager({ ...options, weightBytes })
        await pager.start()
        const outcomes = await consumers.run(threads, {
          ...expectedPages(model, pager),
          shared: pager.shared,
          memories: memoriesOf(options),
          firstPass: 1,
          passes: 3,
          seed,
          pauseMs: 0.3,
        })
        const pages = pager.shared.state.length
        for (const o of outcomes) expect(o).toEqual({ seen: 3 * pages, stallNs: o.stallNs })
        const held = options.budget.report()
        expect(held.weights + held.ring + held.io).toBeLessThanOrEqual(weightBytes)
        expect(options.budget.used).toBe(pager.plan().totalBytes)
        await pager.close()
        expect(options.budget.used).toBe(0)
        expect(pager.failure).toBeUndefined()
      },
    ),
    { numRuns: 60 },
  )
})

const six = Array.from({ length: 6 }, () => ({ rows: 128, cols: 64, encoding: F32, table: 16 }))

test('the first pass reads every byte once, later passes the streamed bytes only, pages are checked once', async () => {
  const model = makeModel(six, 1, 7)
  const counts = new Map<number, number>()
  const source = watched(model.reader.sources[0]!, (offset, length) => {
    expect(length).toBe(4096)
    counts.set(offset, (counts.get(offset) ?? 0) + 1)
  })
  const options = setup(model, { weightBytes: 120_000, reader: readerOf(model.reader.tensors, [source]) })
  const pager = await createPager(options)
  const plan = pager.plan()
  expect(plan.pinnedPages).toBeGreaterThan(5)
  expect(plan.streamedPages).toBeGreaterThan(5)
  expect(plan.streamedBytesPerPass).toBe(plan.streamedPages * 4096)
  expect(counts.size).toBe(0) // nothing is read before start
  await pager.start()
  const passes = 5
  const job = {
    ...expectedPages(model, pager),
    shared: pager.shared,
    memories: memoriesOf(options),
    seed: 1,
    pauseMs: 0,
  }
  const [outcome] = await consumers.run(1, { ...job, firstPass: 1, passes })
  expect(outcome!.seen).toBe(passes * 48)
  await pager.close()
  const report = pager.report()
  let ahead = 0
  for (let page = 0; page < 48; page++) {
    const n = counts.get(page * 4096)
    if (pager.shared.streamed[page] === 0) expect(n).toBe(1)
    else {
      expect([passes, passes + 1]).toContain(n)
      ahead += n! - passes
    }
  }
  expect(ahead * 4096).toBeLessThanOrEqual(plan.ringBytes)
  expect(report.bytesRead).toBe(48 * 4096 + (passes - 1) * plan.streamedBytesPerPass + ahead * 4096)
  expect(report.reads).toBe(report.bytesRead / 4096)
  expect(report.pagesVerified).toBe(48)
})

test('decoded types take the memory of their numbers: plans and budgets say so, streaming reads what is stored', async () => {
  const rows = 640
  const model = makeModel([{ rows, cols: 64, encoding: Q5_1 }], 1, 11)
  const options = setup(model, { weightBytes: 100_000, pageBytes: 16_384 })
  const { high } = bounds(options)
  expect(high).toBeGreaterThanOrEqual(rows * 64 * 4)
  const pager = await createPager(options)
  const plan = pager.plan()
  expect(plan.weightBytes).toBe(rows * 64 * 4)
  expect(plan.totalBytes).toBeLessThanOrEqual(100_000)
  expect(pager.matrices[0]!.rowsPerPage * 64 * 4).toBeLessThanOrEqual(16_384) // pages are sized by their memory
  expect(plan.streamedPages).toBeGreaterThan(0)
  expect(plan.streamedBytesPerPass).toBe(plan.streamedPages * pager.matrices[0]!.rowsPerPage * 2 * 24)
  // A slot of the staging area holds stored bytes alone.
  expect(plan.stageBytes).toBeLessThan(10 * pager.matrices[0]!.rowsPerPage * 2 * 24)
  await pager.close()
})

test('when all fits, nothing is read twice and nobody waits in the second pass', async () => {
  const model = makeModel(six, 2, 8)
  const options = setup(model, { weightBytes: 10_000_000, threads: 2 })
  const pager = await createPager(options)
  await pager.start()
  const job = {
    ...expectedPages(model, pager),
    shared: pager.shared,
    memories: memoriesOf(options),
    seed: 1,
    pauseMs: 0,
  }
  await consumers.run(2, { ...job, firstPass: 1, passes: 1 })
  const second = await consumers.run(2, { ...job, firstPass: 2, passes: 4 })
  for (const o of second) expect(o).toEqual({ seen: 4 * 48, stallNs: 0 })
  expect(pager.report()).toMatchObject({ bytesRead: 48 * 4096, streamedPages: 0, ringBytes: 0 })
  await pager.close()
})

test('a damaged page is named, stops the pass, and is still refused after a reset', async () => {
  const model = makeModel(six, 1, 9)
  model.files[0]![4096 * 21 + 100]! ^= 1
  for (const weightBytes of [120_000, 10_000_000]) {
    const options = setup(model, { weightBytes, threads: 2 })
    const pager = await createPager(options)
    const errors: Error[] = []
    pager.onError((e) => errors.push(e))
    await pager.start()
    const job = {
      ...expectedPages(model, pager),
      shared: pager.shared,
      memories: memoriesOf(options),
      seed: 1,
      pauseMs: 0,
    }
    for (const pass of [1, 2]) {
      const outcomes = await consumers.run(2, { ...job, firstPass: pass, passes: 1 })
      for (const o of outcomes) expect(o.left).toEqual({ pass, page: 21 })
      expect(errors.length).toBe(pass)
      expect(pager.failure).toBe(errors[pass - 1])
      expect(errors[pass - 1]).toMatchObject({ code: 'CHECKSUM_MISMATCH', details: { tensor: 'm2', page: 5 } })
      await pager.reset(pass + 1)
    }
    await pager.close()
    // Unchecked, the same bytes are taken.
    const trusting = await createPager(setup(model, { weightBytes, verify: 'off' }))
    await trusting.start()
    await consumers.run(1, { ...job, shared: trusting.shared, firstPass: 1, passes: 1 })
    expect(trusting.report().pagesVerified).toBe(0)
    expect(trusting.failure).toBeUndefined()
    await trusting.close()
  }
})

test('a read that fails stops the pass; after a reset the rest is read and right', async () => {
  const model = makeModel(six, 1, 10)
  let left = 30
  const source = watched(model.reader.sources[0]!, () => {
    if (--left === 0) throw Object.assign(new Error('disk on fire'), { code: 'EIO' })
  })
  const options = setup(model, { weightBytes: 120_000, reader: readerOf(model.reader.tensors, [source]) })
  const pager = await createPager(options)
  const errors: Error[] = []
  pager.onError((e) => errors.push(e))
  await pager.start()
  const job = {
    ...expectedPages(model, pager),
    shared: pager.shared,
    memories: memoriesOf(options),
    seed: 1,
    pauseMs: 0,
  }
  const [first] = await consumers.run(1, { ...job, firstPass: 1, passes: 1 })
  expect(first!.left?.pass).toBe(1)
  expect(errors.map((e) => e.message)).toEqual(['disk on fire'])
  await pager.reset(2)
  expect(pager.failure).toBeUndefined()
  const [second] = await consumers.run(1, { ...job, firstPass: 2, passes: 2 })
  expect(second!.seen).toBe(2 * 48)
  await pager.close()
})

test('abort in the middle of a pass, reset, and go on: for any moment', async () => {
  const model = makeModel(
    six.map((s) => ({ ...s, encoding: Q4_0, rows: 512 })),
    2,
    11,
  )
  const slow = model.reader.sources.map((s) => watched(s, () => new Promise((r) => setTimeout(r, Math.random() * 2))))
  const options = setup(model, { weightBytes: 60_000, threads: 2, reader: readerOf(model.reader.tensors, slow) })
  const pager = await createPager(options)
  await pager.start()
  const job = {
    ...expectedPages(model, pager),
    shared: pager.shared,
    memories: memoriesOf(options),
    seed: 5,
    pauseMs: 0,
  }
  let pass = 1
  for (const ms of [0, 3, 10, 25, 40, 60]) {
    const running = consumers.run(2, { ...job, firstPass: pass, passes: 1000 })
    await new Promise((r) => setTimeout(r, ms))
    const start = performance.now()
    pager.abort()
    const outcomes = await running
    expect(performance.now() - start).toBeLessThan(100)
    for (const o of outcomes) expect(Object.keys(o).sort()).toEqual(['left', 'seen', 'stallNs'])
    pass = Math.max(...outcomes.map((o) => o.left!.pass)) + 1
    await pager.reset(pass)
    // Half-released pages of the aborted pass count for nothing.
    expect(pager.shared.released.every((n) => n === 0)).toBe(true)
  }
  const last = await consumers.run(2, { ...job, firstPass: pass, passes: 2 })
  for (const o of last) expect(o.seen).toBe(2 * pager.shared.state.length)
  expect(pager.failure).toBeUndefined()
  await pager.close()
})

test('a page is not read again before it was released, even when the ring has room for it', async () => {
  const model = makeModel(six.slice(0, 1), 1, 14)
  const shared = createShared(new Uint8Array(8), 1)
  const memory = new WebAssembly.Memory({ initial: 4, maximum: 4, shared: true })
  const entry = model.reader.tensors.get('m0')!
  let reads = 0
  const source = watched(model.reader.sources[0]!, () => {
    reads++
  })
  const stream = createStream(
    {
      shared,
      matrices: [{ ...cutMatrix(entry, 4096), firstPage: 0, hashed: false }],
      sources: [source],
      memories: [memory],
      ring: { arena: 0, address: 0, bytes: 4 * 65536 }, // for all 8 pages twice
      stage: { arena: 0, address: 0, bytes: 0 },
      stageSlotBytes: 0,
      reads: 4,
      hashes: new Uint8Array(0),
      counters: new BigInt64Array(new SharedArrayBuffer(24)),
    },
    new Map([[0, source]]),
    { sha256: (b) => b, onError: (e) => expect.unreachable(String(e)) },
  )
  stream.start()
  const settled = () => new Promise((r) => setTimeout(r, 30))
  await settled()
  expect(reads).toBe(8)
  const client = createPageClient(shared)
  const first = client.addressOf(0)
  expect(client.acquire(0, 1)).toBe(true)
  expect(() => client.acquire(0, 0)).toThrow(expect.objectContaining({ code: 'INTERNAL' }))
  client.release(0)
  await settled()
  expect(reads).toBe(9)
  expect([...shared.state]).toEqual([2, 1, 1, 1, 1, 1, 1, 1])
  expect(client.addressOf(0)).not.toBe(first)
  await stream.stop()
})

test('a tensor named twice comes twice, and an alias is the tensor it names', async () => {
  const model = makeModel(six.slice(0, 2), 1, 12)
  const tensors = new Map(model.reader.tensors)
  tensors.set('tied', { ...tensors.get('m0')!, name: 'tied', aliasOf: 'm0' })
  const reader = readerOf(tensors, model.reader.sources)
  const options = setup(model, { weightBytes: 60_000, reader, names: ['m0', 'm1', 'tied', 'm0'] })
  const pager = await createPager(options)
  expect(pager.matrices.map((m) => m.name)).toEqual(['m0', 'm1', 'm0', 'm0'])
  await pager.start()
  const [o] = await consumers.run(1, {
    ...expectedPages(model, pager),
    shared: pager.shared,
    memories: memoriesOf(options),
    firstPass: 1,
    passes: 2,
    seed: 1,
    pauseMs: 0,
  })
  expect(o!.seen).toBe(2 * 32)
  await pager.close()
})

test('close at any moment, twice, gives everything back and makes compute threads leave', async () => {
  const model = makeModel(six, 1, 13)
  for (const when of ['before start', 'while starting', 'while reading', 'while resetting'] as const) {
    const slow = watched(model.reader.sources[0]!, () => new Promise((r) => setTimeout(r, 5)))
    const options = setup(model, { weightBytes: 120_000, reader: readerOf(model.reader.tensors, [slow]) })
    const pager = await createPager(options)
    const job = {
      ...expectedPages(model, pager),
      shared: pager.shared,
      memories: memoriesOf(options),
      seed: 1,
      pauseMs: 0,
    }
    const started = when === 'before start' ? undefined : pager.start()
    started?.catch(() => {})
    if (when === 'while reading' || when === 'while resetting') await started
    const running = when === 'while reading' ? consumers.run(1, { ...job, firstPass: 1, passes: 9999 }) : undefined
    if (when === 'while resetting') pager.reset(2).catch(() => {})
    await Promise.all([pager.close(), pager.close()])
    await pager.close()
    if (running !== undefined) expect((await running)[0]).toHaveProperty('left')
    expect(options.budget.used).toBe(0)
    await expect(pager.start()).rejects.toMatchObject({ code: 'CLOSED' })
    await expect(pager.reset(3)).rejects.toMatchObject({ code: 'CLOSED' })
  }
})

test('what cannot be paged is refused by name', async () => {
  const model = makeModel([{ rows: 32, cols: 32, encoding: F32 }], 1, 1)
  const entry = model.reader.tensors.get('m0')!
  const code = async (change: object, names = ['m0']) => {
    const reader = readerOf(new Map([['m0', { ...entry, ...change }]]), model.reader.sources)
    return createPager(setup(model, { weightBytes: 1e6, reader, names })).then(
      () => 'ok',
      (e) => `${e.code} ${e.message.includes('m0') || e.message.includes('nope')}`,
    )
  }
  expect(await code({})).toBe('ok')
  expect(await code({}, ['nope'])).toBe('TENSOR_NOT_FOUND true')
  expect(await code({ shape: [2, 16, 32] })).toBe('QUANT_UNSUPPORTED true')
  expect(await code({ shape: [1024] })).toBe('QUANT_UNSUPPORTED true')
  expect(await code({ encoding: { kind: 'plain', dtype: 'int64' } })).toBe('QUANT_UNSUPPORTED true')
  expect(await code({ strides: [1, 32] })).toBe('QUANT_UNSUPPORTED true')
  expect(await code({ linear: { scales: [1], zeroPoints: [0], scheme: 'linear' } })).toBe('QUANT_UNSUPPORTED true')
  expect(await code({ layout: 'packed-int8' })).toBe('QUANT_UNSUPPORTED true')
  expect(await code({ encoding: F16 })).toBe('FORMAT_INVALID true')
  expect(await code({ segments: [{ ...entry.segments[0]!, rows: 31 }] })).toBe('FORMAT_INVALID true')
  expect(await code({ segments: [{ ...entry.segments[0]!, length: 4092 }] })).toBe('FORMAT_INVALID true')
  expect(await code({ segments: [] })).toBe('FORMAT_INVALID true')
  expect(await code({ aliasOf: 'm0' })).toBe('FORMAT_INVALID true')
  await expect(createPager(setup(model, { weightBytes: 1e6, ioMode: 'direct' }))).rejects.toMatchObject({
    code: 'SOURCE_MODE',
  })
  await expect(createPager(setup(model, { weightBytes: 1e6, budget: createBudget(100) }))).rejects.toMatchObject({
    code: 'BUDGET_EXCEEDED',
  })
})
