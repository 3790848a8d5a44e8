// Placement decides speed, never the answer: logits are bit-identical whatever the budget, the threads or the way files are read.
import { expect } from 'vitest'
import { open } from '#sluice/api/model.js'
import type { EngineOptions } from '#sluice/engine/create.js'
import { data, dataTest } from '../data.ts'
import { logitsOf } from './run.ts'

const IDS = [
  1, 385, 328, 432, 261, 376, 268, 414, 422, 395, 326, 272, 277, 264, 261, 262, 415, 271, 422, 352, 266, 268, 388, 426,
  346,
]

const VARIANTS: EngineOptions[] = [
  { threads: 1 },
  { threads: 2 },
  { threads: 3 },
  { threads: 2, weightMemory: 3_000_000 },
  { threads: 1, weightMemory: 1_500_000 },
  { threads: 2, weightMemory: 3_000_000, ioMode: 'pread' },
  { threads: 2, weightMemory: 3_000_000, ioMode: 'mmap' },
  { threads: 2, weightMemory: 3_000_000, ioMode: 'direct' },
  { threads: 2, weightMemory: 3_000_000, context: 64 },
]

dataTest.each(['exact', 'fast'] as const)('stories4m, %s', async (precision) => {
  const model = await open(data('stories4m', 'hf'))
  let first: Float32Array | undefined
  for (const options of VARIANTS) {
    const engine = await model.engine({ ...options, precision })
    const whole = await logitsOf(engine, IDS)
    // The same tokens one by one.
    const sequence = engine.createSequence()
    const steps: number[] = []
    for (const id of IDS) steps.push(...(await sequence.forward([id], { logits: 'last' })))
    sequence.release()
    const report = engine.report()
    if (options.weightMemory !== undefined) expect(report.pager.streamedBytesPerPass).toBeGreaterThan(0)
    await engine.close()
    first ??= whole
    expect(Buffer.from(whole.buffer).equals(Buffer.from(first.buffer)), JSON.stringify(options)).toBe(true)
    expect(
      Buffer.from(Float32Array.from(steps).buffer).equals(Buffer.from(first.buffer)),
      `${JSON.stringify(options)} one by one`,
    ).toBe(true)
  }
  await model.close()
})

dataTest('an aborted pass leaves the sequence where it stood, and the next one is right', async () => {
  const model = await open(data('stories4m', 'hf'))
  const engine = await model.engine({ precision: 'exact', threads: 2, weightMemory: 1_500_000 })
  const want = await logitsOf(engine, IDS)
  const sequence = engine.createSequence()
  for (let i = 0; i < 30; i++) {
    const abort = new AbortController()
    const pass = sequence.forward(IDS, { logits: 'last', signal: abort.signal })
    setTimeout(() => abort.abort(), i % 10)
    const outcome = await pass.then(
      () => 'done',
      (err: { code: string }) => err.code,
    )
    expect(['done', 'ABORTED']).toContain(outcome)
    expect(sequence.length).toBe(outcome === 'done' ? IDS.length : 0)
    if (outcome === 'done') sequence.truncate(0)
  }
  const got = await sequence.forward(IDS, { logits: 'all' })
  expect(Buffer.from(got.buffer).equals(Buffer.from(want.buffer))).toBe(true)
  await engine.close()
  await engine.close()
  await expect(sequence.forward([1], { logits: 'last' })).rejects.toMatchObject({ code: 'CLOSED' })
  await model.close()
})

dataTest('requests that cannot be served are refused with a typed error', async () => {
  const model = await open(data('stories260k', 'hf'))
  const engine = await model.engine({ precision: 'exact', threads: 1, context: 32 })
  const sequence = engine.createSequence()
  await expect(sequence.forward([], { logits: 'last' })).rejects.toMatchObject({ code: 'REQUEST_INVALID' })
  await expect(sequence.forward([512], { logits: 'last' })).rejects.toMatchObject({ code: 'REQUEST_INVALID' })
  await expect(sequence.forward([-1], { logits: 'last' })).rejects.toMatchObject({ code: 'REQUEST_INVALID' })
  await expect(sequence.forward([1.5], { logits: 'last' })).rejects.toMatchObject({ code: 'REQUEST_INVALID' })
  await expect(sequence.forward(Array(33).fill(1), { logits: 'last' })).rejects.toMatchObject({ code: 'CONTEXT_FULL' })
  await engine.close()
  await expect(model.engine({ memory: 10_000_000 })).rejects.toMatchObject({ code: 'BUDGET_TOO_SMALL' })
  await expect(model.engine({ threads: 0 })).rejects.toMatchObject({ code: 'REQUEST_INVALID' })
  await expect(model.engine({ context: 513 })).rejects.toMatchObject({ code: 'REQUEST_INVALID' })
  await model.close()
})

dataTest('only the experts that tokens go to are read, and the answer is the same', async () => {
  const model = await open(data('stories-moe', 'hf'))
  const ids = IDS.slice(0, 12)
  const run = async (options: EngineOptions) => {
    const engine = await model.engine({ ...options, precision: 'exact' })
    const trace = { experts: [] as number[][][] }
    const sequence = engine.createSequence()
    const logits: number[] = []
    // One token at a time: two of eight experts each.
    for (const id of ids) logits.push(...(await sequence.forward([id], { logits: 'last', trace })))
    const { pager } = engine.report()
    await engine.close()
    return { logits: Buffer.from(Float32Array.from(logits).buffer), trace, pager }
  }
  const whole = await run({ threads: 1 })
  for (const options of [
    { threads: 2, weightMemory: 2_000_000 },
    { threads: 3, weightMemory: 1_000_000 },
    { threads: 1, weightMemory: 3_500_000 },
    { threads: 2 },
  ]) {
    const got = await run(options)
    expect(got.logits.equals(whole.logits), JSON.stringify(options)).toBe(true)
    expect(got.trace).toEqual(whole.trace)
    if (options.weightMemory === undefined) continue
    // Pinned pages once, streamed ones a pass, and one pass ahead: reading every expert would take more.
    const everything = got.pager.pinnedBytes + ids.length * got.pager.streamedBytesPerPass
    expect(got.pager.bytesRead).toBeLessThan(0.7 * everything)
  }
  await model.close()
})

dataTest('experts that come late are read, also when the threads are passes ahead of the reader', async () => {
  const model = await open(data('stories-moe', 'hf'))
  for (const threads of [1, 2]) {
    const engine = await model.engine({ threads, precision: 'fast' })
    for (let round = 0; round < 8; round++) {
      const sequence = engine.createSequence()
      // Tokens that differ from round to round, so that experts are met for the first time late.
      for (let i = 0; i < 60; i++) await sequence.forward([(round * 61 + i * 7) % 512], { logits: 'none' })
      sequence.release()
    }
    await engine.close()
  }
  await model.close()
})
