// The `edges` of architecture.json say again what inputs and outputs of nodes say. They are written, and checked when they are there.
import { ValidationError } from '../base/errors.ts'
import type { Graph } from './graph.ts'
import { producers } from './order.ts'

/** Names at both ends: a node, a graph input (from) or a graph output (to). */
export interface Edge {
  readonly from: string
  readonly to: string
}

/** One edge a pair of neighbours, in the order of the readers. */
export function edgesOf(graph: Graph): Edge[] {
  const made = producers(graph)
  const edges = new Map<string, Edge>()
  const add = (value: string, to: string) => {
    const i = made.get(value)
    const edge = { from: i === undefined ? value : graph.nodes[i]!.name, to }
    edges.set(keyOf(edge), edge)
  }
  for (const node of graph.nodes) for (const value of node.inputs) add(value, node.name)
  for (const output of graph.outputs) add(output.name, output.name)
  return [...edges.values()]
}

/** Edges among nodes must be those the values give; edges from inputs and to outputs may be left out. Throws GRAPH_INVALID. */
export function checkEdges(graph: Graph, given: readonly Edge[]): void {
  const real = new Map(edgesOf(graph).map((e) => [keyOf(e), e]))
  const seen = new Set(given.map(keyOf))
  const wrong = given.find((e) => !real.has(keyOf(e)))
  if (wrong !== undefined) fail(graph, 'an edge joins nodes that share no value', wrong)
  const nodes = new Set(graph.nodes.map((n) => n.name))
  for (const [key, edge] of real)
    if (!seen.has(key) && nodes.has(edge.from) && nodes.has(edge.to)) fail(graph, 'an edge is missing', edge)
}

function keyOf(edge: Edge): string {
  return JSON.stringify([edge.from, edge.to])
}

function fail(graph: Graph, what: string, edge: Edge): never {
  throw new ValidationError('GRAPH_INVALID', {
    what,
    where: `graph ${graph.name}, edges`,
    got: `${edge.from} → ${edge.to}`,
  })
}
