// Constant folding. Constants are scalars (Constant nodes): arithmetic between them is done here in float64, a constant factor of a
// Linear becomes its alpha, of an embedding its scale; ·1, +0 and Identity vanish. Pure: Graph → Graph with the same outputs.
import type { Graph, GraphNode } from '../graph.ts'
import { Rewrite } from './rewrite.ts'

export function fold(graph: Graph): Graph {
  const rewrite = new Rewrite(graph)
  const ours = graph.opsets.some((o) => o.domain === 'ai.wia')
  rewrite.each((node) => foldNode(node, rewrite, ours))
  return rewrite.result()
}

function foldNode(node: GraphNode, rewrite: Rewrite, ours: boolean): GraphNode | undefined {
  if (node.domain !== 'ai.onnx') return node
  const values = node.inputs.map((v) => constantOf(v, rewrite))
  if (values.length > 0 && values.every((v) => v !== undefined)) {
    const result = evaluate(node.op, values)
    // An overflow is left for the reader of the message, not turned into infinity.
    if (result !== undefined && Number.isFinite(result))
      return { ...node, op: 'Constant', inputs: [], attributes: { value_float: result } }
    return node
  }
  if (node.op === 'Identity') return bypass(node, node.inputs[0]!, rewrite)
  if (node.op !== 'Add' && node.op !== 'Mul') return node
  const at = values.findIndex((v) => v !== undefined)
  if (at < 0) return node
  const [c, x] = [values[at]!, node.inputs[1 - at]!]
  if (c === (node.op === 'Mul' ? 1 : 0)) return bypass(node, x, rewrite)
  return node.op === 'Mul' && ours ? absorb(node, x, c, rewrite) : node
}

function constantOf(value: string, rewrite: Rewrite): number | undefined {
  return rewrite.maker(value, 'ai.onnx.Constant')?.attributes.value_float as number | undefined
}

function evaluate(op: string, v: readonly number[]): number | undefined {
  if (op === 'Add') return v[0]! + v[1]!
  if (op === 'Mul') return v[0]! * v[1]!
  if (op === 'Identity') return v[0]
  if (op === 'Sigmoid') return 1 / (1 + Math.exp(-v[0]!))
  if (op === 'Swish') return v[0]! / (1 + Math.exp(-v[0]!))
  return undefined
}

/** Readers of the node read its input instead. A graph output keeps its name, so there the node stays. */
function bypass(node: GraphNode, x: string, rewrite: Rewrite): GraphNode | undefined {
  if (rewrite.isOutput(node.outputs[0]!)) return { ...node, op: 'Identity', inputs: [x], attributes: {} }
  rewrite.rename(node.outputs[0]!, x)
  return undefined
}

/** c·Linear(x) → Linear with alpha; c·Embedding → Embedding with scale. */
function absorb(node: GraphNode, x: string, c: number, rewrite: Rewrite): GraphNode {
  if (!rewrite.private(x)) return node
  const maker = rewrite.maker(x)
  const op = maker === undefined ? '' : `${maker.domain}.${maker.op}`
  const here = { name: node.name, outputs: node.outputs }
  if (op === 'ai.wia.Linear' && maker!.inputs.length === 1 && maker!.weights.length === 1) {
    const alpha = c * ((maker!.attributes.alpha as number | undefined) ?? 1)
    if (!Number.isFinite(alpha)) return node
    rewrite.remove(x)
    return { ...maker!, ...here, attributes: { ...maker!.attributes, alpha } }
  }
  if ((op === 'ai.onnx.Gather' && maker!.weights.length === 1) || op === 'ai.wia.Embedding') {
    const scale = c * ((maker!.attributes.scale as number | undefined) ?? 1)
    if (!Number.isFinite(scale)) return node
    rewrite.remove(x)
    return { ...maker!, ...here, domain: 'ai.wia', op: 'Embedding', attributes: { scale } }
  }
  return node
}
