// sluice run: text on stdout and nothing else there, documented JSON, prompt end on Ctrl-C. Texts are those of independent programs.
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { data, dataTest } from '../data.ts'
import { onlyLine, PROMPT, ROOT, STORY, shell, sluice } from './cli.ts'

interface Golden {
  prompts: { prompt: string; ids: number[]; greedy_ids: number[]; greedy_text: string }[]
}
const golden = (name: string): Golden =>
  JSON.parse(readFileSync(join(ROOT, 'test/fixtures/storyteller', name), 'utf8')) as Golden
const BASE = golden('base.json').prompts[0]!
const GREEDY = ['--temperature', '0', '--precision', 'exact']

interface RunFacts {
  text: string
  ids: number[]
  memory: { budgetBytes: number; peakBytes: number; residentWeightBytes: number; streamedBytes: number }
}

describe('text', () => {
  test('stdout is the text, stderr one line of statistics', async () => {
    const { code, stdout, stderr } = await sluice(['run', STORY, BASE.prompt, ...GREEDY])
    expect(code).toBe(0)
    expect(stdout).toBe(`${BASE.greedy_text}\n`)
    // On a slow machine progress is shown too.
    expect(stderr.replace(/^\w+ \d+ % .*\n/gm, '')).toMatch(
      /^sluice: 11 \+ 229 tokens, [\d.]+ tokens\/s; memory .+ of .+, all 5\.25 MiB of weights resident; .+, exact, .+\n$/,
    )
  })

  test('--quiet leaves only the text', async () => {
    const { stdout, stderr } = await sluice(['run', STORY, BASE.prompt, ...GREEDY, '--max-tokens', '5', '-q'])
    expect(BASE.greedy_text.startsWith(stdout.trimEnd())).toBe(true)
    expect(stderr).toBe('')
  })

  test('the same seed tells the same story, another one another', async () => {
    const told = (seed: string) => sluice(['run', STORY, PROMPT, '--max-tokens', '20', '--seed', seed, '-q'])
    const [a, b, c] = [await told('7'), await told('7'), await told('8')]
    expect(a.stdout.length).toBeGreaterThan(20)
    expect(b.stdout).toBe(a.stdout)
    expect(c.stdout).not.toBe(a.stdout)
  })

  test('--stop ends before the text', async () => {
    const word = BASE.greedy_text.split(' ')[4]!
    const { stdout } = await sluice(['run', STORY, BASE.prompt, ...GREEDY, '--stop', word, '-q'])
    expect(stdout).toBe(`${BASE.greedy_text.slice(0, BASE.greedy_text.indexOf(word))}\n`)
  })

  test('without stdin', async () => {
    const { code, stdout } = await sluice(['run', STORY, BASE.prompt, ...GREEDY, '--max-tokens', '5', '-q'], {
      stdin: 'closed',
    })
    expect(code).toBe(0)
    expect(BASE.greedy_text.startsWith(stdout.trimEnd())).toBe(true)
  })
})

describe('--json', () => {
  test('is one line with the documented fields', async () => {
    const outcome = await sluice(['run', STORY, '--ids', BASE.ids.join(','), ...GREEDY, '--memory', '256MiB', '--json'])
    expect([outcome.code, outcome.stderr]).toEqual([0, ''])
    const number = expect.any(Number)
    expect(onlyLine(outcome)).toStrictEqual({
      text: BASE.greedy_text,
      ids: BASE.greedy_ids,
      promptTokens: BASE.ids.length,
      completionTokens: BASE.greedy_ids.length,
      finishReason: 'stop',
      timings: { openMs: number, prefillMs: number, decodeMs: number, tokensPerSecond: number },
      memory: { budgetBytes: 256 * 1024 ** 2, peakBytes: number, residentWeightBytes: number, streamedBytes: number },
    })
    const { memory } = onlyLine(outcome) as RunFacts
    expect(memory.peakBytes).toBeGreaterThan(30e6)
    expect(memory.peakBytes).toBeLessThanOrEqual(memory.budgetBytes)
    expect(memory.residentWeightBytes).toBe(5_505_024)
  })

  test('streamed weights are counted and give the same ids', async () => {
    const args = ['run', STORY, '--ids', BASE.ids.join(','), ...GREEDY, '--max-tokens', '8', '--json']
    const { ids, memory } = onlyLine(
      await sluice([...args, '--memory', '256MiB', '--weight-memory', '2.75MB']),
    ) as RunFacts
    expect(ids).toEqual(BASE.greedy_ids.slice(0, 8))
    expect(memory.residentWeightBytes).toBeLessThan(2_750_000)
    expect(memory.streamedBytes).toBeGreaterThan(8 * 2_500_000)
  })

  test('--max-tokens 1 finishes for its length', async () => {
    expect(onlyLine(await sluice(['run', STORY, PROMPT, '--max-tokens', '1', '--json']))).toMatchObject({
      completionTokens: 1,
      finishReason: 'length',
    })
  })
})

describe('--lora', () => {
  const ids = async (...lora: string[]) =>
    (onlyLine(await sluice(['run', STORY, PROMPT, ...GREEDY, '--max-tokens', '12', '--json', ...lora])) as RunFacts).ids
  test('by name, by path, with a scale', async () => {
    const pirate = golden('pirate.json').prompts[0]!.greedy_ids.slice(0, 12)
    expect(pirate).not.toEqual(BASE.greedy_ids.slice(0, 12))
    expect(await ids('--lora', 'pirate')).toEqual(pirate)
    expect(await ids('--lora', join(STORY, 'adapters/pirate'))).toEqual(pirate)
    expect(await ids('--lora', 'pirate:1.0')).toEqual(pirate)
    expect(await ids('--lora', 'pirate:0')).toEqual(BASE.greedy_ids.slice(0, 12))
    // Half and half again is once.
    expect(await ids('--lora', 'pirate:0.5', '--lora', 'pirate:.5')).toEqual(pirate)
  })

  test('an adapter that is not there ends with 5, one that does not match with 3', async () => {
    expect((await sluice(['run', STORY, PROMPT, '--lora', './nothing'])).code).toBe(5)
  })

  dataTest('one of another model ends with 3', async () => {
    const { code, stderr } = await sluice(['run', STORY, PROMPT, '--lora', data('stories260k/lora/robot-all-r8')])
    expect([code, stderr]).toEqual([3, expect.stringMatching(/^sluice: .*\[ADAPTER_/)])
  })
})

describe('the end', () => {
  test('a pipe that closes early is no error', async () => {
    for (const line of [
      `sluice run examples/storyteller.wia --ids 1 --seed 3 -q | head -c 10`,
      `sluice inspect examples/storyteller.wia --json | head -c 10`,
      `sluice tensor examples/storyteller.wia model.embed_tokens.weight | head -c 10`,
      `sluice tensor examples/storyteller.wia model.embed_tokens.weight --as f32 | head -c 10`,
    ]) {
      const { code, bytes, stderr } = await shell(line)
      expect([line, code, bytes.length, stderr]).toEqual([line, 0, 10, ''])
    }
  })

  test.for(['SIGINT', 'SIGTERM'] as const)('%s ends with 130, the text so far and no stack', async (signal) => {
    // Slow enough to be caught in the middle: every token reads the streamed half again.
    const args = [
      'run',
      STORY,
      PROMPT,
      '--temperature',
      '0',
      '--threads',
      '1',
      '--kernels',
      'scalar',
      '--precision',
      'exact',
    ]
    const { code, stdout, stderr } = await sluice(args, {
      during: (child) =>
        child.stdout!.once('data', () => {
          child.kill(signal)
        }),
    })
    expect(code).toBe(130)
    expect(stdout.length).toBeGreaterThan(1)
    expect(stdout.endsWith('\n')).toBe(true)
    expect(BASE.greedy_text.startsWith(stdout.trimEnd())).toBe(true)
    // At once: not after the rest of the story.
    expect(stdout.trimEnd().length).toBeLessThan(BASE.greedy_text.length / 4)
    expect(stderr).toBe('sluice: cancelled [ABORTED]\n')
  })
})

describe('other models', () => {
  dataTest('safetensors and GGUF tell the same story', async () => {
    const { prompts } = JSON.parse(readFileSync(data('stories260k/golden/stories260K-F32.json'), 'utf8')) as {
      prompts: { ids: number[]; greedy_llamacpp: number[] }[]
    }
    const { ids, greedy_llamacpp } = prompts[0]!
    for (const model of ['stories260k/hf', 'stories260k/gguf/stories260K-F32.gguf']) {
      const args = ['run', data(model), '--ids', ids.join(','), ...GREEDY, '--max-tokens', '16', '--json']
      expect((onlyLine(await sluice(args)) as RunFacts).ids).toEqual(greedy_llamacpp.slice(0, 16))
    }
  })
})
