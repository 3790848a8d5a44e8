// What an engine tells those who listen, and that it tells nothing otherwise.
import { subscribe, unsubscribe } from 'node:diagnostics_channel'
import { expect, test } from 'vitest'
import { CHANNELS, type ProgressEvent } from '#sluice/base/events.js'
import { createEngine } from '#sluice/engine/create.js'
import type { EngineEvent, PassEvent } from '#sluice/engine/news.js'
import type { PageNews } from '#sluice/pager/stream.js'
import { withReads, withStoryteller } from './storyteller.ts'

const SMALL = { weightMemory: 2_000_000, threads: 2 } as const

async function listening(work: () => Promise<void>) {
  const heard = {
    engine: [] as EngineEvent[],
    pass: [] as PassEvent[],
    page: [] as PageNews[],
    progress: [] as ProgressEvent[],
  }
  const off = (Object.keys(heard) as (keyof typeof heard)[]).map((name) => {
    const listener = (message: unknown) => void heard[name].push(message as never)
    subscribe(CHANNELS[name], listener)
    return () => unsubscribe(CHANNELS[name], listener)
  })
  try {
    await work()
  } finally {
    for (const o of off) o()
  }
  return heard
}

test.each(['reader thread', 'main thread'])('engines, passes, pages, progress of loading: %s', async (where) => {
  await withStoryteller(async (model) => {
    const reader = where === 'main thread' ? withReads(model.reader, (read, ...args) => read(...args)) : model.reader
    let streamed = 0
    const heard = await listening(async () => {
      const engine = await createEngine(reader, model.architecture(), SMALL)
      const s = engine.createSequence()
      await s.forward([1, 2, 3], { logits: 'last' })
      await s.forward([4], { logits: 'none' })
      const abort = new AbortController()
      const call = s.forward(Array(400).fill(5), { logits: 'last', signal: abort.signal })
      setTimeout(() => abort.abort(), 5)
      await call.catch(() => undefined)
      streamed = engine.report().pager.streamedPages
      await engine.close()
    })
    expect(heard.engine).toMatchObject([{ model: model.reader.path, format: 'wia', threads: 2, context: 512 }])
    expect(heard.engine[0]!.byOwner.ring).toBeGreaterThan(0)
    expect(heard.pass).toMatchObject([
      { pass: 1, tokens: 3, position: 0, logits: 1, outcome: 'done' },
      { pass: 2, tokens: 1, position: 3, logits: 0, outcome: 'done' },
      { pass: 3, tokens: 400, position: 4, logits: 1, outcome: 'aborted' },
    ])
    for (const p of heard.pass) expect(p.stallMs).toBeLessThanOrEqual(p.ms)
    expect(heard.pass[0]!.bytesRead).toBeGreaterThan(4_000_000)
    // Every page of the first pass once; streamed ones again.
    const first = heard.page.filter((p) => p.pass === 1)
    expect(new Set(first.map((p) => `${p.tensor} ${p.page}`)).size).toBe(first.length)
    expect(first.filter((p) => !p.pinned).length).toBe(streamed)
    expect(heard.page.filter((p) => p.pass === 2).length).toBe(streamed)
    const total = heard.progress[0]!.total
    expect(heard.progress.every((p) => p.phase === 'load' && p.unit === 'bytes' && p.total === total)).toBe(true)
    expect(heard.progress.at(-1)!.done).toBe(total)
    expect(heard.progress.map((p) => p.done)).toEqual(heard.progress.map((p) => p.done).sort((a, b) => a - b))
  })
})
