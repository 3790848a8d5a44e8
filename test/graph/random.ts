// Random small graphs from a seed: a residual stream with every operator that passes rewrite, values read twice, values read never.
import type { Graph, GraphNode } from '#sluice/graph/graph.js'
import type { Matrix } from './evaluate.ts'
import type { Weight } from './interpreter.ts'

/** mulberry32: uniform in [0, 1). */
export function randomFrom(seed: number): () => number {
  let a = seed >>> 0
  return () => {
    a = (a + 0x6d2b79f5) >>> 0
    let t = Math.imul(a ^ (a >>> 15), 1 | a)
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296
  }
}

export interface RandomGraph {
  readonly graph: Graph
  readonly weights: Map<string, Matrix>
  readonly vocabulary: number
}

export const OPSETS = [
  { domain: 'ai.onnx', version: 24 },
  { domain: 'ai.wia', version: 14 },
]
export const INPUTS = [
  { name: 'input_ids', dtype: 'int64', shape: ['tokens'] },
  { name: 'position_ids', dtype: 'int64', shape: ['tokens'] },
  { name: 'logit_indices', dtype: 'int64', shape: ['logit_tokens'] },
]

/** runnable: only what compile can lower (constants and Mul where they fold or fuse). */
export function randomGraph(seed: number, runnable: boolean): RandomGraph {
  const random = randomFrom(seed)
  const pick = <T>(list: readonly T[]): T => list[Math.floor(random() * list.length)]!
  const nodes: GraphNode[] = []
  const shapes: { name: string; shape: number[] }[] = []
  const weights = new Map<string, Matrix>()
  const width = new Map<string, number>()
  const scalars: string[] = []
  const widths = [4, 6, 64]
  let n = 0

  function weight(shape: number[]): string {
    const name = `w${shapes.length}`
    shapes.push({ name, shape })
    const [rows, cols] = shape.length === 2 ? (shape as [number, number]) : [1, shape[0]!]
    weights.set(
      name,
      Array.from({ length: rows }, () => Array.from({ length: cols }, () => (random() - 0.5) / Math.sqrt(cols / 4))),
    )
    return name
  }
  function node(
    domain: string,
    op: string,
    inputs: string[],
    w: number | undefined,
    names: string[] = [],
    attributes: Record<string, number> = {},
  ): string {
    const name = `v${n++}`
    nodes.push({ name, op, domain, inputs, outputs: [name], attributes, weights: names })
    if (w === undefined) scalars.push(name)
    else width.set(name, w)
    return name
  }
  const onnx = (op: string, inputs: string[], w?: number, attributes = {}) =>
    node('ai.onnx', op, inputs, w, [], attributes)
  const linear = (x: string, out: number) =>
    node(
      'ai.wia',
      'Linear',
      [x],
      out,
      [weight([out, width.get(x)!]), ...(random() < 0.3 ? [weight([out])] : [])],
      random() < 0.5 ? { alpha: random() * 2 } : {},
    )
  const factor = () => onnx('Constant', [], undefined, { value_float: pick([0.5, 1, 2, -1]) })

  const hidden = pick(widths)
  const vocabulary = pick([5, 64])
  let embed = node('ai.onnx', 'Gather', ['input_ids'], hidden, [weight([11, hidden])])
  if (random() < 0.5) {
    const raw = embed
    embed = onnx('Mul', random() < 0.5 ? [raw, factor()] : [factor(), raw], hidden)
    width.delete(raw) // must have one reader to be folded
  }
  const same = (x: string) => pick([...width.keys()].filter((v) => width.get(v) === width.get(x)))
  for (let i = 0; i < 4 + random() * 12; i++) {
    const x = pick([...width.keys()])
    const w = width.get(x)!
    const kind = random()
    if (kind < 0.25) linear(x, pick(widths))
    else if (kind < 0.4) onnx('Add', [x, linear(same(x), w)], w)
    else if (kind < 0.5) onnx('Add', [x, same(x)], w)
    else if (kind < 0.6) node('ai.onnx', 'RMSNormalization', [x], w, [weight([w])], { epsilon: 0.01 })
    else if (kind < 0.65) onnx('Identity', [x], w)
    else if (kind < 0.8) {
      const up = same(x)
      const inner = random() < 0.5 ? onnx('Swish', [x], w) : onnx('Sigmoid', [x], w)
      const gate = nodes.at(-1)!.op === 'Swish' ? inner : onnx('Mul', random() < 0.5 ? [x, inner] : [inner, x], w)
      onnx('Mul', random() < 0.5 ? [gate, up] : [up, gate], w)
      // A gate that others read cannot be fused away, and has no step of its own.
      if (runnable) for (const v of [inner, gate]) width.delete(v)
    } else if (kind < 0.9) {
      const y = node('ai.wia', 'Linear', [x], 6, [weight([6, w])])
      onnx('Mul', [y, factor()], 6)
      if (runnable) width.delete(y)
    } else if (!runnable) {
      const c = onnx(
        'Add',
        [
          factor(),
          onnx(pick(['Sigmoid', 'Swish', 'Identity']), [pick(scalars.length > 0 ? scalars : [factor()])], undefined),
        ],
        undefined,
      )
      onnx(pick(['Add', 'Mul']), [x, c], w)
    }
  }
  const last = pick([...width.keys()].slice(-3))
  const selected = node('ai.onnx', 'Gather', [last, 'logit_indices'], width.get(last)!)
  const logits = linear(selected, vocabulary)
  const graph: Graph = {
    name: `random ${seed}`,
    opsets: OPSETS,
    inputs: INPUTS,
    outputs: [{ name: logits, dtype: 'float32', shape: ['logit_tokens', vocabulary] }],
    nodes,
    weights: shapes,
    contextLength: 64,
  }
  return { graph, weights, vocabulary }
}

export function asWeights(weights: ReadonlyMap<string, Matrix>): (name: string) => Weight {
  return (name) => {
    const m = weights.get(name)!
    return { shape: [m.length, m[0]!.length], data: Float64Array.from(m.flat()) }
  }
}
