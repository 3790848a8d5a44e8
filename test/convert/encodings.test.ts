// The embedded model in every encoding: stored bytes are what the codec makes of the whole matrix, the report is what was lost, and
// the package computes what float64 computes from its own numbers.
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import type { Model } from '#sluice/api/model.js'
import { QUANTIZATIONS, type Quantization } from '#sluice/convert/policy.js'
import { compile } from '#sluice/graph/compile.js'
import { codecOf, encodedBytes } from '#sluice/quant/codec.js'
import { choosePanelExponent } from '#sluice/quant/panel-scale.js'
import type { Encoding, PanelSchemeName } from '#sluice/quant/scheme.js'
import { runPlan, type Weight } from '../graph/interpreter.ts'
import { maxDifference } from '../npy.ts'
import { convert, run, STORYTELLER, scratch, withModel } from './made.ts'

const root = scratch()
const IDS = [1, 403, 407, 261, 378]
const EMBEDDING = 'model.embed_tokens.weight'

/** The policy in words of its own: norms stay, the embedding (here also the head) has 8 bits or more, the rest is as asked for. */
function expectedEncoding(quantization: Quantization, name: string, absmax: number): Encoding {
  const plain = { keep: 'bfloat16', f32: 'float32', f16: 'float16', bf16: 'bfloat16' } as const
  if (quantization in plain) return { kind: 'plain', dtype: plain[quantization as keyof typeof plain] }
  if (name.includes('norm')) return { kind: 'plain', dtype: 'bfloat16' }
  const fewBits = ['int4', 'int4m', 'nf4'].includes(quantization)
  const scheme = (fewBits && name === EMBEDDING ? 'int8' : quantization) as PanelSchemeName
  const exponent = choosePanelExponent(scheme, 'f16', absmax)
  return { kind: 'panel', scheme, block: scheme === 'nf4' ? 64 : 32, scale: 'f16', exponent }
}

/** Logits in float64 from the numbers a model's tensors decode to. */
async function float64Logits(model: Model, ids: readonly number[]): Promise<Float32Array> {
  const weights = new Map<string, Weight>()
  for (const name of model.tensorNames) {
    const t = model.tensor(name)
    weights.set(name, { shape: t.shape, data: await t.astype('float32') })
  }
  const plan = compile(model.architecture().graph)
  return Float32Array.from(runPlan(plan, (name) => weights.get(name)!, ids, [...ids.keys()]).logits)
}

/** How far `fast` may be from `exact` where weights are plain (approximated exponentials), and where activations are rounded to 8 bits. */
const FAST_PLAIN = 0.01
const FAST_BLOCKS = 0.3

describe.each(QUANTIZATIONS)('%s', (quantization) => {
  const output = join(root, `${quantization}.wia`)

  test('bytes, error report, policy', async () => {
    const report = await convert(STORYTELLER, output, { quantization })
    let largest = { name: '', relative: 0 }
    await withModel(STORYTELLER, (from) =>
      withModel(output, async (to) => {
        expect([...to.tensorNames].sort()).toEqual([...from.tensorNames].sort())
        expect(report.tensors.map((t) => t.name)).toEqual(to.tensorNames)
        for (const [i, name] of to.tensorNames.entries()) {
          const values = await from.tensor(name).astype('float32')
          const { encoding, rows, cols } = to.tensor(name).entry
          const absmax = values.reduce((m, v) => Math.max(m, Math.abs(v)), 0)
          expect(encoding, name).toEqual(expectedEncoding(quantization, name, absmax))
          const bytes = new Uint8Array(encodedBytes(encoding, rows, cols))
          codecOf(encoding).encode!(values, rows, cols, bytes)
          expect(Buffer.compare(await to.tensor(name).bytes(), bytes), name).toBe(0)
          const decoded = new Float32Array(values.length)
          codecOf(encoding).decode(bytes, rows, cols, decoded)
          expect(maxDifference(await to.tensor(name).astype('float32'), decoded), name).toBe(0)

          let squares = 0
          let all = 0
          let worst = 0
          for (const [k, v] of values.entries()) {
            squares += (decoded[k]! - v) ** 2
            all += v ** 2
            worst = Math.max(worst, Math.abs(decoded[k]! - v))
          }
          const { error } = report.tensors[i]!
          if (error === undefined) expect(squares, name).toBe(0)
          else {
            expect(error.count).toBe(values.length)
            expect(error.rmse).toBeCloseTo(Math.sqrt(squares / values.length), 12)
            expect(error.relativeRmse).toBeCloseTo(Math.sqrt(squares / all), 9)
            expect(error.maxAbs).toBe(worst)
          }
          const relative = Math.sqrt(squares / all)
          if (relative > largest.relative) largest = { name, relative }
        }
      }),
    )
    expect(report.worst?.name ?? '').toBe(largest.name)
  })

  test('runs: within 1e-3 of float64 over its own numbers, fast within its bound of exact', async () => {
    const exact = await run(output, IDS)
    const reference = await withModel(output, (model) => float64Logits(model, IDS))
    expect(maxDifference(exact, reference)).toBeLessThan(1e-3)
    const span = exact.reduce((m, v) => Math.max(m, v), -1e9) - exact.reduce((m, v) => Math.min(m, v), 1e9)
    expect(span).toBeGreaterThan(10)
    const difference = maxDifference(await run(output, IDS, 'fast'), exact)
    expect(difference).toBeLessThan(/^(keep|b?f\d+)$/.test(quantization) ? FAST_PLAIN : FAST_BLOCKS)
  })
})
