// The library face on the embedded model; texts and logits are those of independent programs.
import { readFileSync } from 'node:fs'
import { join, resolve } from 'node:path'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { collect, type Engine, isSluiceError, Model, open, WIAModel } from '#sluice/index.js'
import { maxDifference, readNpy } from '../npy.ts'

const ROOT = resolve(import.meta.dirname, '../..')
const STORY = join(ROOT, 'examples/storyteller.wia')
const FIXTURES = join(ROOT, 'test/fixtures/storyteller')
const golden = (name: string) =>
  JSON.parse(readFileSync(join(FIXTURES, name), 'utf8')).prompts[0] as {
    prompt: string
    ids: number[]
    greedy_ids: number[]
    greedy_text: string
  }
const BASE = golden('base.json')

const codeOf = (work: Promise<unknown>) =>
  work.then(
    () => 'no error',
    (err: unknown) => (isSluiceError(err) ? err.code : err),
  )

describe('Model', () => {
  let model: Model
  let engine: Engine
  beforeAll(async () => {
    model = await open(STORY)
    engine = await model.engine({ memory: '256MiB', precision: 'exact', threads: 1 })
  })
  afterAll(async () => {
    await engine.close()
    await model.close()
  })

  test('opens the index alone', () => {
    expect(model).toBeInstanceOf(Model)
    expect(model.tensorNames).toHaveLength(56)
    expect(model.reader.bytesRead).toBeLessThan(100_000)
    const { shape, dtype } = model.tensor('model.norm.weight')
    expect([shape, dtype]).toEqual([[192], 'bfloat16'])
    expect(() => model.tensor('nothing')).toThrow(expect.objectContaining({ code: 'TENSOR_NOT_FOUND' }))
  })

  test('generates what llama.cpp and the float64 reference generate', async () => {
    const events = model.generate(engine, { prompt: BASE.prompt, maxTokens: 500 })
    const { text, ids, finishReason, usage } = await collect(events)
    expect(text).toBe(BASE.greedy_text)
    expect(ids).toEqual(BASE.greedy_ids)
    expect(finishReason).toBe('stop')
    expect(usage).toMatchObject({ promptTokens: 11, completionTokens: 229 })
  })

  test('a loop that is left early gives its sequence back', async () => {
    // More often than an engine has sequences.
    for (let i = 0; i < 40; i++)
      for await (const event of model.generate(engine, { ids: [1, 5], maxTokens: 3 })) if (event.type === 'token') break
    expect((await collect(model.generate(engine, { ids: [1], maxTokens: 1 }))).ids).toHaveLength(1)
  })

  test('a signal ends it', async () => {
    const abort = new AbortController()
    let tokens = 0
    const run = async () => {
      for await (const _ of model.generate(engine, { prompt: BASE.prompt, maxTokens: 200, signal: abort.signal }))
        if (++tokens === 3) abort.abort()
    }
    expect(await codeOf(run())).toBe('ABORTED')
    expect(tokens).toBe(3)
    expect(await codeOf(collect(model.generate(engine, { ids: [1], maxTokens: 1, signal: AbortSignal.abort() })))).toBe(
      'ABORTED',
    )
  })

  test('memory is written as people write it, or in bytes', async () => {
    const inWords = await model.plan({ memory: '256 MiB', weightMemory: '2.75MB' })
    const inBytes = await model.plan({ memory: 256 * 1024 ** 2, weightMemory: 2_750_000 })
    expect(inWords.budgetBytes).toBe(256 * 1024 ** 2)
    expect(inWords.pager.pinnedBytes).toBe(inBytes.pager.pinnedBytes)
    expect(inWords.pager.totalBytes).toBeLessThanOrEqual(2_750_000)
    for (const memory of ['4G', 'much', -1, 1.5, Number.NaN])
      expect([memory, await codeOf(model.plan({ memory }))]).toEqual([memory, 'REQUEST_INVALID'])
    expect(await codeOf(model.engine({ memory: '1MiB' }))).toBe('BUDGET_TOO_SMALL')
  })

  test('an adapter with a scale', async () => {
    const pirate = golden('pirate.json')
    const first = async (scale?: number) => {
      const adapter = await model.adapter('pirate', scale === undefined ? {} : { scale })
      const e = await model.engine({ memory: '256MiB', precision: 'exact', threads: 1, adapters: [adapter] })
      try {
        return (await collect(model.generate(e, { prompt: pirate.prompt, maxTokens: 12 }))).ids
      } finally {
        await e.close()
      }
    }
    expect(await first()).toEqual(pirate.greedy_ids.slice(0, 12))
    expect(await first(0)).toEqual(BASE.greedy_ids.slice(0, 12))
    expect(await codeOf(model.adapter('parrot'))).toBe('SOURCE_IO')
  })

  test('after close nothing reads', async () => {
    const other = await open(STORY)
    const adapter = await other.adapter('pirate')
    const tensor = other.tensor('model.norm.weight')
    await other.close()
    await other.close()
    expect(await codeOf(tensor.read())).toBe('SOURCE_CLOSED')
    expect(await codeOf(Promise.resolve(adapter.reader.sources[0]!).then((s) => s.read(0, 1)))).toBe('SOURCE_CLOSED')
  })
})

describe('WIAModel, the names of the standard', () => {
  let wia: WIAModel
  beforeAll(async () => {
    wia = await WIAModel.load(STORY)
  })
  afterAll(() => wia.dispose())

  test('metadata, inputs and outputs', () => {
    expect(wia.getMetadata()).toMatchObject({ model_name: 'storyteller', license: 'CC0-1.0' })
    expect(wia.getInputs().map((i) => i.name)).toContain('input_ids')
    expect(wia.getOutputs()).toEqual([
      expect.objectContaining({ name: 'logits', shape: expect.arrayContaining([2048]) }),
    ])
  })

  test('run gives the logits of every token', async () => {
    const { logits } = await wia.run({ input_ids: Int32Array.from(BASE.ids) }, { memory: '256MiB', threads: 1 })
    const reference = readNpy(join(FIXTURES, 'base.prompt0.logits.npy'))
    expect(logits).toMatchObject({ name: 'logits', dtype: 'float32', shape: reference.shape })
    expect(maxDifference(logits.data, reference.data)).toBeLessThan(1e-3)
    expect((await wia.run({ input_ids: [1] })).logits.shape).toEqual([1, 2048])
  })

  test('wrong inputs are refused by name', async () => {
    expect(await codeOf(wia.run({ input_ids: [1], attention_mask: [1] } as never))).toBe('REQUEST_INVALID')
    expect(await codeOf(wia.run({} as never))).toBe('REQUEST_INVALID')
    expect(await codeOf(wia.run({ input_ids: [2048] }))).toBe('REQUEST_INVALID')
  })

  test('a budget that was too small does not stick', async () => {
    const other = await WIAModel.load(STORY)
    expect(await codeOf(other.run({ input_ids: [1] }, { memory: '1MiB' }))).toBe('BUDGET_TOO_SMALL')
    expect((await other.run({ input_ids: [1] }, { memory: '256MiB', threads: 1 })).logits.shape).toEqual([1, 2048])
    await other.dispose()
  })
})
