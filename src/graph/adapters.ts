// Low-rank adapters as a graph rewrite: y = W x + scale·B(A x) beside every Linear, and every
// expert of an MoE, that uses the target weight.
import { ValidationError } from '../base/errors.ts'
import type { Graph, GraphNode } from './graph.ts'
import { executionOrder } from './order.ts'

/** One pair for one weight. a and b are names the engine knows adapter matrices by; they must not be names of the graph. */
export interface AdapterTarget {
  /** Weight name in the graph. */
  readonly target: string
  /** A, [rank, in]. */
  readonly a: string
  /** B, [out, rank]. */
  readonly b: string
  readonly rank: number
  /** alpha/rank (or its rsLoRA form) times the scale of the request. */
  readonly scale: number
}

/**
 * Adds Linear(A) and Linear(B, alpha = scale·alpha of the base, addend = base result) after each Linear that uses a target. Several adapters on one
 * weight are added in list order. The base's nodes stay what they are but for the name of their output, so what was fused
 * stays fused.
 * Throws ADAPTER_INVALID (name taken, rank or scale impossible), ADAPTER_NO_MATCH (no Linear uses the target),
 * ADAPTER_UNSUPPORTED (the target is an embedding, a norm or a bias).
 */
export function applyAdapters(graph: Graph, adapters: readonly AdapterTarget[]): Graph {
  if (adapters.length === 0) return graph
  const shapes = new Map(graph.weights.map((w) => [w.name, w.shape]))
  const weights = [...graph.weights]
  const users = new Map<string, GraphNode[]>()
  for (const node of graph.nodes) for (const name of node.weights) users.set(name, [...(users.get(name) ?? []), node])
  const byTarget = new Map<string, AdapterTarget[]>()
  for (const adapter of adapters) {
    const shape = check(adapter, users.get(adapter.target) ?? [], shapes)
    for (const added of [
      { name: adapter.a, shape: [adapter.rank, shape[1]!] },
      { name: adapter.b, shape: [shape[0]!, adapter.rank] },
    ]) {
      if (shapes.has(added.name)) fail('ADAPTER_INVALID', 'a weight of that name exists', adapter.target, added.name)
      shapes.set(added.name, added.shape)
      weights.push(added)
    }
    byTarget.set(adapter.target, [...(byTarget.get(adapter.target) ?? []), adapter])
  }
  const nodes = executionOrder(graph).flatMap((node) => {
    if (isOp(node, 'MoE')) return [adaptExperts(node, byTarget)]
    const here = isOp(node, 'Linear') ? byTarget.get(node.weights[0]!) : undefined
    return here === undefined ? [node] : adapt(node, here)
  })
  return { ...graph, nodes, weights }
}

/** Experts run inside the MoE node, so their adapters become weights of it. */
function adaptExperts(node: GraphNode, byTarget: ReadonlyMap<string, readonly AdapterTarget[]>): GraphNode {
  const slots = [...((node.attributes.adapter_slots as number[] | undefined) ?? [])]
  const scales = [...((node.attributes.adapter_scales as number[] | undefined) ?? [])]
  const weights = [...node.weights]
  expertWeights(node).forEach((weight, slot) => {
    for (const adapter of byTarget.get(weight) ?? []) {
      slots.push(slot)
      scales.push(adapter.scale)
      weights.push(adapter.a, adapter.b)
    }
  })
  if (weights.length === node.weights.length) return node
  return { ...node, weights, attributes: { ...node.attributes, adapter_scales: scales, adapter_slots: slots } }
}

/** The weights of an MoE without those of its adapters. */
function expertWeights(node: GraphNode): readonly string[] {
  const slots = (node.attributes.adapter_slots as number[] | undefined) ?? []
  return node.weights.slice(0, node.weights.length - 2 * slots.length)
}

function adapt(node: GraphNode, adapters: readonly AdapterTarget[]): GraphNode[] {
  const result = node.outputs[0]!
  // An adapter changes W itself, so the Linear's own factor (a folded constant, say) applies to it too.
  const factor = (node.attributes.alpha as number | undefined) ?? 1
  let before = `${result}#base`
  const out: GraphNode[] = [{ ...node, outputs: [before] }]
  adapters.forEach((adapter, i) => {
    const linear = { op: 'Linear', domain: 'ai.wia' } as const
    const low = `${result}#a${i}`
    const after = i === adapters.length - 1 ? result : `${result}#b${i}`
    out.push(
      {
        ...linear,
        name: `${node.name}#a${i}`,
        inputs: [node.inputs[0]!],
        outputs: [low],
        attributes: {},
        weights: [adapter.a],
      },
      {
        ...linear,
        name: `${node.name}#b${i}`,
        inputs: [low, before],
        outputs: [after],
        attributes: { alpha: adapter.scale * factor },
        weights: [adapter.b],
      },
    )
    before = after
  })
  return out
}

function check(
  adapter: AdapterTarget,
  users: readonly GraphNode[],
  shapes: ReadonlyMap<string, readonly number[]>,
): readonly number[] {
  const { target, rank, scale } = adapter
  if (!Number.isSafeInteger(rank) || rank < 1) fail('ADAPTER_INVALID', 'rank is not a count', target, rank)
  if (!Number.isFinite(scale)) fail('ADAPTER_INVALID', 'scale is not finite', target, scale)
  const applies = (n: GraphNode) =>
    (isOp(n, 'Linear') && n.weights[0] === target) || (isOp(n, 'MoE') && expertWeights(n).includes(target))
  if (users.some(applies)) return shapes.get(target)!
  if (users.length === 0) fail('ADAPTER_NO_MATCH', 'the model has no weight of that name', target, undefined)
  return fail('ADAPTER_UNSUPPORTED', `an adapter on ${users[0]!.op} is not implemented`, target, undefined)
}

function isOp(node: GraphNode, op: string): boolean {
  return node.domain === 'ai.wia' && node.op === op
}

function fail(
  code: 'ADAPTER_INVALID' | 'ADAPTER_NO_MATCH' | 'ADAPTER_UNSUPPORTED',
  what: string,
  target: string,
  got: unknown,
): never {
  throw new ValidationError(code, { what, where: `adapter for ${target}`, got, details: { target } })
}

/**
 * Weights whose rows a GGUF converter reordered within each head: row h·d + j·d/2 + i of the family's own order is stored as row
 * h·d + 2i + j (d rows a head, j = 0 | 1). Value: number of heads. An adapter in the family's order must reorder the rows of B alike.
 */
export function permutedRows(graph: Graph): ReadonlyMap<string, number> {
  const found = new Map<string, number>()
  for (const node of graph.nodes) {
    const heads = node.attributes.permuted_heads
    if (isOp(node, 'Linear') && typeof heads === 'number' && heads > 0) found.set(node.weights[0]!, heads)
  }
  return found
}
