// Evaluates a graph without attention or experts operator by operator in float64: what a pass must not change. Written from
// docs/GRAPH.md, apart from the lowering. One row a token; scalars are constants.
import type { Graph, GraphNode } from '#sluice/graph/graph.js'

export type Matrix = number[][]

/** weights: name → matrix [out][in]. inputs: name → indices or positions. Returns the outputs by name. */
export function evaluate(
  graph: Graph,
  weights: ReadonlyMap<string, Matrix>,
  inputs: ReadonlyMap<string, number[]>,
): Map<string, Matrix> {
  const values = new Map<string, Matrix | number>()
  for (const node of graph.nodes) values.set(node.outputs[0]!, apply(node))
  return new Map(graph.outputs.map((o) => [o.name, values.get(o.name) as Matrix]))

  function operand(name: string): Matrix | number {
    const value = values.get(name)
    if (value === undefined) throw new Error(`${name} is read before it is made`)
    return value
  }

  function apply(node: GraphNode): Matrix | number {
    const w = node.weights.map((name) => weights.get(name)!)
    const a = node.attributes as Record<string, number>
    switch (node.op) {
      case 'Gather':
        if (w.length === 0) return inputs.get(node.inputs[1]!)!.map((i) => (operand(node.inputs[0]!) as Matrix)[i]!)
        return inputs.get(node.inputs[0]!)!.map((i) => w[0]![i]!)
      case 'Embedding':
        return inputs.get(node.inputs[0]!)!.map((i) => w[0]![i]!.map((v) => v * (a.scale ?? 1)))
      case 'Constant':
        return a.value_float!
      case 'Identity':
        return operand(node.inputs[0]!)
      case 'Sigmoid':
        return each(operand(node.inputs[0]!), (v) => 1 / (1 + Math.exp(-v)))
      case 'Swish':
        return each(operand(node.inputs[0]!), (v) => v / (1 + Math.exp(-v)))
      case 'Add':
        return both(operand(node.inputs[0]!), operand(node.inputs[1]!), (x, y) => x + y)
      case 'Mul':
        return both(operand(node.inputs[0]!), operand(node.inputs[1]!), (x, y) => x * y)
      case 'SwiGLU':
        return both(operand(node.inputs[0]!), operand(node.inputs[1]!), (g, u) => (g / (1 + Math.exp(-g))) * u)
      case 'RMSNormalization':
        return (operand(node.inputs[0]!) as Matrix).map((x) => {
          const r = 1 / Math.sqrt(x.reduce((s, v) => s + v * v, 0) / x.length + (a.epsilon ?? 1e-5))
          return x.map((v, i) => v * r * w[0]![0]![i]!)
        })
      case 'Linear': {
        const product = (operand(node.inputs[0]!) as Matrix).map((x) =>
          w[0]!.map((row, r) => (a.alpha ?? 1) * row.reduce((s, v, c) => s + v * x[c]!, 0) + (w[1]?.[0]?.[r] ?? 0)),
        )
        return node.inputs[1] === undefined ? product : both(product, operand(node.inputs[1]!), (x, y) => x + y)
      }
      default:
        throw new Error(node.op)
    }
  }
}

function each(x: Matrix | number, f: (v: number) => number): Matrix | number {
  return typeof x === 'number' ? f(x) : x.map((row) => row.map(f))
}

function both(x: Matrix | number, y: Matrix | number, f: (a: number, b: number) => number): Matrix | number {
  if (typeof x === 'number') return typeof y === 'number' ? f(x, y) : each(y, (v) => f(x, v))
  if (typeof y === 'number') return each(x, (v) => f(v, y))
  return x.map((row, t) => row.map((v, i) => f(v, y[t]![i]!)))
}
