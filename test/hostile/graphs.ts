// architecture.json texts for attacks, and a reader whose tensors fit them without a byte on disk.
import type { JsonObject } from '#sluice/base/json.js'
import type { ModelReader } from '#sluice/format/reader.js'

const opsets = [
  { domain: 'ai.onnx', version: 23 },
  { domain: 'ai.wia', version: 14 },
]
export interface Node {
  id: string
  op: string
  domain: string
  inputs: string[]
  outputs: string[]
  weights?: string[]
  attributes?: JsonObject
}

export function graphOf(
  nodes: readonly Node[],
  initializers: readonly { name: string; shape: readonly number[] }[],
  more: JsonObject = {},
): JsonObject {
  return {
    name: 'hostile',
    context_length: 64,
    opsets,
    inputs: [
      { name: 'input_ids', dtype: 'int64', shape: ['tokens'] },
      { name: 'position_ids', dtype: 'int64', shape: ['tokens'] },
      { name: 'logit_indices', dtype: 'int64', shape: ['logit_tokens'] },
    ],
    outputs: [{ name: 'logits', dtype: 'float32', shape: ['logit_tokens', 8] }],
    initializers,
    nodes,
    ...more,
  } as unknown as JsonObject
}

const onnx = (op: string, id: string, inputs: string[], weights: string[] = [], attributes: JsonObject = {}): Node => ({
  ...{ id, op, domain: 'ai.onnx', inputs, outputs: [id], weights, attributes },
})
const wia = (op: string, id: string, inputs: string[], weights: string[] = [], attributes: JsonObject = {}): Node => ({
  ...{ id, op, domain: 'ai.wia', inputs, outputs: [id], weights, attributes },
})

/** Embedding of `width`, the nodes of `middle` from value "x" to the value it returns, selection, head. */
export function around(
  width: number,
  middle: (add: (name: string, shape: number[]) => string) => { nodes: Node[]; out: string },
  more: JsonObject = {},
): JsonObject {
  const initializers: { name: string; shape: number[] }[] = []
  const add = (name: string, shape: number[]) => {
    initializers.push({ name, shape })
    return name
  }
  add('embed.w', [8, width])
  const { nodes, out } = middle(add)
  add('head.w', [8, width])
  return graphOf(
    [
      onnx('Gather', 'x', ['input_ids'], ['embed.w']),
      ...nodes,
      onnx('Gather', 'selected', [out, 'logit_indices']),
      wia('Linear', 'logits', ['selected'], ['head.w']),
    ],
    initializers,
    more,
  )
}

/** A chain of `layers` mixtures of `experts`, two wide. */
export function mixtures(layers: number, experts: number): JsonObject {
  return around(2, (add) => {
    const nodes: Node[] = []
    let at = 'x'
    for (let l = 0; l < layers; l++) {
      const router = wia('Linear', `router${l}`, [at], [add(`router${l}.w`, [experts, 2])])
      const weights = Array.from({ length: 3 * experts }, (_, i) => add(`e${l}.${i}`, [2, 2]))
      const moe = wia('MoE', `moe${l}`, [at, router.id], weights, { top_k: 1, normalize: 1 })
      nodes.push(router, moe)
      at = moe.id
    }
    return { nodes, out: at }
  })
}

export function attention(width: number, attributes: JsonObject, kv = width): JsonObject {
  return around(width, (add) => ({
    nodes: [
      wia('Linear', 'q', ['x'], [add('q.w', [width, width])]),
      wia('Linear', 'k', ['x'], [add('k.w', [kv, width])]),
      wia('Linear', 'v', ['x'], [add('v.w', [kv, width])]),
      onnx('Attention', 'y', ['q', 'k', 'v'], [], { is_causal: 1, ...attributes }),
    ],
    out: 'y',
  }))
}

export { onnx, wia }

/** Tensors of the shapes the graph asks for. Nothing can be read. */
export function readerFor(graph: JsonObject): ModelReader {
  const tensors = new Map(
    (graph.initializers as { name: string; shape: number[] }[]).map(({ name, shape }) => {
      const cols = shape.at(-1) ?? 1
      const rows = shape.slice(0, -1).reduce((a, b) => a * b, 1)
      const byteLength = rows * cols * 4
      return [
        name,
        {
          ...{ name, shape, dtype: 'float32' as const, rows, cols, byteLength },
          encoding: { kind: 'plain' as const, dtype: 'float32' as const },
          segments: [{ source: 0, offset: 0, length: byteLength, rowStart: 0, rows }],
        },
      ]
    }),
  )
  return {
    ...{ format: 'wia', path: 'hostile', tensors, architecture: graph, config: {}, metadata: {}, adapters: [] },
    ...{ tokenizerFiles: new Map(), identity: '', bytesRead: 0, close: async () => undefined },
    sources: [{ size: 2 ** 52, id: 'hostile', read: () => new Uint8Array(0), close: async () => undefined }],
  } as unknown as ModelReader
}
