// Drafts change how many passes a text takes, never the text.
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { type Model, open } from '#sluice/api/model.js'
import type { Engine } from '#sluice/engine/engine.js'
import { collect } from '#sluice/generate/collect.js'
import { generate } from '#sluice/generate/generate.js'
import { lookup } from '#sluice/generate/lookup.js'

describe('lookup', () => {
  test('proposes what followed the latest longest repetition', () => {
    expect(lookup([1, 2, 3, 9, 1, 2, 3], 2)).toEqual([9, 1])
    expect(lookup([1, 2, 7, 1, 2, 8, 5, 1, 2], 3)).toEqual([8, 5, 1])
    expect(lookup([5, 5, 5, 5], 3)).toEqual([5])
    expect(lookup([1, 2, 3, 4], 3)).toEqual([])
    expect(lookup([1], 3)).toEqual([])
    expect(lookup([1, 2, 1, 2], 0)).toEqual([])
  })
})

describe('the embedded model', () => {
  let model: Model
  let engine: Engine
  beforeAll(async () => {
    model = await open(join(import.meta.dirname, '../../examples/storyteller.wia'))
    engine = await model.engine({ memory: 256 * 1024 ** 2, weightMemory: 3_000_000 })
  })
  afterAll(async () => {
    await engine.close()
    await model.close()
  })

  // A chain of trades repeats itself.
  const prompt =
    'A story about a fox and a lantern.\nThe fox went to the mill. The fox went to the well. The fox went to the'
  for (const sampling of [
    { temperature: 0 },
    { temperature: 0.9, topP: 0.95, seed: 5 },
    { temperature: 0.7, repetitionPenalty: 1.1, seed: 11 },
  ])
    test(JSON.stringify(sampling), async () => {
      const run = async (draftK?: number) => {
        const sequence = engine.createSequence()
        const got = await collect(
          generate(sequence, await model.tokenizer(), {
            prompt,
            maxTokens: 150,
            sampling,
            contextLength: engine.contextLength,
            ...(draftK === undefined ? {} : { draftK }),
          }),
        )
        const { length } = sequence
        sequence.release()
        return { got, length }
      }
      const plain = await run()
      for (const k of [1, 4, 7]) {
        const drafted = await run(k)
        expect(drafted.got.ids).toEqual(plain.got.ids)
        expect(drafted.got.text).toBe(plain.got.text)
        expect(drafted.got.logprobs).toEqual(plain.got.logprobs)
        expect(drafted.length).toBe(plain.length)
        expect(drafted.got.usage.draft!.drafted).toBeGreaterThan(0)
        if (sampling.temperature === 0 && k > 1) expect(drafted.got.usage.draft!.accepted).toBeGreaterThan(0)
      }
    })

  test('up to the end of the context, with a sequence that already holds text', async () => {
    const tail = async (draftK: number) => {
      const sequence = engine.createSequence()
      const first = (await model.tokenizer())!.encode(prompt)
      await sequence.forward(first, { logits: 'none' })
      const ids = Array.from({ length: 400 }, (_, i) => first[1 + (i % 20)]!)
      const got = await collect(
        generate(sequence, undefined, {
          ids,
          maxTokens: 1000,
          ignoreEos: true,
          contextLength: engine.contextLength,
          draftK,
        }),
      )
      sequence.release()
      return [got.ids, got.finishReason]
    }
    expect(await tail(6)).toEqual(await tail(0))
  })
})
