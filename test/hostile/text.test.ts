// Tokenizers and prompts that would take for ever.
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { open } from '#sluice/api/model.js'
import { loadHfTokenizer } from '#sluice/text/hf.js'
import { SIZE, scratch, tokenizer, writeModel } from './models.ts'

const root = scratch()

async function load(json: object, more: Record<string, object> = {}) {
  const bytes = (value: object) => async () => new TextEncoder().encode(JSON.stringify(value))
  return loadHfTokenizer(
    new Map([['tokenizer.json', bytes(json)], ...Object.entries(more).map(([k, v]) => [k, bytes(v)] as const)]),
  )
}

async function code(work: () => unknown): Promise<string> {
  const started = performance.now()
  try {
    await work()
    return 'ok'
  } catch (err) {
    return (err as { code?: string }).code ?? `untyped: ${err}`
  } finally {
    expect(performance.now() - started).toBeLessThan(15_000)
  }
}

describe('tokenizers', () => {
  it.each([
    '(a+)+$',
    '(a|a)*$',
    '(a?){40}a{40}b',
    '(a*){30}b',
    'a*a*a*a*a*a*a*b',
    '(?:a{1,30}){1,30}b',
    '(?=(a+))\\1*b|(a|aa){1,40}c',
    '\\s*\\w*\\w*\\w*\\w*\\w*\\w*!',
  ])('the pattern %s on its worst text', { timeout: 40_000 }, async (Regex) => {
    const split = { type: 'Split', pattern: { Regex }, behavior: 'Isolated', invert: false }
    const got = await code(async () => (await load(tokenizer({ pre_tokenizer: split }))).encode('a'.repeat(3000)))
    expect(['TOKENIZER_UNSUPPORTED', 'ok']).toContain(got)
  })

  it('is not harmed by a pattern that was stopped', { timeout: 40_000 }, async () => {
    const split = { type: 'Split', pattern: { Regex: 'a*a*a*a*a*a*a*b' }, behavior: 'Isolated', invert: false }
    const t = await load(tokenizer({ pre_tokenizer: split }))
    const before = t.encode('the')
    expect(await code(() => t.encode('a'.repeat(3000)))).toBe('TOKENIZER_UNSUPPORTED')
    expect(t.encode('the')).toEqual(before)
  })

  it.each([
    ['an id of 2^31', { model: { ...(tokenizer() as { model: object }).model, vocab: { a: 2 ** 31 } } }],
    ['an id that is text', { model: { ...(tokenizer() as { model: object }).model, vocab: { a: '1' }, merges: [] } }],
    ['no vocabulary', { added_tokens: [], model: { type: 'BPE', vocab: {}, merges: [] } }],
    ['a model nobody knows', { model: { type: 'constructor' } }],
    ['an empty added token', { added_tokens: [{ id: 0, content: '' }] }],
    ['two tokens of one id', { added_tokens: [{ id: 5, content: 'zz' }] }],
  ])('%s', async (_, more) => {
    expect(['FORMAT_INVALID', 'TOKENIZER_UNSUPPORTED']).toContain(await code(() => load(tokenizer(more))))
  })

  it('300,000 merges load in seconds', { timeout: 60_000 }, async () => {
    const vocab: Record<string, number> = { a: 0 }
    const merges: string[] = []
    let token = 'a'
    for (let i = 1; i < 2000; i++) {
      merges.push(`${token} a`)
      token += 'a'
      vocab[token] = i
    }
    // Repeats name tokens that exist: only their number is hostile.
    while (merges.length < 300_000) merges.push('a a')
    const json = tokenizer({ added_tokens: [], model: { type: 'BPE', vocab, merges } })
    expect(await code(async () => (await load(json)).encode('a'.repeat(2000)))).toBe('ok')
  })
})

describe('prompts', () => {
  it('lone surrogates, NUL, only special tokens, nothing, ten megabytes', { timeout: 60_000 }, async () => {
    const model = await open(writeModel(join(root, 'model')))
    const engine = await model.engine({ memory: 300 * 2 ** 20 + process.memoryUsage().rss, threads: 1 })
    const ask = (prompt: string) =>
      code(async () => {
        for await (const event of model.generate(engine, { prompt, maxTokens: 1 })) void event
      })
    expect(await ask('')).toBe('REQUEST_INVALID')
    for (const text of ['\ud800', 'a\udc00b', '\u0000', '<s>', '<s></s><s>', 'the', '\u202e', '﷽'.repeat(5)])
      expect(['ok', 'REQUEST_INVALID']).toContain(await ask(text))
    const before = process.memoryUsage().rss
    const started = performance.now()
    for (const text of ['a', '😀', '\ud800', ' ']) expect(await ask(text.repeat(10_000_000))).toBe('CONTEXT_FULL')
    expect(performance.now() - started).toBeLessThan(5000)
    expect(process.memoryUsage().rss - before).toBeLessThan(300 * 2 ** 20)
    expect(await ask('the '.repeat(SIZE.context * 2))).toBe('CONTEXT_FULL')
    await engine.close()
    await model.close()
  })

  it('a vocabulary that is larger or smaller than the model', async () => {
    const small = (tokenizer() as { model: { vocab: Record<string, number> } }).model
    const vocab: Record<string, number> = { ...small.vocab, zebra: 900 }
    const path = writeModel(join(root, 'vocabulary'), {
      tokenizer: tokenizer({
        added_tokens: [
          {
            id: 900,
            content: 'zebra',
            special: false,
            single_word: false,
            lstrip: false,
            rstrip: false,
            normalized: false,
          },
        ],
        model: { ...small, vocab },
      }),
    })
    const model = await open(path)
    const engine = await model.engine({ memory: 300 * 2 ** 20 + process.memoryUsage().rss, threads: 1 })
    const ask = (prompt: string) =>
      code(async () => {
        for await (const event of model.generate(engine, { prompt, maxTokens: 1 })) void event
      })
    expect(await ask('zebra')).toBe('REQUEST_INVALID')
    expect(await ask('the')).toBe('ok')
    await engine.close()
    await model.close()
  })
})
