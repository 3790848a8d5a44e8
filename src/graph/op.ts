// What an operator is to this package: arity, attributes, shapes, and how it becomes plan steps. Definitions are in ops/.
import { type ErrorCode, type ErrorParts, ValidationError } from '../base/errors.ts'
import type { JsonValue } from '../base/json.ts'
import type { GraphNode } from './graph.ts'
import type { Lowering } from './lower.ts'

/** Symbolic dimensions of the vocabulary: tokens of a pass, and those of them whose logits are wanted. */
export const TOKENS = 'tokens'
export const LOGIT_TOKENS = 'logit_tokens'
export const SYMBOLS: readonly string[] = [TOKENS, LOGIT_TOKENS]

export interface ValueType {
  readonly dtype: string
  readonly shape: readonly (number | string)[]
}

export type AttributeValue = number | string | readonly number[]

/** Type and range of an attribute (of each element, for lists). Without `default` it must be there. `only` lists the values that are implemented. */
export interface AttributeSpec {
  readonly type: 'int' | 'float' | 'string' | 'ints' | 'floats'
  readonly default?: AttributeValue
  readonly min?: number
  readonly max?: number
  readonly only?: readonly (number | string)[]
}

export interface Arity {
  readonly min: number
  readonly max: number
}

/** A node with everything about it looked up: what shape inference and lowering work on. */
export interface NodeView {
  readonly node: GraphNode
  readonly inputs: readonly ValueType[]
  readonly weights: readonly (readonly number[])[]
  int(name: string): number
  float(name: string): number
  text(name: string): string
  list(name: string): readonly number[]
  /** Throws, naming node and operator. */
  fail(what: string, more?: Omit<ErrorParts, 'what' | 'where'>, code?: ErrorCode): never
}

export interface OpDefinition {
  readonly domain: string
  readonly op: string
  /** First opset version with this meaning. */
  readonly since: number
  readonly inputs: Arity
  readonly outputs: Arity
  readonly weights: Arity
  readonly attributes: Readonly<Record<string, AttributeSpec>>
  /** Types of the outputs. Throws GRAPH_INVALID when the inputs do not fit. */
  infer(view: NodeView): readonly ValueType[]
  /** Appends the plan steps of a node. Throws OP_UNSUPPORTED where no step exists. */
  lower(view: NodeView, out: Lowering): void
}

export const exactly = (n: number): Arity => ({ min: n, max: n })
export const between = (min: number, max: number): Arity => ({ min, max })

export function nodeLabel(node: GraphNode): string {
  return `node ${node.name}, ${node.domain}.${node.op}`
}

export function failNode(
  node: GraphNode,
  what: string,
  more: Omit<ErrorParts, 'what' | 'where'> = {},
  code: ErrorCode = 'GRAPH_INVALID',
): never {
  throw new ValidationError(code, { what, where: nodeLabel(node), ...more })
}

/** Checks a node's attributes against the specification and fills in defaults. Throws GRAPH_INVALID, OP_UNSUPPORTED. */
export function readAttributes(
  node: GraphNode,
  specs: OpDefinition['attributes'],
): ReadonlyMap<string, AttributeValue> {
  const found = new Map<string, AttributeValue>()
  for (const key of Object.keys(node.attributes))
    if (!Object.hasOwn(specs, key))
      failNode(node, 'attribute is not known', { got: key, expected: Object.keys(specs).join(', ') || 'none' })
  for (const [key, spec] of Object.entries(specs)) {
    const given = Object.hasOwn(node.attributes, key) ? node.attributes[key] : undefined
    if (given === undefined) {
      if (spec.default === undefined) failNode(node, `attribute ${key} is missing`)
      found.set(key, spec.default)
    } else found.set(key, readAttribute(node, key, spec, given))
  }
  return found
}

function readAttribute(node: GraphNode, key: string, spec: AttributeSpec, value: JsonValue): AttributeValue {
  const list = spec.type === 'ints' || spec.type === 'floats'
  if (!list) return readScalar(node, key, spec, value)
  if (!Array.isArray(value))
    failNode(node, `attribute ${key} has the wrong type`, { expected: spec.type, got: typeof value })
  return value.map((v) => readScalar(node, key, spec, v) as number)
}

function readScalar(node: GraphNode, key: string, spec: AttributeSpec, value: JsonValue): number | string {
  const got = typeof value === 'object' ? JSON.stringify(value) : value
  const fits =
    spec.type === 'string'
      ? typeof value === 'string'
      : typeof value === 'number' &&
        (spec.type.startsWith('int') ? Number.isSafeInteger(value) : Number.isFinite(value))
  if (!fits) failNode(node, `attribute ${key} has the wrong type`, { expected: spec.type, got })
  const known = value as number | string
  if (spec.only !== undefined && !spec.only.includes(known))
    failNode(
      node,
      `attribute ${key} has a value that is not implemented`,
      { expected: spec.only.join(' | '), got },
      'OP_UNSUPPORTED',
    )
  if (typeof known === 'number' && (known < (spec.min ?? -Infinity) || known > (spec.max ?? Infinity)))
    failNode(node, `attribute ${key} is out of range`, { expected: `${spec.min ?? '-∞'} … ${spec.max ?? '∞'}`, got })
  return known
}

/** [symbol, width] of a float32 activation. Throws GRAPH_INVALID for anything else. */
export function activation(view: NodeView, index: number): { rows: string; width: number } {
  const type = view.inputs[index]!
  const [rows, width] = type.shape
  if (type.dtype !== 'float32' || type.shape.length !== 2 || typeof rows !== 'string' || typeof width !== 'number')
    view.fail(`input ${index} (${view.node.inputs[index]}) is not an activation`, {
      expected: 'float32 [tokens, width]',
      got: `${type.dtype} [${type.shape.join(', ')}]`,
    })
  return { rows, width }
}

/** A matrix weight [out, in]. */
export function matrix(view: NodeView, index: number): { out: number; in: number } {
  const shape = view.weights[index]!
  if (shape.length !== 2)
    view.fail(`weight ${view.node.weights[index]} is not a matrix`, { expected: '[out, in]', got: shape })
  return { out: shape[0]!, in: shape[1]! }
}

export function float32(rows: string, width: number): ValueType {
  return { dtype: 'float32', shape: [rows, width] }
}

export function sameType(a: ValueType, b: ValueType): boolean {
  return a.dtype === b.dtype && a.shape.length === b.shape.length && a.shape.every((d, i) => d === b.shape[i])
}
