import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { collect } from '#sluice/generate/collect.js'
import { type GenerateEvent, generate } from '#sluice/generate/generate.js'
import type { GenerateRequest } from '#sluice/generate/request.js'
import { loadHfTokenizer } from '#sluice/text/hf.js'
import { byteLevelJson, files } from '../text/fixtures.ts'
import { MarkovSequence } from './markov.ts'

const END = 300
const tokenizer = await loadHfTokenizer(
  files({ 'tokenizer.json': byteLevelJson(), 'tokenizer_config.json': { eos_token: '<|end|>' } }),
)
// After each token of this text only one other comes, so greedy text is known: it is the text.
const TEXT = 'abcdé🦊xyz.'
const ids = tokenizer.encode(TEXT)
const model = (context?: number) => new MarkovSequence([...ids, END], tokenizer.vocabularySize, context)
const run = (request: Partial<GenerateRequest>, sequence = model()) =>
  collect(generate(sequence, tokenizer, { ...(request.ids ? {} : { prompt: 'a' }), maxTokens: 100, ...request }))

async function events(request: Partial<GenerateRequest>, sequence = model()): Promise<GenerateEvent[]> {
  const all: GenerateEvent[] = []
  for await (const event of generate(sequence, tokenizer, { prompt: 'a', maxTokens: 100, ...request })) all.push(event)
  return all
}

describe('the end', () => {
  test('comes with the end token, which counts and has no text', async () => {
    const g = await run({})
    expect(g.text).toBe(TEXT.slice(1))
    expect(g.ids).toEqual([...ids.slice(1), END])
    expect(g.finishReason).toBe('stop')
    expect(g.usage).toMatchObject({ promptTokens: 1, completionTokens: ids.length })
  })

  test('comes with maxTokens, and what is held back comes with it', async () => {
    expect(await run({ maxTokens: 2 })).toMatchObject({ text: 'bc', finishReason: 'length' })
    expect(await run({ maxTokens: 2, stop: ['cd'] })).toMatchObject({ text: 'bc', finishReason: 'length' })
    // Cut inside the fox: four byte tokens, two of them.
    const cut = await run({ prompt: 'abcdé', maxTokens: 2 })
    expect(cut.text).toBe('\ufffd')
  })

  test('maxTokens 0 runs the prompt and nothing else', async () => {
    const sequence = model()
    const g = await run({ prompt: 'abc', maxTokens: 0 }, sequence)
    expect(g).toMatchObject({
      text: '',
      ids: [],
      finishReason: 'length',
      usage: { promptTokens: 3, completionTokens: 0 },
    })
    expect(sequence.length).toBe(3)
  })

  test('comes when the context is full: prompt and text fill it', async () => {
    const sequence = model(5)
    const g = await run({ prompt: 'ab', contextLength: 5 }, sequence)
    expect(g).toMatchObject({ text: 'cdé', finishReason: 'length' })
    expect(g.ids.length + 2).toBe(5)
    expect(await run({ prompt: 'abcd', contextLength: 4 }, model(4))).toMatchObject({ ids: [], finishReason: 'length' })
    // Without the number the engine says so itself, one token later: the last one need not be run.
    expect(await run({ prompt: 'ab' }, model(4))).toMatchObject({ text: 'cdé', finishReason: 'length' })
  })

  test('stop ids, and end tokens ignored', async () => {
    expect(await run({ stopIds: tokenizer.encode('d') })).toMatchObject({ text: 'bc', finishReason: 'stop' })
    const g = await run({ ignoreEos: true, maxTokens: ids.length })
    expect(g.ids.at(-1)).toBe(END)
    expect(g.finishReason).toBe('length')
  })
})

describe('stop strings', () => {
  test('cut the text before them, across tokens and characters of several bytes', async () => {
    expect(await run({ stop: ['dé'] })).toMatchObject({ text: 'bc', finishReason: 'stop' })
    expect(await run({ stop: ['🦊x'] })).toMatchObject({ text: 'bcdé', finishReason: 'stop' })
    expect(await run({ stop: ['z.', 'yz'] })).toMatchObject({ text: 'bcdé🦊x', finishReason: 'stop' })
    expect(await run({ stop: ['nowhere', 'dx'] })).toMatchObject({ text: TEXT.slice(1), finishReason: 'stop' })
    const end = (await events({ stop: ['dé'] })).at(-1)
    expect(end).toMatchObject({ type: 'end', stop: 'dé', text: '' })
  })

  test('hold back only what may become one', async () => {
    const texts = (await events({ stop: ['cdX'] })).map((e) => ('text' in e ? e.text : ''))
    expect(texts.slice(0, 4)).toEqual(['b', '', '', 'cdé'])
  })

  test('a special token as a stop string is found by its id', async () => {
    const g = await run({ stop: ['<|end|>'], ignoreEos: true })
    expect(g).toMatchObject({ text: TEXT.slice(1), finishReason: 'stop' })
  })

  test('in any text, for any stop strings: the text up to the first place where one is complete', async () => {
    const letters = fc.string({ unit: fc.constantFrom('a', 'b', 'c'), minLength: 1, maxLength: 4 })
    await fc.assert(
      fc.asyncProperty(
        fc.string({ unit: fc.constantFrom('a', 'b', 'c'), maxLength: 20 }),
        fc.array(letters, { maxLength: 3 }),
        async (text, stop) => {
          const { StopMatcher } = await import('#sluice/generate/stop.js')
          const matcher = new StopMatcher(stop)
          let got = ''
          let ended = text.length
          for (const [i, char] of [...text].entries()) {
            got += matcher.push(char)
            if (matcher.matched !== undefined) {
              ended = i + 1
              break
            }
          }
          got += matcher.flush()
          // The definition: the shortest beginning of the text that ends with a stop string; of those the longest.
          const seen = text.slice(0, ended)
          const met = stop.filter((s) => seen.endsWith(s)).sort((a, b) => b.length - a.length)[0]
          for (let i = 1; i < ended; i++) for (const s of stop) expect(text.slice(0, i).endsWith(s)).toBe(false)
          expect(got).toBe(met === undefined ? text : seen.slice(0, seen.length - met.length))
        },
      ),
    )
  })
})

describe('events', () => {
  test('are tokens in order, usage, end', async () => {
    const all = await events({ maxTokens: 3 })
    expect(all.map((e) => e.type)).toEqual(['token', 'token', 'token', 'usage', 'end'])
    expect(all.flatMap((e) => (e.type === 'token' ? [e.index] : []))).toEqual([0, 1, 2])
    // One of 301 tokens has weight 1.001, the others 0.001.
    const expected = Math.log(1.001 / (1.001 + 300 * 0.001))
    for (const e of all) if (e.type === 'token') expect(e.logprob).toBeCloseTo(expected, 5)
    const usage = all.find((e) => e.type === 'usage')
    expect(usage).toMatchObject({ promptTokens: 1, completionTokens: 3 })
    expect(usage?.decodeMs).toBeGreaterThan(0)
    expect(usage?.tokensPerSecond).toBeCloseTo(2000 / (usage?.decodeMs ?? 0), 6)
  })

  test('a token is run only when another one is wanted', async () => {
    const sequence = model()
    let calls = 0
    sequence.onForward = () => calls++
    await run({ prompt: 'ab', maxTokens: 3 }, sequence)
    expect([calls, sequence.length]).toEqual([3, 4])
  })

  test('sampling repeats by seed, and penalties reach it', async () => {
    const sampling = { temperature: 1.5, seed: 11 }
    const a = await run({ sampling, maxTokens: 20, ignoreEos: true })
    expect((await run({ sampling, maxTokens: 20, ignoreEos: true })).ids).toEqual(a.ids)
    expect((await run({ sampling: { ...sampling, seed: 12 }, maxTokens: 20, ignoreEos: true })).ids).not.toEqual(a.ids)
    const loop = new MarkovSequence(tokenizer.encode('aaab'), tokenizer.vocabularySize)
    expect((await run({ maxTokens: 2 }, loop)).text).toBe('aa')
    const loop2 = new MarkovSequence(tokenizer.encode('aaab'), tokenizer.vocabularySize)
    expect((await run({ maxTokens: 2, sampling: { presencePenalty: 2 } }, loop2)).text).toBe('ab')
  })

  test('ids without a tokenizer', async () => {
    const g = await collect(generate(model(), undefined, { ids: ids.slice(0, 1), maxTokens: 3 }))
    expect([g.text, g.ids]).toEqual(['', ids.slice(1, 4)])
  })
})

describe('refusals', () => {
  test.each<[string, Partial<GenerateRequest>]>([
    ['maxTokens', { maxTokens: -1 }],
    ['maxTokens', { maxTokens: 1.5 }],
    ['contextLength', { contextLength: 0 }],
    ['exactly one', { ids: [1], prompt: 'a' }],
    ['no tokens', { prompt: '' }],
    ['no tokens', { ids: [] }],
    ['token id', { ids: [-1] }],
    ['token id', { ids: [0.5] }],
    ['token id', { ids: [9999] }],
    ['stop string', { stop: [''] }],
    ['stop', { stop: Array(65).fill('x') as string[] }],
    ['temperature', { sampling: { temperature: -1 } }],
  ])('%s: %j', async (name, request) => {
    const sequence = model()
    await expect(run(request, sequence)).rejects.toMatchObject({
      code: 'REQUEST_INVALID',
      message: expect.stringContaining(name),
    })
    expect(sequence.length).toBe(0)
  })

  test('text without a tokenizer, and a prompt that does not fit', async () => {
    const missing = collect(generate(model(), undefined, { prompt: 'a', maxTokens: 1 }))
    await expect(missing).rejects.toMatchObject({ code: 'TOKENIZER_MISSING' })
    await expect(run({ prompt: 'abcde', contextLength: 4 })).rejects.toMatchObject({ code: 'CONTEXT_FULL' })
    await expect(run({ prompt: 'abcde' }, model(4))).rejects.toMatchObject({ code: 'CONTEXT_FULL' })
  })
})

describe('cancelling', () => {
  test('between tokens, in a forward pass, and before the start', async () => {
    for (const at of [0, 1, 3]) {
      const controller = new AbortController()
      const sequence = model()
      let calls = 0
      sequence.onForward = () => {
        if (++calls === at) controller.abort()
      }
      if (at === 0) controller.abort()
      await expect(run({ signal: controller.signal }, sequence)).rejects.toMatchObject({ code: 'ABORTED' })
      expect(calls).toBe(at)
      expect(sequence.length).toBe(Math.max(0, at - 1))
    }
  })

  test('a caller may leave the loop', async () => {
    const sequence = model()
    for await (const event of generate(sequence, tokenizer, { prompt: 'a', maxTokens: 100 }))
      if (event.type === 'token' && event.index === 1) break
    expect(sequence.length).toBe(2)
    expect(sequence.released).toBe(false)
  })
})
