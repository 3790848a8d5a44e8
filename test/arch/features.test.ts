// What each family has of its own matters: the plan agrees with the float64 reference, and with one feature left out of the graph, or one
// field of the configuration changed, it does not.
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { buildArchitecture } from '#sluice/arch/registry.js'
import { canonicalJson, type JsonObject, parseJsonObject } from '#sluice/base/json.js'
import { compile } from '#sluice/graph/compile.js'
import type { Graph, GraphNode } from '#sluice/graph/graph.js'
import { readGraph } from '#sluice/graph/read.js'
import { checkTensors } from '#sluice/graph/tensors.js'
import { writeGraph } from '#sluice/graph/write.js'
import { runPlan, weightOf } from '../graph/interpreter.ts'
import { largestDifference, readCheckpoint, readNpy, type SmallModel } from '../graph/models.ts'
import { gguf } from './gguf-twin.ts'

const FIXTURES = join(import.meta.dirname, '../fixtures/families')

interface Case {
  readonly model: SmallModel
  readonly ids: readonly number[]
  readonly want: ArrayLike<number>
}

function fixture(name: string): Case {
  const folder = join(FIXTURES, name)
  return {
    model: readCheckpoint(folder),
    ids: JSON.parse(readFileSync(join(folder, 'ids.json'), 'utf8')),
    want: readNpy(join(folder, 'logits.npy')).data,
  }
}

/** Largest difference from the reference, with the graph changed after it was written and read. */
function distance({ model, ids, want }: Case, change: (graph: Graph) => Graph = (graph) => graph): number {
  const arch = buildArchitecture(model)
  checkTensors(arch.graph, model.tensors, arch)
  const written = parseJsonObject(canonicalJson(writeGraph(arch.graph)), { where: 'architecture.json' })
  const { graph } = readGraph(written)
  const { logits } = runPlan(
    compile(change(graph)),
    (name) => weightOf(model.tensors, arch.names.get(name)!),
    ids,
    ids.map((_, i) => i),
  )
  return largestDifference(logits, want)
}

const edit = (what: (node: GraphNode) => GraphNode) => (graph: Graph) => {
  const nodes = graph.nodes.map(what)
  // A feature that is not in the graph cannot be left out of it.
  expect(nodes.some((n, i) => n !== graph.nodes[i])).toBe(true)
  return { ...graph, nodes }
}
const without = (op: string, attribute: string) =>
  edit((n) => {
    if (n.op !== op || !(attribute in n.attributes)) return n
    return { ...n, attributes: Object.fromEntries(Object.entries(n.attributes).filter(([k]) => k !== attribute)) }
  })
const withoutNorm = (name: RegExp) =>
  edit((n) =>
    n.op === 'RMSNormalization' && name.test(n.name) ? { ...n, op: 'Identity', attributes: {}, weights: [] } : n,
  )
const withoutBias = (name: RegExp) =>
  edit((n) =>
    n.op === 'Linear' && name.test(n.name) && n.weights.length === 2 ? { ...n, weights: [n.weights[0]!] } : n,
  )

const DROPPED: [string, string, (graph: Graph) => Graph][] = [
  ['qwen2', 'the bias of q', withoutBias(/\.q$/)],
  ['qwen2', 'the bias of k', withoutBias(/\.k$/)],
  ['qwen2', 'the bias of v', withoutBias(/\.v$/)],
  ['qwen2-tied-window', 'the window', without('Attention', 'window')],
  ['qwen2-tied-window', 'yarn', without('RotaryCache', 'scaling')],
  ['qwen2-tied-window', 'the factor of cos and sin', without('RotaryCache', 'attention_scale')],
  ['qwen3', 'the norm of q', withoutNorm(/\.q\.norm$/)],
  ['qwen3', 'the norm of k', withoutNorm(/\.k\.norm$/)],
  ['mistral', 'the window', without('Attention', 'window')],
  ['qwen3-moe', 'the norm of k', withoutNorm(/\.k\.norm$/)],
  [
    'qwen3-moe',
    'renormalizing',
    edit((n) => (n.op === 'MoE' ? { ...n, attributes: { ...n.attributes, normalize: 0 } } : n)),
  ],
  ['qwen3-moe-sparse-step', 'the bias of o', withoutBias(/\.o$/)],
  ['olmo2', 'the norm after attention', withoutNorm(/attention\.norm$/)],
  ['olmo2', 'the norm after the feed-forward', withoutNorm(/mlp\.norm$/)],
  ['olmo2', 'the norm of q', withoutNorm(/\.q\.norm$/)],
  ['smollm3', 'the bias of down', withoutBias(/\.down$/)],
  ['smollm3', 'the window', without('Attention', 'window')],
  ['granite', 'the factor of the embedding', without('Embedding', 'scale')],
  ['granite', 'the factor of attention', without('Attention', 'scale')],
  [
    'granite',
    'the factor of what layers add',
    edit((n) => (/\.(o|down)$/.test(n.name) ? { ...n, attributes: {} } : n)),
  ],
  ['granite', 'the factor of the logits', edit((n) => (n.name === 'logits' ? { ...n, attributes: {} } : n))],
  ['phi3', 'the window', without('Attention', 'window')],
  ['phi3', 'short factors', without('RotaryCache', 'divisors')],
  ['phi3', 'the factor of cos and sin', without('RotaryCache', 'attention_scale')],
  ['llama-yarn', 'beta_fast', without('RotaryCache', 'beta_fast')],
  ['llama-yarn', 'beta_slow', without('RotaryCache', 'beta_slow')],
  ['llama-yarn', 'truncate', without('RotaryCache', 'truncate')],
]

test.each(DROPPED)('%s without %s', (name, _, change) => {
  const one = fixture(name)
  expect(distance(one)).toBeLessThan(1e-5)
  expect(distance(one, change)).toBeGreaterThan(1e-2)
})

const FIELDS: [string, JsonObject][] = [
  ['qwen2', { use_sliding_window: true }],
  ['qwen2-tied-window', { max_window_layers: 3 }],
  ['qwen2-tied-window', { max_window_layers: 0 }],
  ['qwen2-tied-window', { layer_types: ['sliding_attention', 'full_attention', 'full_attention'] }],
  ['qwen2-tied-window', { sliding_window: 9 }],
  ['qwen2-tied-window', { sliding_window: null }],
  ['mistral', { sliding_window: 8 }],
  ['mistral', { sliding_window: null }],
  ['qwen3-moe', { num_experts_per_tok: 2 }],
  ['qwen3-moe', { norm_topk_prob: false }],
  ['qwen3-moe-sparse-step', { norm_topk_prob: true }],
  ['smollm3-interval', { no_rope_layer_interval: 2 }],
  ['smollm3', { no_rope_layers: [1, 1, 1] }],
  ['smollm3', { no_rope_layers: [1, 0, 0] }],
  ['smollm3', { no_rope_layers: null, no_rope_layer_interval: 3 }],
  ['smollm3', { layer_types: ['full_attention', 'full_attention', 'sliding_attention'] }],
  ['smollm3', { use_sliding_window: false, layer_types: null }],
  ['granite', { attention_multiplier: 0.25 }],
  ['granite', { attention_multiplier: null }],
  ['phi3', { sliding_window: 16 }],
  ['phi3', { original_max_position_embeddings: 32 }],
  ['llama-yarn', { rope_parameters: { rope_type: 'yarn', factor: 8, original_max_position_embeddings: 1024 } }],
  ['llama-dynamic', { rope_scaling: { type: 'linear', factor: 4 } }],
]

test.each(FIELDS)('%s with %o', (name, fields) => {
  const one = fixture(name)
  const config = { ...one.model.config, ...fields }
  expect(distance({ ...one, model: { ...one.model, config } })).toBeGreaterThan(1e-2)
})

// What changes nothing: the same model, said otherwise.
const SAME: [string, JsonObject][] = [
  ['qwen2', { sliding_window: null }],
  [
    'qwen2-tied-window',
    { layer_types: ['full_attention', 'full_attention', 'sliding_attention'], max_window_layers: 28 },
  ],
  ['qwen3-moe', { num_experts: null, num_local_experts: 5 }],
  ['qwen3-moe', { decoder_sparse_step: null }],
  ['qwen3-moe-sparse-step', { mlp_only_layers: [0, 3] }],
  ['smollm3', { no_rope_layers: null, layer_types: null }],
  ['smollm3-interval', { no_rope_layers: [1, 1, 1, 0, 1, 0, 0] }],
  ['llama-dynamic', { rope_scaling: null }],
  ['llama-dynamic', { rope_scaling: { type: 'yarn', factor: 1 } }],
]

test.each(SAME)('%s with %o is the same', (name, fields) => {
  const one = fixture(name)
  const config = { ...one.model.config, ...fields }
  expect(distance({ ...one, model: { ...one.model, config } })).toBeLessThan(1e-5)
})

test('a context beyond the length for which the frequencies hold is not offered, and said so', () => {
  const phi3 = buildArchitecture(fixture('phi3').model)
  expect(phi3.graph.contextLength).toBe(64)
  expect(phi3.warnings).toEqual([expect.stringContaining('longrope is implemented up to')])
  const dynamic = buildArchitecture(fixture('llama-dynamic').model)
  expect(dynamic.graph.contextLength).toBe(256)
  expect(dynamic.warnings).toEqual([expect.stringContaining('dynamic RoPE scaling')])
})

test.each(['qwen2', 'qwen3', 'qwen3-moe', 'olmo2', 'smollm3-interval', 'granite', 'phi3'])('%s as GGUF', (name) => {
  const one = fixture(name)
  const twin = gguf(one.model)
  expect(distance({ ...one, model: twin })).toBeLessThan(1e-5)
})
