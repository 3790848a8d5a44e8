// Dead code elimination: only what an output depends on stays, nodes and initializers. Pure: Graph → Graph with the same outputs.
import type { Graph } from '../graph.ts'
import { executionOrder } from '../order.ts'

export function eliminateDeadCode(graph: Graph): Graph {
  const wanted = new Set(graph.outputs.map((o) => o.name))
  const nodes = executionOrder(graph)
    .toReversed()
    .filter((node) => {
      if (!node.outputs.some((v) => wanted.has(v))) return false
      for (const v of node.inputs) wanted.add(v)
      return true
    })
    .reverse()
  const used = new Set(nodes.flatMap((n) => n.weights))
  return { ...graph, nodes, weights: graph.weights.filter((w) => used.has(w.name)) }
}
