// Who produces and who reads a value, and an order in which every node comes after those it reads from.
import { ValidationError } from '../base/errors.ts'
import type { Graph, GraphNode } from './graph.ts'

/** Index of the node that makes each value. Throws GRAPH_INVALID when two do, or a graph input is overwritten. */
export function producers(graph: Graph): Map<string, number> {
  const made = new Map<string, number>()
  const inputs = new Set(graph.inputs.map((v) => v.name))
  graph.nodes.forEach((node, i) => {
    for (const value of node.outputs) {
      if (made.has(value) || inputs.has(value))
        throw new ValidationError('GRAPH_INVALID', {
          what: 'a value is produced twice',
          where: `node ${node.name}`,
          got: value,
        })
      made.set(value, i)
    }
  })
  return made
}

/** Number of readers of each value; a graph output counts as one. */
export function readers(graph: Graph): Map<string, number> {
  const count = new Map<string, number>()
  const see = (value: string) => count.set(value, (count.get(value) ?? 0) + 1)
  for (const node of graph.nodes) for (const value of node.inputs) see(value)
  for (const output of graph.outputs) see(output.name)
  return count
}

/** The nodes in execution order; a list that is in order already stays as it is. Throws GRAPH_INVALID, naming a cycle. */
export function executionOrder(graph: Graph): readonly GraphNode[] {
  const made = producers(graph)
  const { nodes } = graph
  const state = new Uint8Array(nodes.length) // 1: on the path, 2: done
  const order: GraphNode[] = []
  // Depth first with a stack of our own: graphs may be deeper than the call stack.
  const path: { node: number; next: number }[] = []
  for (let start = 0; start < nodes.length; start++) {
    if (state[start] === 2) continue
    path.push({ node: start, next: 0 })
    state[start] = 1
    while (path.length > 0) {
      const top = path.at(-1)!
      const node = nodes[top.node]!
      if (top.next === node.inputs.length) {
        state[top.node] = 2
        order.push(node)
        path.pop()
        continue
      }
      const from = made.get(node.inputs[top.next++]!)
      if (from === undefined || state[from] === 2) continue
      if (state[from] === 1)
        failCycle(
          path.map((p) => p.node),
          from,
          nodes,
        )
      state[from] = 1
      path.push({ node: from, next: 0 })
    }
  }
  return order
}

function failCycle(path: readonly number[], back: number, nodes: readonly GraphNode[]): never {
  const cycle = path.slice(path.indexOf(back)).reverse()
  const names = cycle.map((i) => nodes[i]!.name)
  const shown = names.length > 8 ? [...names.slice(0, 8), `… ${names.length - 8} more`] : names
  throw new ValidationError('GRAPH_INVALID', {
    what: 'the graph has a cycle',
    got: `${shown.join(' → ')} → ${names[0]}`,
    details: { nodes: names.slice(0, 100) },
  })
}
