// Every family against an independent float64 forward pass (test/reference/families_float64.py) on a small random checkpoint: through the
// real engine, from the checkpoint and from the package it converts to.
import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, expect, test } from 'vitest'
import { open } from '#sluice/api/model.js'
import { convertToWia } from '#sluice/convert/convert.js'
import { compile } from '#sluice/graph/compile.js'
import { logitsOf } from '../engine/run.ts'
import { runPlan, type Weight, weightOf } from '../graph/interpreter.ts'
import { readCheckpoint } from '../graph/models.ts'
import { maxDifference, readNpy } from '../npy.ts'
import { writeGguf } from './gguf-file.ts'
import { gguf } from './gguf-twin.ts'

const FIXTURES = join(import.meta.dirname, '../fixtures/families')
const TOLERANCE = 1e-3
const scratch = mkdtempSync(join(tmpdir(), 'families-'))
afterAll(() => rmSync(scratch, { recursive: true, force: true }))

const names = readdirSync(FIXTURES).sort()
const ids = (name: string): number[] => JSON.parse(readFileSync(join(FIXTURES, name, 'ids.json'), 'utf8'))
const expected = (name: string): Float32Array => readNpy(join(FIXTURES, name, 'logits.npy')).data

async function run(path: string, tokens: readonly number[], step = tokens.length): Promise<Float32Array> {
  const model = await open(path)
  try {
    const engine = await model.engine({ precision: 'exact', threads: 2, memory: 256 * 2 ** 20, context: 64 })
    try {
      if (step === tokens.length) return await logitsOf(engine, tokens)
      const sequence = engine.createSequence()
      const parts: number[] = []
      for (let i = 0; i < tokens.length; i += step)
        parts.push(...(await sequence.forward(tokens.slice(i, i + step), { logits: 'all' })))
      sequence.release()
      return Float32Array.from(parts)
    } finally {
      await engine.close()
    }
  } finally {
    await model.close()
  }
}

test('there are fixtures', () => expect(names.length).toBeGreaterThanOrEqual(13))

test.each(names)('%s: checkpoint and package agree with float64', async (name) => {
  const folder = join(FIXTURES, name)
  const want = expected(name)
  const whole = await run(folder, ids(name))
  expect(maxDifference(whole, want)).toBeLessThan(TOLERANCE)
  // Token groups that end inside and outside a window: the cache must give the same.
  expect(maxDifference(await run(folder, ids(name), 7), want)).toBeLessThan(TOLERANCE)

  const target = join(scratch, `${name}.wia`)
  const model = await open(folder)
  await convertToWia(model.reader, model.architecture(), target, { quantization: 'keep' })
  await model.close()
  expect(await run(target, ids(name))).toEqual(whole)
})

// Stacked experts, fused projections, reordered rows: parts of tensors, read and converted.
test.each(['qwen3-moe', 'phi3', 'granite'])('%s: GGUF file and its package agree with float64', async (name) => {
  const file = join(scratch, `${name}.gguf`)
  const twin = gguf(readCheckpoint(join(FIXTURES, name)))
  // A conversion wants a vocabulary.
  const tokens = Array.from({ length: 96 }, (_, i) => String.fromCharCode(0x100 + i))
  const vocabulary = { model: 'gpt2', tokens, merges: [] }
  for (const [key, value] of Object.entries(vocabulary)) twin.config[`tokenizer.ggml.${key}`] = value
  writeGguf(file, twin)
  const whole = await run(file, ids(name))
  expect(maxDifference(whole, expected(name))).toBeLessThan(TOLERANCE)
  const target = join(scratch, `${name}-gguf.wia`)
  const model = await open(file)
  await convertToWia(model.reader, model.architecture(), target, { quantization: 'keep' })
  await model.close()
  expect(await run(target, ids(name))).toEqual(whole)
})

test.each(['phi3', 'qwen3-moe'])('%s: an int8 package has the rounded weights, and runs with them', async (name) => {
  const target = join(scratch, `${name}-int8.wia`)
  const source = await open(join(FIXTURES, name))
  const arch = source.architecture()
  await convertToWia(source.reader, arch, target, { quantization: 'int8' })
  await source.close()
  const original = readCheckpoint(join(FIXTURES, name)).tensors
  const rounded = new Map<string, Weight>()
  const model = await open(target)
  for (const weight of arch.graph.weights) {
    const data = (await model.tensor(weight.name).astype('float32')) as Float32Array
    rounded.set(weight.name, { shape: weight.shape, data })
    const want = weightOf(original, arch.names.get(weight.name)!)
    expect(want.shape).toEqual(weight.shape)
    expect(distance(data, want.data)).toBeLessThan(0.01)
  }
  await model.close()
  const tokens = ids(name)
  const all = tokens.map((_, i) => i)
  const { logits } = runPlan(compile(arch.graph), (weight) => rounded.get(weight)!, tokens, all)
  expect(maxDifference(await run(target, tokens), Float32Array.from(logits))).toBeLessThan(TOLERANCE)
})

/** Relative, root of mean squares. */
function distance(a: ArrayLike<number>, b: ArrayLike<number>): number {
  let [difference, size] = [0, 0]
  for (let i = 0; i < a.length; i++) {
    difference += (a[i]! - b[i]!) ** 2
    size += b[i]! ** 2
  }
  return Math.sqrt(difference / size)
}
