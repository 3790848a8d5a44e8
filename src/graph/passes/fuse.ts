// Operator fusion. x·Sigmoid(x) → Swish(x); Swish(gate)·up → SwiGLU(gate, up); a + Linear(x) → Linear(x, addend a), and the same
// for MoE. A node is absorbed only when nobody else reads what it made. Pure: Graph → Graph with the same outputs.
import type { Graph, GraphNode } from '../graph.ts'
import { sameType, type ValueType } from '../op.ts'
import { validateGraph } from '../validate.ts'
import { Rewrite } from './rewrite.ts'

/** Validates first, because a scalar looks like any other operand until its shape is known. */
export function fuse(graph: Graph): Graph {
  const { types } = validateGraph(graph)
  const rewrite = new Rewrite(graph)
  const latest = Math.max(0, ...graph.opsets.filter((o) => o.domain === 'ai.onnx').map((o) => o.version))
  const ours = graph.opsets.some((o) => o.domain === 'ai.wia')
  rewrite.each((node) => {
    const op = `${node.domain}.${node.op}`
    if (op === 'ai.onnx.Mul')
      return (ours && asSwiGLU(node, rewrite, types)) || (latest >= 24 && asSwish(node, rewrite)) || node
    if (op === 'ai.onnx.Add') return asAccumulate(node, rewrite, types) ?? node
    return node
  })
  return rewrite.result()
}

type Types = ReadonlyMap<string, ValueType>

/** x·Sigmoid(x) */
function asSwish(node: GraphNode, rewrite: Rewrite): GraphNode | undefined {
  for (const [x, s] of pairs(node)) {
    const sigmoid = rewrite.maker(s, 'ai.onnx.Sigmoid')
    if (sigmoid?.inputs[0] !== x || !rewrite.private(s)) continue
    rewrite.remove(s)
    return { ...node, op: 'Swish', inputs: [x], attributes: {} }
  }
  return undefined
}

/** Swish(gate)·up. Swish(x)·y with alpha other than 1 stays. */
function asSwiGLU(node: GraphNode, rewrite: Rewrite, types: Types): GraphNode | undefined {
  for (const [up, s] of pairs(node)) {
    const swish = rewrite.maker(s, 'ai.onnx.Swish')
    if (swish === undefined || !rewrite.private(s) || (swish.attributes.alpha ?? 1) !== 1) continue
    const gate = swish.inputs[0]!
    // A scalar factor is no `up`.
    if (!sameType(types.get(gate)!, types.get(up)!) || types.get(up)!.shape.length !== 2) continue
    rewrite.remove(s)
    return { ...node, domain: 'ai.wia', op: 'SwiGLU', inputs: [gate, up], attributes: {} }
  }
  return undefined
}

/** a + Linear(x) or a + MoE(x): the result is added to `a` where it lies. */
function asAccumulate(node: GraphNode, rewrite: Rewrite, types: Types): GraphNode | undefined {
  for (const [addend, value] of pairs(node)) {
    if (!rewrite.private(value) || addend === value || !sameType(types.get(addend)!, types.get(value)!)) continue
    const linear = rewrite.maker(value, 'ai.wia.Linear')
    const moe = rewrite.maker(value, 'ai.wia.MoE')
    const free = linear?.inputs.length === 1 ? linear : moe?.inputs.length === 2 ? moe : undefined
    if (free === undefined) continue
    rewrite.remove(value)
    // Takes the place and the name of the Add: both operands exist there.
    return { ...free, name: node.name, inputs: [...free.inputs, addend], outputs: node.outputs }
  }
  return undefined
}

function pairs(node: GraphNode): [string, string][] {
  const [a, b] = node.inputs as [string, string]
  return [
    [a, b],
    [b, a],
  ]
}
