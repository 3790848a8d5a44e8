// Collects the nodes and weights of a graph. A node with one output gives it its own name.
import type { GraphNode } from '../graph/graph.ts'

type Attributes = GraphNode['attributes']

export class GraphBuilder {
  readonly nodes: GraphNode[] = []
  readonly weights: { name: string; shape: number[] }[] = []

  push(node: GraphNode): void {
    this.nodes.push(node)
  }

  weight(name: string, shape: number[]): void {
    this.weights.push({ name, shape })
  }

  node(
    domain: string,
    op: string,
    name: string,
    inputs: string[],
    weights: string[] = [],
    attributes: Attributes = {},
  ): string {
    this.nodes.push({ name, op, domain, inputs, outputs: [name], attributes, weights })
    return name
  }

  /** `groups` > 1: a norm of each of that many equal parts. */
  norm(name: string, x: string, weight: string, width: number, epsilon: number, groups = 1): string {
    this.weight(weight, [width / groups])
    return this.node('ai.onnx', 'RMSNormalization', name, [x], [weight], {
      axis: -1,
      epsilon,
      ...(groups === 1 ? {} : { groups }),
    })
  }

  /** W is [out, width], named `<module>.weight`. */
  linear(
    name: string,
    x: string,
    module: string,
    out: number,
    width: number,
    bias: boolean,
    attributes: Attributes,
  ): string {
    this.weight(`${module}.weight`, [out, width])
    if (bias) this.weight(`${module}.bias`, [out])
    const weights = [`${module}.weight`, ...(bias ? [`${module}.bias`] : [])]
    return this.node('ai.wia', 'Linear', name, [x], weights, attributes)
  }
}
