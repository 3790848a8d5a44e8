// What can go wrong around a pass: aborts, closing, threads that die, disks that fail or hang, calls at the wrong moment.
import { spawn } from 'node:child_process'
import { readdirSync } from 'node:fs'
import { syncBuiltinESMExports } from 'node:module'
import threads, { type Worker } from 'node:worker_threads'
import { describe, expect, test } from 'vitest'
import type { Model } from '#sluice/api/model.js'
import { SourceError } from '#sluice/base/errors.js'
import { createEngine, type EngineOptions } from '#sluice/engine/create.js'
import type { Engine } from '#sluice/engine/engine.js'
import { logitsOf, sameBytes } from './run.ts'
import { attached, STORYTELLER, withReads, withStoryteller } from './storyteller.ts'

/** Threads that engines of this file started, newest last, so that a test can end one. */
const workers: Worker[] = []
const RealWorker = threads.Worker
threads.Worker = class extends RealWorker {
  constructor(...args: ConstructorParameters<typeof RealWorker>) {
    super(...args)
    workers.push(this)
  }
}
syncBuiltinESMExports()

const IDS = [1, 298, 392, 380, 260, 1142, 285, 260, 1342, 1986, 13]
/** Promised are 100 ms, measured 1 to 25; on a machine that runs other tests beside this one it may be this much. */
const SOON_MS = 500
/** Streams on every pass. */
const SMALL = { weightMemory: 1_700_000, precision: 'exact' } as const

async function withEngine(
  options: EngineOptions,
  work: (engine: Engine, model: Model) => Promise<void>,
): Promise<void> {
  await withStoryteller(async (model) => {
    const engine = await model.engine({ threads: 2, ...options })
    try {
      await work(engine, model)
    } finally {
      await engine.close()
    }
  })
}

const sleep = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms))

describe('threads that die', () => {
  test.each([1, 2, 3])(
    'a compute thread of %i: the call and all later ones reject with WORKER_FAILED, close works',
    async (n) => {
      await withEngine({ ...SMALL, threads: n }, async (engine) => {
        const compute = workers.slice(-n)
        await logitsOf(engine, IDS)
        const sequence = engine.createSequence()
        const pass = sequence.forward(
          Array.from({ length: 400 }, (_, i) => i),
          { logits: 'last' },
        )
        await sleep(20)
        await compute[n - 1]!.terminate()
        await expect(pass).rejects.toMatchObject({ code: 'WORKER_FAILED' })
        expect(sequence.length).toBe(0)
        await expect(sequence.forward([1], { logits: 'last' })).rejects.toMatchObject({ code: 'WORKER_FAILED' })
        sequence.release()
        await engine.close()
        await engine.close()
      })
    },
  )

  test('between passes', async () => {
    await withEngine(SMALL, async (engine) => {
      const compute = workers.at(-1)!
      await logitsOf(engine, IDS)
      await compute.terminate()
      await expect(logitsOf(engine, IDS)).rejects.toMatchObject({ code: 'WORKER_FAILED' })
    })
  })

  test('the reader', async () => {
    await withEngine(SMALL, async (engine) => {
      await logitsOf(engine, IDS)
      await workers.at(-1)!.terminate()
      await expect(logitsOf(engine, Array(400).fill(7))).rejects.toMatchObject({ code: 'WORKER_FAILED' })
      await expect(logitsOf(engine, IDS)).rejects.toMatchObject({ code: 'WORKER_FAILED' })
    })
  })
})

describe('closing', () => {
  test('in the middle of a pass and of a queue: CLOSED, twice is fine', async () => {
    await withEngine({ ...SMALL, cacheTokens: 2048 }, async (engine) => {
      const calls = [0, 1, 2].map(() => engine.createSequence().forward(Array(400).fill(7), { logits: 'last' }))
      const outcomes = Promise.allSettled(calls)
      await sleep(30)
      await Promise.all([engine.close(), engine.close()])
      for (const o of await outcomes) expect(o).toMatchObject({ status: 'rejected', reason: { code: 'CLOSED' } })
      expect(() => engine.createSequence()).toThrow(expect.objectContaining({ code: 'CLOSED' }))
    })
  })

  test('before the first pass, and while the first one opens its files', async () => {
    await withEngine(SMALL, async (engine) => {
      await engine.close()
    })
    await withEngine(SMALL, async (engine) => {
      const call = engine.createSequence().forward(IDS, { logits: 'last' })
      const outcome = expect(call).rejects.toMatchObject({ code: 'CLOSED' })
      await engine.close()
      await outcome
    })
  })

  const program = (end: string) => `
    import { open } from ${JSON.stringify(new URL('../../dist/api/model.js', import.meta.url).href)}
    const model = await open(${JSON.stringify(STORYTELLER)})
    const engine = await model.engine({ threads: 2, weightMemory: 1700000 })
    await engine.createSequence().forward([1, 2, 3], { logits: 'last' })
    ${end}
    process.stdout.write('done')`

  test.each([
    ['closed', 'await engine.close(); await model.close()'],
    ['not closed', ''],
    [
      'aborted and not closed',
      'const a = new AbortController(); const p = engine.createSequence().forward([1,2,3], { logits: "last", signal: a.signal }); a.abort(); await p.catch(() => 0)',
    ],
  ])('an engine that is idle keeps no process alive: %s', async (_, end) => {
    const child = spawn(process.execPath, ['--input-type=module', '-e', program(end)], {
      stdio: ['ignore', 'pipe', 'inherit'],
    })
    let out = ''
    child.stdout.on('data', (d) => (out += d))
    const timer = setTimeout(() => child.kill(), 30_000)
    const code = await new Promise((resolve) => child.on('close', (c, signal) => resolve(signal ?? c)))
    clearTimeout(timer)
    expect([out, code]).toEqual(['done', 0])
  })

  test('files and threads are given back, those of adapters too', async () => {
    const files = () => readdirSync('/proc/self/fd').length
    const count = () => readdirSync('/proc/self/task').length
    const once = () =>
      withStoryteller(async (model) => {
        const engine = await model.engine({ ...SMALL, threads: 2, adapters: [await attached(model, 'pirate')] })
        await logitsOf(engine, IDS)
        await engine.close()
      })
    await once()
    await sleep(50)
    const before = [files(), count()]
    for (let i = 0; i < 5; i++) await once()
    await sleep(50)
    expect([files(), count()]).toEqual(before)
  })
})

describe('aborting', () => {
  /** Milliseconds from abort to rejection. */
  async function latency(call: (signal: AbortSignal) => Promise<unknown>, after: number): Promise<number> {
    const controller = new AbortController()
    const outcome = call(controller.signal).then(
      () => undefined,
      (err: { code: string }) => ({ code: err.code, at: performance.now() }),
    )
    await sleep(after)
    const aborted = performance.now()
    controller.abort()
    const end = await outcome
    expect(end?.code).toBe('ABORTED')
    return end!.at - aborted
  }

  test('in a prefill, whole passes later the engine is right', async () => {
    await withEngine({ ...SMALL, threads: 1 }, async (engine) => {
      const want = await logitsOf(engine, IDS)
      const sequence = engine.createSequence()
      for (const after of [0, 1, 5, 20, 50])
        expect(
          await latency((signal) => sequence.forward(Array(500).fill(9), { logits: 'last', signal }), after),
        ).toBeLessThan(SOON_MS)
      expect(sequence.length).toBe(0)
      expect(sameBytes(await sequence.forward(IDS, { logits: 'all' }), want)).toBe(true)
    })
  })

  test('while it waits for its turn', async () => {
    await withEngine({ ...SMALL, threads: 1, cacheTokens: 2048 }, async (engine) => {
      const first = engine.createSequence().forward(Array(500).fill(9), { logits: 'last' })
      const waits = engine.createSequence()
      expect(await latency((signal) => waits.forward(IDS, { logits: 'last', signal }), 5)).toBeLessThan(SOON_MS)
      await first
    })
  })

  test('before it begins, and a signal that fires while the files are opened', async () => {
    await withEngine(SMALL, async (engine) => {
      const signal = AbortSignal.abort()
      await expect(engine.createSequence().forward(IDS, { logits: 'last', signal })).rejects.toMatchObject({
        code: 'ABORTED',
      })
      const controller = new AbortController()
      const call = engine.createSequence().forward(Array(500).fill(9), { logits: 'last', signal: controller.signal })
      queueMicrotask(() => controller.abort())
      await expect(call).rejects.toMatchObject({ code: 'ABORTED' })
    })
  })

  test('while the disk hangs: the caller waits neither for a page nor for a row of the embedding', async () => {
    await withStoryteller(async (model) => {
      let hang: Promise<void> | undefined
      let wake = () => {}
      const reader = withReads(model.reader, async (read, ...args) => {
        await hang
        return read(...args)
      })
      const engine = await createEngine(reader, model.architecture(), { ...SMALL, threads: 2 })
      const want = await logitsOf(engine, IDS)
      const sequence = engine.createSequence()
      await sequence.forward([1], { logits: 'last' })
      hang = new Promise((resolve) => (wake = resolve))
      for (const ids of [IDS, [5], Array(100).fill(3)])
        expect(await latency((signal) => sequence.forward(ids, { logits: 'last', signal }), 30)).toBeLessThan(SOON_MS)
      hang = undefined
      wake()
      expect(sequence.length).toBe(1)
      sequence.truncate(0)
      expect(sameBytes(await sequence.forward(IDS, { logits: 'all' }), want)).toBe(true)
      await engine.close()
    })
  })
})

describe('reads that fail', () => {
  test('spoil their call and nothing else, wherever they come', async () => {
    await withStoryteller(async (model) => {
      let countdown = Number.POSITIVE_INFINITY
      const reader = withReads(model.reader, (read, ...args) => {
        if (--countdown < 0) throw new SourceError('SOURCE_IO', { what: 'the disk is on fire', where: 'test' })
        return read(...args)
      })
      const engine = await createEngine(reader, model.architecture(), { ...SMALL, threads: 2 })
      const want = await logitsOf(engine, IDS)
      let failed = 0
      for (let after = 0; after < 120; after += 5) {
        countdown = after
        const sequence = engine.createSequence()
        const got = await sequence.forward(IDS, { logits: 'all' }).catch((err: { code: string }) => err.code)
        countdown = Number.POSITIVE_INFINITY
        if (got === 'SOURCE_IO') {
          failed++
          expect(sequence.length).toBe(0)
        } else expect(sameBytes(got as Float32Array, want)).toBe(true)
        sequence.release()
      }
      expect(failed).toBeGreaterThan(5)
      // A read ahead may have failed after the last call: it is tried again.
      expect(sameBytes(await logitsOf(engine, IDS), want)).toBe(true)
      await engine.close()
    })
  })
})

describe('calls at the wrong moment', () => {
  test('a sequence runs one call at a time', async () => {
    await withEngine(SMALL, async (engine) => {
      const sequence = engine.createSequence()
      const ids = [...IDS]
      const call = sequence.forward(ids, { logits: 'last' })
      ids.fill(99_999) // the engine has its own copy
      await expect(sequence.forward([1], { logits: 'last' })).rejects.toMatchObject({ code: 'REQUEST_INVALID' })
      expect(() => sequence.truncate(0)).toThrow(expect.objectContaining({ code: 'REQUEST_INVALID' }))
      await call
      expect(sequence.length).toBe(IDS.length)
      await expect(sequence.forward(IDS, { logits: 'some' as 'all' })).rejects.toMatchObject({
        code: 'REQUEST_INVALID',
      })
    })
  })

  test('released while it runs: CLOSED, and its cache comes back', async () => {
    await withEngine({ ...SMALL, context: 64 }, async (engine) => {
      const want = await logitsOf(engine, IDS)
      for (let i = 0; i < 20; i++) {
        const sequence = engine.createSequence()
        const call = sequence.forward(Array(60).fill(3), { logits: 'last' })
        if (i % 2 === 0) await sleep(i)
        sequence.release()
        sequence.release()
        await call.then(
          () => undefined,
          (err: { code: string }) => expect(err.code).toBe('CLOSED'),
        )
      }
      expect(sameBytes(await logitsOf(engine, IDS), want)).toBe(true)
    })
  })

  test('sequences beyond the most there may be', async () => {
    await withEngine(SMALL, async (engine) => {
      const all = Array.from({ length: 16 }, () => engine.createSequence())
      expect(() => engine.createSequence()).toThrow(expect.objectContaining({ code: 'BUDGET_EXCEEDED' }))
      all[3]!.release()
      engine.createSequence()
    })
  })
})
