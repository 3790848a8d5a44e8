// Everything a graph must fulfil before it may be compiled: unique names, no cycle, known operators, attributes of the right type,
// shapes that fit. What is accepted is specified in docs/GRAPH.md.
import { ValidationError } from '../base/errors.ts'
import { MAX_TENSORS } from '../base/limits.ts'
import { elementCount } from '../base/shape.ts'
import type { Graph, GraphNode, ValueInfo } from './graph.ts'
import {
  type Arity,
  failNode,
  type NodeView,
  type OpDefinition,
  readAttributes,
  SYMBOLS,
  TOKENS,
  type ValueType,
} from './op.ts'
import { executionOrder } from './order.ts'
import { checkOpset, findOp, isCustomOp } from './registry.ts'

/** A 1,000-layer transformer has under 20,000 nodes; passes are at worst quadratic in this. */
export const MAX_GRAPH_NODES = 50_000

export interface CheckedNode {
  readonly view: NodeView
  /** Undefined for a registered custom operator. */
  readonly op: OpDefinition | undefined
}

export interface CheckedGraph {
  /** The same graph with its nodes in execution order. */
  readonly graph: Graph
  readonly nodes: readonly CheckedNode[]
  /** Type of every value. */
  readonly types: ReadonlyMap<string, ValueType>
  /** Sentences about what was accepted and should not be. */
  readonly warnings: readonly string[]
}

/** Throws GRAPH_INVALID, OP_UNSUPPORTED or FORMAT_INVALID (a shape past 2^53). Pure. */
export function validateGraph(graph: Graph): CheckedGraph {
  const invalid = (what: string, got: unknown): never => {
    throw new ValidationError('GRAPH_INVALID', { what, where: `graph ${graph.name}`, got })
  }
  if (graph.nodes.length > MAX_GRAPH_NODES) invalid(`more than ${MAX_GRAPH_NODES} nodes`, graph.nodes.length)
  if (!Number.isSafeInteger(graph.contextLength) || graph.contextLength < 1)
    invalid('contextLength is not a count', graph.contextLength)
  const reads = graph.nodes.reduce((n, node) => n + node.weights.length, 0)
  if (reads > MAX_TENSORS) invalid(`nodes read more than ${MAX_TENSORS} weights`, reads)
  unique(graph.nodes, 'node', invalid)
  unique(graph.inputs, 'input', invalid)
  unique(graph.outputs, 'output', invalid)
  unique(graph.weights, 'initializer', invalid)
  const opsets = opsetMap(graph, invalid)
  const warnings: string[] = []

  const weights = new Map<string, readonly number[]>()
  for (const w of graph.weights) {
    if (elementCount(w.shape, `initializer ${w.name}`) === 0)
      invalid('an initializer is empty', `${w.name} [${w.shape.join(', ')}]`)
    weights.set(w.name, w.shape)
  }
  const types = new Map<string, ValueType>()
  for (const input of graph.inputs) types.set(input.name, inputType(input, warnings, invalid))

  const ordered = { ...graph, nodes: executionOrder(graph) }
  const nodes = ordered.nodes.map((node) => checkNode(node, opsets, types, weights))
  checkOutputs(graph, types, warnings, invalid)
  const used = new Set(graph.nodes.flatMap((n) => n.weights))
  const unused = graph.weights.filter((w) => !used.has(w.name)).map((w) => w.name)
  if (unused.length > 0)
    warnings.push(`${unused.length} initializers are used by no node: ${unused.slice(0, 5).join(', ')}`)
  return { graph: ordered, nodes, types, warnings }
}

type Invalid = (what: string, got: unknown) => never

function unique(list: readonly { readonly name: string }[], what: string, invalid: Invalid): void {
  const seen = new Set<string>()
  for (const { name } of list) {
    if (name === '') invalid(`${what} without a name`, '""')
    if (seen.has(name)) invalid(`two ${what}s have one name`, name)
    seen.add(name)
  }
}

function opsetMap(graph: Graph, invalid: Invalid): Map<string, number> {
  const opsets = new Map<string, number>()
  for (const { domain, version } of graph.opsets) {
    if (opsets.has(domain)) invalid('a domain has two opsets', domain)
    checkOpset(domain, version, `graph ${graph.name}`)
    opsets.set(domain, version)
  }
  return opsets
}

/** −1 stands for the tokens where it comes first; nothing else may be unknown. */
function inputType(input: ValueInfo, warnings: string[], invalid: Invalid): ValueType {
  const shape = input.shape.map((d, i) => {
    if (d !== -1) return d
    if (i !== 0)
      invalid('only the first dimension of an input may be unknown', `${input.name} [${input.shape.join(', ')}]`)
    warnings.push(`input ${input.name} has the dimension -1: read as "${TOKENS}"`)
    return TOKENS
  })
  for (const d of shape)
    if (typeof d === 'string' ? !SYMBOLS.includes(d) : !Number.isSafeInteger(d) || d < 1)
      invalid(`dimension of input ${input.name} is neither a count nor one of ${SYMBOLS.join(', ')}`, d)
  return { dtype: input.dtype, shape }
}

function checkNode(
  node: GraphNode,
  opsets: ReadonlyMap<string, number>,
  types: Map<string, ValueType>,
  weights: ReadonlyMap<string, readonly number[]>,
): CheckedNode {
  if (node.domain === '') failNode(node, 'operator has no domain')
  const inputs = node.inputs.map(
    (value) => types.get(value) ?? failNode(node, 'an input is produced by no node', { got: value }),
  )
  const shapes = node.weights.map(
    (name) => weights.get(name) ?? failNode(node, 'a weight is not among the initializers', { got: name }),
  )
  const op = findOp(node, opsets)
  if (isCustomOp(op)) failNode(node, 'shapes of a custom operator cannot be inferred', {}, 'NOT_IMPLEMENTED')
  arity(node, 'inputs', op.inputs)
  arity(node, 'outputs', op.outputs)
  arity(node, 'weights', op.weights)
  const attributes = readAttributes(node, op.attributes)
  const view: NodeView = {
    node,
    inputs,
    weights: shapes,
    int: (name) => attributes.get(name) as number,
    float: (name) => attributes.get(name) as number,
    text: (name) => attributes.get(name) as string,
    list: (name) => attributes.get(name) as readonly number[],
    fail: (what, more, code) => failNode(node, what, more, code),
  }
  op.infer(view).forEach((type, i) => void types.set(node.outputs[i]!, type))
  return { view, op }
}

function arity(node: GraphNode, what: 'inputs' | 'outputs' | 'weights', allowed: Arity): void {
  const n = node[what].length
  if (n < allowed.min || n > allowed.max)
    failNode(node, `wrong number of ${what}`, {
      expected: allowed.min === allowed.max ? allowed.min : `${allowed.min} to ${allowed.max}`,
      got: n,
    })
}

function checkOutputs(graph: Graph, types: ReadonlyMap<string, ValueType>, warnings: string[], invalid: Invalid): void {
  if (graph.outputs.length === 0) invalid('the graph has no output', 0)
  for (const output of graph.outputs) {
    const type = types.get(output.name) ?? invalid('an output is produced by no node', output.name)
    const fits =
      output.dtype === type.dtype &&
      output.shape.length === type.shape.length &&
      output.shape.every((d, i) => d === type.shape[i] || (d === -1 && typeof type.shape[i] === 'string'))
    if (!fits)
      throw new ValidationError('GRAPH_INVALID', {
        what: 'a declared output has another type than the graph gives it',
        where: `output ${output.name}`,
        expected: `${type.dtype} [${type.shape.join(', ')}]`,
        got: `${output.dtype} [${output.shape.join(', ')}]`,
      })
    if (output.shape.includes(-1))
      warnings.push(`output ${output.name} has the dimension -1: read as "${type.shape[output.shape.indexOf(-1)]}"`)
  }
}
