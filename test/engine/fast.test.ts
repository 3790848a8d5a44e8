// What `fast` costs in accuracy, against `exact` over the same weights: activations are rounded to int8 blocks, the cache to 16 bits.
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, describe, expect, test } from 'vitest'
import { open } from '#sluice/api/model.js'
import { convertToWia } from '#sluice/convert/convert.js'
import { data, dataTest } from '../data.ts'
import { argmax, logitsOf } from './run.ts'
import { STORYTELLER, stories } from './storyteller.ts'

const dir = mkdtempSync(join(tmpdir(), 'sluice-fast-'))
afterAll(() => rmSync(dir, { recursive: true, force: true }))

interface Agreement {
  /** Largest difference of a logit, and root mean square of differences over that of the logits' spread. */
  max: number
  relative: number
  /** Of tokens whose best logit leads by more than `margin`: how many there are, and how many have another best one. */
  decided: number
  flipped: number
}

async function compare(path: string, ids: readonly number[], margin: number): Promise<Agreement> {
  const model = await open(path)
  try {
    const runs: Float32Array[] = []
    for (const precision of ['exact', 'fast'] as const) {
      const engine = await model.engine({ precision, threads: 2 })
      runs.push(await logitsOf(engine, ids))
      await engine.close()
    }
    const [exact, fast] = runs as [Float32Array, Float32Array]
    const v = exact.length / ids.length
    let [max, error, spread, decided, flipped] = [0, 0, 0, 0, 0]
    for (let t = 0; t < ids.length; t++) {
      const [a, b] = [exact.subarray(t * v, (t + 1) * v), fast.subarray(t * v, (t + 1) * v)]
      const mean = a.reduce((s, x) => s + x, 0) / v
      const best = argmax(a)
      let second = Number.NEGATIVE_INFINITY
      for (let i = 0; i < v; i++) {
        const d = Math.abs(a[i]! - b[i]!)
        if (!(d <= max)) max = d
        error += d * d
        spread += (a[i]! - mean) ** 2
        if (i !== best) second = Math.max(second, a[i]!)
      }
      if (a[best]! - second <= margin) continue
      decided++
      if (argmax(b) !== best) flipped++
    }
    return { max, relative: Math.sqrt(error / spread), decided, flipped }
  } finally {
    await model.close()
  }
}

const story = stories('base')[0]!
const IDS = [...story.ids, ...story.greedy_ids]

describe.each(['int8', 'int4', 'int4m', 'nf4', 'fp8_e4m3', 'fp8_e5m2'] as const)(
  'storyteller in %s',
  (quantization) => {
    test('logits off by 2 % of their spread at most, the same best token where it leads by 0.5', async () => {
      const out = join(dir, `${quantization}.wia`)
      const model = await open(STORYTELLER)
      await convertToWia(model.reader, model.architecture(), out, { quantization })
      await model.close()
      const a = await compare(out, IDS, 0.5)
      expect(a.relative).toBeGreaterThan(0) // fast is another computation
      expect(a.relative).toBeLessThan(0.02)
      expect(a.max).toBeLessThan(1)
      expect(a.decided).toBeGreaterThan(IDS.length / 3)
      expect(a.flipped).toBe(0)
    })
  },
)

describe("other programs' files", () => {
  const ids = [1, 403, 407, 261, 378, 432, 383, 286, 261, 376, 298, 315, 421, 395, 317, 426, 338, 401, 396, 267]
  dataTest.each([
    [['stories260k', 'gguf', 'stories260K-ffn192-Q8_0.gguf']],
    [['stories260k', 'gguf', 'stories260K-ffn192-Q4_0.gguf']],
    [['stories-moe', 'gguf', 'stories-moe-Q4_0.gguf']],
  ])('%s', async (parts) => {
    const a = await compare(data(...parts), ids, 1.5)
    expect(a.relative).toBeLessThan(0.04)
    expect(a.decided).toBeGreaterThan(3)
    expect(a.flipped).toBe(0)
  })
})
