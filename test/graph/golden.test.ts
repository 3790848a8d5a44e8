// Plans of real models against float64 logits made by independent programs.
import { readFileSync } from 'node:fs'
import { expect } from 'vitest'
import type { ArchOutput } from '#sluice/arch/arch.js'
import { buildArchitecture } from '#sluice/arch/registry.js'
import { canonicalJson, parseJsonObject } from '#sluice/base/json.js'
import { permutedRows } from '#sluice/graph/adapters.js'
import { compile } from '#sluice/graph/compile.js'
import { readGraph } from '#sluice/graph/read.js'
import { checkTensors } from '#sluice/graph/tensors.js'
import { writeGraph } from '#sluice/graph/write.js'
import { data, dataTest } from '../data.ts'
import { emptyCache, type Run, runPlan, type Weight, type Weights, weightOf } from './interpreter.ts'
import {
  largestDifference,
  readCheckpoint,
  readGgufModel,
  readNpy,
  readSafetensors,
  type SmallModel,
} from './models.ts'

interface Golden {
  prompts: {
    ids: number[]
    logits_npy?: string
    hidden_after_each_layer_npy?: string
    experts_per_layer?: number[][][]
  }[]
}

const golden = (...path: string[]) => JSON.parse(readFileSync(data(...path), 'utf8')) as Golden

/** Weights of a model under the graph's names. */
function weightsOf(model: SmallModel, arch: ArchOutput, more: ReadonlyMap<string, Weight> = new Map()): Weights {
  return (name) => {
    const added = more.get(name)
    if (added !== undefined) return added
    return weightOf(model.tensors, arch.names.get(name)!)
  }
}

function open(model: SmallModel): ArchOutput {
  const arch = buildArchitecture(model)
  checkTensors(arch.graph, model.tensors, arch)
  expect(arch.warnings).toEqual([])
  return arch
}

function compare(model: SmallModel, folder: string, file: string): Run[] {
  const arch = open(model)
  // The engine runs what was written and read back, so that is what is compared.
  const { graph, warnings } = readGraph(
    parseJsonObject(canonicalJson(writeGraph(arch.graph)), { where: 'architecture.json' }),
  )
  expect(warnings).toEqual([])
  expect(graph).toEqual(arch.graph)
  const plan = compile(graph)
  const weights = weightsOf(model, arch)
  const runs: Run[] = []
  for (const prompt of golden(folder, 'golden', file).prompts) {
    if (prompt.logits_npy === undefined) continue
    const all = prompt.ids.map((_, i) => i)
    const run = runPlan(plan, weights, prompt.ids, all)
    expect(largestDifference(run.logits, readNpy(data(folder, prompt.logits_npy)).data)).toBeLessThan(1e-4)
    if (prompt.hidden_after_each_layer_npy !== undefined) {
      const hidden = readNpy(data(folder, prompt.hidden_after_each_layer_npy))
      expect(run.hidden.length).toBe(hidden.shape[0])
      expect(
        largestDifference(
          run.hidden.flatMap((h) => [...h]),
          hidden.data,
        ),
      ).toBeLessThan(1e-4)
    }
    if (prompt.experts_per_layer !== undefined) expect(run.experts).toEqual(prompt.experts_per_layer)
    runs.push(run)
  }
  expect(runs.length).toBeGreaterThan(0)
  return runs
}

dataTest('stories260k, checkpoint: logits and hidden states', () => {
  compare(readCheckpoint(data('stories260k/hf')), 'stories260k', 'stories260K-F32.json')
})

dataTest('stories260k, GGUF F32 (rows of q and k reordered, tied head): logits and hidden states', () => {
  compare(readGgufModel(data('stories260k/gguf/stories260K-F32.gguf')), 'stories260k', 'stories260K-F32.json')
})

dataTest('stories4m, bf16, own head: logits and hidden states', () => {
  compare(readCheckpoint(data('stories4m/hf')), 'stories4m', 'stories4m-BF16.json')
})

dataTest('stories-moe, checkpoint: logits and the choice of experts', () => {
  const runs = compare(readCheckpoint(data('stories-moe/hf')), 'stories-moe', 'stories-moe-F16.json')
  expect(runs.every((r) => r.experts.length === 5)).toBe(true)
})

dataTest('stories-moe, GGUF F16, stacked experts: logits and the choice of experts', () => {
  compare(readGgufModel(data('stories-moe/gguf/stories-moe-F16.gguf')), 'stories-moe', 'stories-moe-F16.json')
})

dataTest('stories-moe, GGUF with a tensor an expert, as older files have it', () => {
  const model = readGgufModel(data('stories-moe/gguf/stories-moe-F16.gguf'))
  const stacked = [...model.tensors].filter(([name]) => name.includes('_exps'))
  for (const [name, { shape, data: all }] of stacked) {
    model.tensors.delete(name)
    const n = shape[1]! * shape[2]!
    for (let e = 0; e < shape[0]!; e++)
      model.tensors.set(name.replace('_exps.weight', `.${e}.weight`), {
        shape: shape.slice(1),
        data: all.subarray(e * n, (e + 1) * n),
      })
  }
  compare(model, 'stories-moe', 'stories-moe-F16.json')
})

dataTest('a prompt in chunks, with only some logits wanted, gives the same numbers', () => {
  const model = readCheckpoint(data('stories260k/hf'))
  const arch = open(model)
  const plan = compile(arch.graph)
  const weights = weightsOf(model, arch)
  const { ids } = golden('stories260k/golden/stories260K-F32.json').prompts[2]!
  const whole = runPlan(plan, weights, ids, [3, ids.length - 1])
  const cache = emptyCache(plan)
  runPlan(plan, weights, ids.slice(0, 10), [], cache)
  const last = runPlan(plan, weights, ids.slice(10), [ids.length - 11], cache)
  expect(largestDifference(last.logits, whole.logits.subarray(plan.vocabulary))).toBeLessThan(1e-12)
})

dataTest('an adapter on every Linear, on a checkpoint and on a GGUF whose rows are reordered', () => {
  const folder = 'stories260k/lora/robot-all-r8'
  const tensors = readSafetensors(data(folder, 'adapter_model.safetensors'))
  const { r, lora_alpha } = JSON.parse(readFileSync(data(folder, 'adapter_config.json'), 'utf8')) as {
    r: number
    lora_alpha: number
  }
  const base = compile(open(readCheckpoint(data('stories260k/hf'))).graph)
  for (const model of [
    readCheckpoint(data('stories260k/hf')),
    readGgufModel(data('stories260k/gguf/stories260K-F32.gguf')),
  ]) {
    const arch = open(model)
    const permuted = permutedRows(arch.graph)
    expect(permuted.size).toBe(model.format === 'gguf' ? 10 : 0)
    const more = new Map<string, Weight>()
    const adapters = [...tensors.keys()]
      .filter((name) => name.endsWith('lora_A.weight'))
      .map((name) => {
        const target = name.replace('base_model.model.', '').replace('.lora_A', '')
        const b = tensors.get(name.replace('lora_A', 'lora_B'))!
        const heads = permuted.get(target)
        more.set(`robot/${target}/A`, tensors.get(name)!)
        more.set(`robot/${target}/B`, heads === undefined ? b : permute(b, heads))
        return { target, a: `robot/${target}/A`, b: `robot/${target}/B`, rank: r, scale: lora_alpha / r }
      })
    expect(adapters.length).toBe(35)
    const plan = compile(arch.graph, { adapters })
    // The base's own steps stay as they are, in number and kind; each adapter adds two.
    const ops = plan.steps.filter((s) => !('weight' in s && s.weight.startsWith('robot/'))).map((s) => s.op)
    expect(ops).toEqual(base.steps.map((s) => s.op))
    expect(plan.steps.length).toBe(base.steps.length + 2 * 35)
    const prompts = golden(folder, 'golden.json').prompts.filter((p) => p.logits_npy !== undefined)
    expect(prompts.length).toBeGreaterThan(0)
    for (const prompt of prompts) {
      const run = runPlan(
        plan,
        weightsOf(model, arch, more),
        prompt.ids,
        prompt.ids.map((_, i) => i),
      )
      expect(largestDifference(run.logits, readNpy(data(folder, prompt.logits_npy!)).data)).toBeLessThan(1e-4)
    }
  }
})

/** Rows from (i, i + d/2) pairs to (2i, 2i + 1) pairs. */
function permute(w: Weight, heads: number): Weight {
  const [rows, cols] = w.shape as [number, number]
  const d = rows / heads
  const out = new Float32Array(w.data.length)
  for (let h = 0; h < heads; h++)
    for (let j = 0; j < 2; j++)
      for (let i = 0; i < d / 2; i++) {
        const from = h * d + (j * d) / 2 + i
        out.set(w.data.subarray(from * cols, (from + 1) * cols), (h * d + 2 * i + j) * cols)
      }
  return { shape: w.shape, data: out }
}
