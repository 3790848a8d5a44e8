// What rewriting passes share: looking up who makes and who reads a value, and building the graph that results.
import type { Graph, GraphNode } from '../graph.ts'
import { executionOrder, readers } from '../order.ts'

/** A graph being rewritten: nodes by the value they make, kept in execution order. */
export class Rewrite {
  readonly #graph: Graph
  readonly #order: (GraphNode | undefined)[]
  readonly #index = new Map<string, number>()
  readonly #readers: Map<string, number>
  readonly #renamed = new Map<string, string>()

  constructor(graph: Graph) {
    this.#graph = graph
    this.#order = [...executionOrder(graph)]
    this.#order.forEach((node, i) => {
      for (const value of node!.outputs) this.#index.set(value, i)
    })
    this.#readers = readers(graph)
  }

  /** Calls `visit` for each node in execution order, inputs renamed; what it returns takes the node's place. */
  each(visit: (node: GraphNode) => GraphNode | undefined): void {
    for (let i = 0; i < this.#order.length; i++) {
      const node = this.#order[i]
      if (node === undefined) continue
      this.#order[i] = visit(this.#apply(node))
    }
  }

  /** The node that makes a value, in its present form. */
  maker(value: string | undefined, op?: string): GraphNode | undefined {
    const i = value === undefined ? undefined : this.#index.get(value)
    const node = i === undefined ? undefined : this.#order[i]
    return node === undefined || (op !== undefined && `${node.domain}.${node.op}` !== op)
      ? undefined
      : this.#apply(node)
  }

  /** Only one node reads the value, and it is not a graph output. */
  private(value: string): boolean {
    return this.#readers.get(value) === 1 && !this.isOutput(value)
  }

  isOutput(value: string): boolean {
    return this.#graph.outputs.some((o) => o.name === value)
  }

  /** Takes the node that makes a value out. Its readers must have been rewritten. */
  remove(value: string): void {
    this.#order[this.#index.get(value)!] = undefined
  }

  /** Readers of `from` read `to` instead. */
  rename(from: string, to: string): void {
    this.#renamed.set(from, to)
    this.#readers.set(to, (this.#readers.get(to) ?? 0) + (this.#readers.get(from) ?? 0) - 1)
  }

  result(): Graph {
    const nodes = this.#order.filter((n) => n !== undefined).map((n) => this.#apply(n))
    return { ...this.#graph, nodes }
  }

  #apply(node: GraphNode): GraphNode {
    if (!node.inputs.some((v) => this.#renamed.has(v))) return node
    return { ...node, inputs: node.inputs.map((v) => this.#final(v)) }
  }

  #final(value: string): string {
    let v = value
    for (let next = this.#renamed.get(v); next !== undefined; next = this.#renamed.get(v)) v = next
    return v
  }
}
