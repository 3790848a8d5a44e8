// Plans of toy models against a straight-line forward pass: every variant a configuration can name.
import { expect, test } from 'vitest'
import { buildArchitecture } from '#sluice/arch/registry.js'
import type { JsonObject } from '#sluice/base/json.js'
import type { AdapterTarget } from '#sluice/graph/adapters.js'
import { compile } from '#sluice/graph/compile.js'
import { checkTensors } from '#sluice/graph/tensors.js'
import { runPlan, type Weight, type Weights, weightOf } from '../graph/interpreter.ts'
import { largestDifference, type SmallModel } from '../graph/models.ts'
import { randomFrom } from '../graph/random.ts'
import { reference, SIZE, type ToySize, toGguf, toyConfig, toyModel } from './toy.ts'

const ids = [5, 0, 22, 5, 17, 9]

function logits(
  model: SmallModel,
  adapters: readonly AdapterTarget[] = [],
  more: ReadonlyMap<string, Weight> = new Map(),
): Float64Array {
  const arch = buildArchitecture(model)
  checkTensors(arch.graph, model.tensors, arch)
  expect(arch.warnings).toEqual([])
  const weights: Weights = (name) => {
    const added = more.get(name)
    if (added !== undefined) return added
    return weightOf(model.tensors, arch.names.get(name)!)
  }
  return runPlan(
    compile(arch.graph, { adapters }),
    weights,
    ids,
    ids.map((_, i) => i),
  ).logits
}

const plain = [0, 1, 2].map((i) => 100 ** (-i / 3))
const llama3 = {
  rope_type: 'llama3',
  factor: 8,
  low_freq_factor: 1,
  high_freq_factor: 4,
  original_max_position_embeddings: 40,
}
// numpy, float64, from _compute_llama3_parameters of modeling_rope_utils.py: dim 6, base 100, the parameters above.
const LLAMA3 = [1.0, 0.05027813261092413, 0.005801986042015975]

const CASES: [string, ToySize, JsonObject, number[]][] = [
  ['llama', SIZE, {}, plain],
  ['llama, tied head', SIZE, { tie_word_embeddings: true }, plain],
  ['llama, one kv head', { ...SIZE, kvHeads: 1 }, {}, plain],
  ['llama, as many kv heads', { ...SIZE, kvHeads: 4 }, {}, plain],
  ['llama, biases', SIZE, { attention_bias: true, mlp_bias: true }, plain],
  ['llama, linear scaling', SIZE, { rope_scaling: { type: 'linear', factor: 4 } }, plain.map((f) => f / 4)],
  ['llama, llama3 scaling', SIZE, { rope_scaling: llama3 }, LLAMA3],
  ['llama, rope_parameters', SIZE, { rope_theta: null, rope_parameters: { ...llama3, rope_theta: 100 } }, LLAMA3],
  ['mistral', SIZE, { model_type: 'mistral', architectures: ['MistralForCausalLM'], sliding_window: null }, plain],
  ['mixtral', { ...SIZE, experts: 5, topK: 2 }, {}, plain],
  ['mixtral, one expert a token', { ...SIZE, experts: 3, topK: 1 }, {}, plain],
]

test.each(CASES)('%s', (_, size, more, frequencies) => {
  const model = toyModel(size, toyConfig(size, more), 7)
  expect(largestDifference(logits(model), reference(size, model, ids, frequencies))).toBeLessThan(1e-10)
})

test('GGUF twins: reordered rows, biases, a tied head, linear scaling, frequency factors', () => {
  const bare = toyModel(SIZE, toyConfig(SIZE), 8)
  expect(largestDifference(logits(toGguf(SIZE, bare)), reference(SIZE, bare, ids, plain))).toBeLessThan(1e-10)

  const biased = toyModel(SIZE, toyConfig(SIZE, { attention_bias: true, mlp_bias: true, tie_word_embeddings: true }), 9)
  expect(largestDifference(logits(toGguf(SIZE, biased)), reference(SIZE, biased, ids, plain))).toBeLessThan(1e-10)

  const scaled = { 'llama.rope.scaling.type': 'linear', 'llama.rope.scaling.factor': 4 }
  expect(
    largestDifference(
      logits(toGguf(SIZE, bare, scaled)),
      reference(
        SIZE,
        bare,
        ids,
        plain.map((f) => f / 4),
      ),
    ),
  ).toBeLessThan(1e-10)
  const old = { 'llama.rope.scale_linear': 4 }
  expect(logits(toGguf(SIZE, bare, old))).toEqual(logits(toGguf(SIZE, bare, scaled)))

  const factors = toGguf(SIZE, bare)
  factors.tensors.set('rope_freqs.weight', { shape: [3], data: Float64Array.from(plain.map((f, i) => f / LLAMA3[i]!)) })
  expect(largestDifference(logits(factors), reference(SIZE, bare, ids, LLAMA3))).toBeLessThan(1e-10)

  const dense = { 'llama.expert_count': 0, 'llama.expert_used_count': 0, 'llama.attention.head_count_kv': [2, 2] }
  expect(logits(toGguf(SIZE, bare, dense))).toEqual(logits(toGguf(SIZE, bare)))
})

test('two adapters on every projection, router and expert of a mixture: as if merged into the weights', () => {
  const size = { ...SIZE, experts: 5, topK: 2 }
  const model = toyModel(size, toyConfig(size), 11)
  const merged = { ...model, tensors: new Map(model.tensors) }
  const random = randomFrom(12)
  const adapters: AdapterTarget[] = []
  const more = new Map<string, Weight>()
  for (const rank of [2, 3])
    for (const [target, w] of model.tensors) {
      if (!/(_proj|gate|w[123]|lm_head)\.weight$/.test(target)) continue
      const [out, width] = w.shape as [number, number]
      const A = Float64Array.from({ length: rank * width }, () => random() - 0.5)
      const B = Float64Array.from({ length: out * rank }, () => random() - 0.5)
      const name = `${target}/${rank}`
      more.set(`${name}/A`, { shape: [rank, width], data: A }).set(`${name}/B`, { shape: [out, rank], data: B })
      adapters.push({ target, a: `${name}/A`, b: `${name}/B`, rank, scale: 0.3 })
      const data = Float64Array.from(merged.tensors.get(target)!.data, (v, i) => {
        let sum = 0
        for (let k = 0; k < rank; k++) sum += B[Math.floor(i / width) * rank + k]! * A[k * width + (i % width)]!
        return v + 0.3 * sum
      })
      merged.tensors.set(target, { shape: w.shape, data })
    }
  expect(adapters.length).toBe(2 * (1 + 2 * (4 + 1 + 15)))
  const want = reference(size, merged, ids, plain)
  expect(largestDifference(want, reference(size, model, ids, plain))).toBeGreaterThan(0.1)
  expect(largestDifference(logits(model, adapters, more), want)).toBeLessThan(1e-10)
})
