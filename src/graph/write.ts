// Graph → the object of architecture.json, ready for canonical JSON: nodes in execution order, every dimension known or symbolic.
import type { JsonObject } from '../base/json.ts'
import { edgesOf } from './edges.ts'
import type { Graph, ValueInfo } from './graph.ts'
import { validateGraph } from './validate.ts'

/** Validates first: throws GRAPH_INVALID, OP_UNSUPPORTED. readGraph gives the same graph back. */
export function writeGraph(graph: Graph): JsonObject {
  const { graph: ordered, types } = validateGraph(graph)
  // Shapes as inferred, so that a −1 that was read is never written.
  const value = (v: ValueInfo) => ({ name: v.name, dtype: v.dtype, shape: [...types.get(v.name)!.shape] })
  return {
    name: ordered.name,
    context_length: ordered.contextLength,
    opsets: ordered.opsets.map((o) => ({ domain: o.domain, version: o.version })),
    inputs: ordered.inputs.map(value),
    outputs: ordered.outputs.map(value),
    initializers: ordered.weights.map((w) => ({ name: w.name, shape: [...w.shape] })),
    nodes: ordered.nodes.map((n) => ({
      name: n.name,
      op: n.op,
      domain: n.domain,
      inputs: [...n.inputs],
      outputs: [...n.outputs],
      attributes: { ...n.attributes },
      weights: [...n.weights],
    })),
    edges: edgesOf(ordered).map((e) => ({ from: e.from, to: e.to })),
  }
}
