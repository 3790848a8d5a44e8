// The promise of a budget, kept in control groups that would kill the process: the smallest budget with a prompt that fills the context,
// and none given.
import { spawnSync } from 'node:child_process'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { open } from '#sluice/api/model.js'
import { cgroupProblem } from '../../bench/cgroup.mjs'
import { STORYTELLER } from './storyteller.ts'

const BENCH = join(import.meta.dirname, '../../bench/budget.mjs')
const problem: string | undefined = cgroupProblem()

interface Result {
  broken: boolean
  runs: { limit: number; peakBytes: number; residentBytes: number; ok: boolean; name: string }[]
}

function bench(...args: string[]): Result {
  const r = spawnSync(process.execPath, [BENCH, '--model', STORYTELLER, ...args], { encoding: 'utf8' })
  if (r.status !== 0) throw new Error(`${r.stdout}\n${r.stderr}`)
  return JSON.parse(r.stdout.trim().split('\n').at(-1)!) as Result
}

/** Each run is a process of its own, and the machine may be busy. */
const SLOW = 300_000

describe(`in a control group${problem === undefined ? '' : ` (skipped: ${problem})`}`, () => {
  test.skipIf(problem !== undefined)(
    'the smallest budget holds, with a prompt that touches everything',
    { timeout: SLOW },
    () => {
      const result = bench(
        '--budgets',
        'least',
        '--prompt-tokens',
        '500',
        '--generate',
        '200',
        '--modes',
        'pread,direct',
      )
      expect(result.runs.map((r) => r.name)).toEqual(['logits', 'logits', 'generate', 'logits', 'logits', 'generate'])
      for (const r of result.runs) {
        expect(r.peakBytes).toBeLessThan(r.limit)
        expect(r.residentBytes).toBeLessThan(r.limit)
        expect(r.peakBytes).toBeGreaterThan(30_000_000) // it was measured
      }
    },
  )

  test.skipIf(problem !== undefined)('no budget given: what the group allows is kept', { timeout: SLOW }, () => {
    expect(bench('--budgets', 'none', '--threads', '2', '--modes', 'auto', '--precision', 'fast').broken).toBe(false)
  })
})

describe('the smallest budget that is named', () => {
  test.each([
    [{ threads: 1, precision: 'exact' }],
    [{ threads: 2, precision: 'fast', context: 64 }],
    [{ threads: 4, precision: 'exact', cacheTokens: 4096 }],
  ] as const)('runs the model: %o', async (options) => {
    const model = await open(STORYTELLER)
    try {
      for (const memory of [1, 100_000_000, 10 ** 10]) {
        // Of a refusal or of a forecast. The process grows while tests run, so what it takes is asked again and again.
        const named = await (async () => model.plan({ ...options, memory }).requiredBytes)().catch(
          (e: { details: { requiredBytes: number } }) => e.details.requiredBytes,
        )
        const engine = await model.engine({ ...options, memory: named + 4 * 1024 ** 2 })
        const s = engine.createSequence()
        await s.forward([1, 2, 3], { logits: 'last' })
        expect(engine.report().budgetBytes).toBe(named + 4 * 1024 ** 2)
        await engine.close()
      }
    } finally {
      await model.close()
    }
  })

  test('a budget that is no number of bytes is refused', async () => {
    const model = await open(STORYTELLER)
    for (const memory of [0, -1, 1.5, Number.NaN, Number.POSITIVE_INFINITY]) {
      await expect(model.engine({ memory })).rejects.toMatchObject({ code: 'REQUEST_INVALID' })
      await expect(model.engine({ weightMemory: memory })).rejects.toMatchObject({ code: 'REQUEST_INVALID' })
    }
    await expect(model.engine({ cacheTokens: 10 ** 9 })).rejects.toMatchObject({ code: 'REQUEST_INVALID' })
    await model.close()
  })
})
