// One engine, many callers: sequences side by side, aborts at any moment, releases and closes in the middle of a pass.
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { open } from '#sluice/api/model.js'
import { isSluiceError } from '#sluice/base/errors.js'
import type { Engine, Sequence } from '#sluice/engine/engine.js'
import { dice, SIZE, scratch, writeModel } from './models.ts'

const root = scratch()
const folder = writeModel(join(root, 'model'))
type Model = Awaited<ReturnType<typeof open>>

async function withEngine(work: (engine: Engine, model: Model) => Promise<void>, weightMemory?: number): Promise<void> {
  const model = await open(folder)
  const memory = 300 * 2 ** 20 + process.memoryUsage().rss
  const engine = await model.engine({
    memory,
    threads: 2,
    context: SIZE.context,
    ...(weightMemory && { weightMemory }),
  })
  try {
    await work(engine, model)
  } finally {
    await engine.close()
    await model.close()
  }
}

const text = (logits: Float32Array) =>
  Buffer.from(logits.buffer, logits.byteOffset, logits.byteLength).toString('base64')

async function expected(engine: Engine, ids: readonly number[]): Promise<string> {
  const s = engine.createSequence()
  const logits = text(await s.forward(ids, { logits: 'last' }))
  s.release()
  return logits
}

/** Code of the error, or undefined. Anything that is no typed error, or is INTERNAL, fails. */
async function code(work: Promise<unknown>): Promise<string | undefined> {
  try {
    await work
    return undefined
  } catch (err) {
    if (!isSluiceError(err) || err.code === 'INTERNAL' || err.code === 'WORKER_FAILED') throw err
    return err.code
  }
}

describe('concurrent use', () => {
  it('many sequences at once give what each gives alone', { timeout: 60_000 }, () =>
    withEngine(async (engine) => {
      const prompts = Array.from({ length: 4 }, (_, i) => [i + 1, i + 2, i + 3])
      const alone: string[] = []
      for (const p of prompts) alone.push(await expected(engine, p))
      const together = await Promise.all(
        prompts.map(async (p) => {
          const s = engine.createSequence()
          await s.forward(p.slice(0, 1), { logits: 'none' })
          await s.forward(p.slice(1, 2), { logits: 'none' })
          const logits = text(await s.forward(p.slice(2), { logits: 'last' }))
          s.release()
          return logits
        }),
      )
      expect(together).toEqual(alone)
    }),
  )

  it.each([undefined, 120 * 1024])(
    'a storm of aborts leaves the engine right (weight memory %s)',
    { timeout: 120_000 },
    (weightMemory) =>
      withEngine(async (engine) => {
        const want = await expected(engine, [1, 2, 3, 4])
        const roll = dice(9)
        const s = engine.createSequence()
        for (let i = 0; i < 150; i++) {
          const abort = new AbortController()
          const delay = roll(4)
          if (delay === 0) queueMicrotask(() => abort.abort())
          else setTimeout(() => abort.abort(), delay - 1)
          const length = s.length
          const got = await code(s.forward([1, 2, 3, 4], { logits: 'last', signal: abort.signal }))
          expect([undefined, 'ABORTED']).toContain(got)
          expect(s.length).toBe(got === undefined ? length + 4 : length)
          s.truncate(0)
        }
        expect(text(await s.forward([1, 2, 3, 4], { logits: 'last' }))).toBe(want)
      }, weightMemory),
  )

  it('truncate during a pass does not corrupt the sequence', { timeout: 60_000 }, () =>
    withEngine(async (engine) => {
      const want = await expected(engine, [7, 8, 9])
      const s = engine.createSequence()
      await s.forward(
        Array.from({ length: 40 }, (_, i) => i),
        { logits: 'none' },
      )
      const running = s.forward([1, 2, 3], { logits: 'last' })
      const refused = await code(Promise.resolve().then(() => s.truncate(0)))
      await code(running)
      if (refused === undefined) expect(s.length).toBe(0)
      else expect(s.length).toBe(43)
      s.truncate(0)
      expect(text(await s.forward([7, 8, 9], { logits: 'last' }))).toBe(want)
    }),
  )

  it('ids that the caller changes while they wait', { timeout: 60_000 }, () =>
    withEngine(async (engine) => {
      const want = await expected(engine, [5, 6, 7])
      const [a, b] = [engine.createSequence(), engine.createSequence()]
      const ids = [5, 6, 7]
      const first = a.forward([1, 2, 3], { logits: 'last' })
      const second = b.forward(ids, { logits: 'last' })
      ids.fill(9)
      ids.length = 1
      await first
      expect(text(await second)).toBe(want)
    }),
  )

  it('release while it runs, and more sequences than there are tables', { timeout: 60_000 }, () =>
    withEngine(async (engine) => {
      for (let i = 0; i < 40; i++) {
        const s = engine.createSequence()
        const running = code(s.forward([1, 2, 3], { logits: 'last' }))
        s.release()
        s.release()
        expect([undefined, 'CLOSED']).toContain(await running)
        expect(await code(s.forward([1], { logits: 'last' }))).toBe('CLOSED')
        expect(await code(Promise.resolve().then(() => s.truncate(0)))).toBe('CLOSED')
      }
      const many: Sequence[] = []
      const refused = await code(
        (async () => {
          for (let i = 0; i < 100; i++) many.push(engine.createSequence())
        })(),
      )
      expect(refused).toBe('BUDGET_EXCEEDED')
      for (const s of many) s.release()
      await many[0]
      await expected(engine, [1])
    }),
  )

  it('close in the middle of passes: every call ends, with CLOSED or a result', { timeout: 120_000 }, async () => {
    const roll = dice(3)
    for (let i = 0; i < 8; i++) {
      const model = await open(folder)
      const engine = await model.engine({
        memory: 300 * 2 ** 20 + process.memoryUsage().rss,
        threads: 2,
        context: 64,
        weightMemory: 120 * 1024,
      })
      const calls = Array.from({ length: 5 }, () =>
        code(engine.createSequence().forward([1, 2, 3], { logits: 'last' })),
      )
      await new Promise((resolve) => setTimeout(resolve, roll(60)))
      await Promise.all([engine.close(), engine.close()])
      for (const ending of await Promise.all(calls)) expect([undefined, 'CLOSED']).toContain(ending)
      expect(await code((async () => engine.createSequence())())).toBe('CLOSED')
      await model.close()
    }
  })

  it('the model is closed before its engine', { timeout: 60_000 }, async () => {
    const model = await open(folder)
    const engine = await model.engine({ memory: 300 * 2 ** 20 + process.memoryUsage().rss, threads: 1, context: 64 })
    await model.close()
    expect([undefined, 'SOURCE_CLOSED', 'CLOSED']).toContain(
      await code(engine.createSequence().forward([1], { logits: 'last' })),
    )
    await engine.close()
  })

  it('a listener that throws, a listener that asks for another pass', { timeout: 60_000 }, () =>
    withEngine(async (engine) => {
      const want = await expected(engine, [1, 2])
      const s = engine.createSequence()
      const boom = new Error('boom')
      const failing = s.forward([1, 2], { logits: 'all', onLogits: () => Promise.reject(boom) })
      await expect(failing).rejects.toBe(boom)
      expect(s.length).toBe(0)
      expect(text(await s.forward([1, 2], { logits: 'last' }))).toBe(want)
    }),
  )
})
