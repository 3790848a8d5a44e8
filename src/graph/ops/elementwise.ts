// Element by element: ai.onnx Add, Mul, Sigmoid, Swish, Identity, Constant, and ai.wia SwiGLU. Shapes are equal, or one side is a scalar
// Constant. Mul, Sigmoid, Swish and Constant have no plan step of their own: the fuse and fold passes must have removed them.
import { exactly, type NodeView, type OpDefinition, sameType, type ValueType } from '../op.ts'

function isScalar(type: ValueType): boolean {
  return type.shape.length === 0
}

function broadcast(view: NodeView): readonly ValueType[] {
  const [a, b] = view.inputs as [ValueType, ValueType]
  for (const t of [a, b]) if (t.dtype !== 'float32') view.fail('operand is not float32', { got: t.dtype })
  if (isScalar(b)) return [a]
  if (isScalar(a)) return [b]
  if (!sameType(a, b)) view.fail('operands have different shapes', { expected: a.shape, got: b.shape })
  return [a]
}

function unary(view: NodeView): readonly ValueType[] {
  if (view.inputs[0]!.dtype !== 'float32') view.fail('operand is not float32', { got: view.inputs[0]!.dtype })
  return [view.inputs[0]!]
}

const shape = { outputs: exactly(1), weights: exactly(0) }

function unfused(
  domain: string,
  op: string,
  since: number,
  inputs: number,
  attributes: OpDefinition['attributes'],
  hint: string,
): OpDefinition {
  return {
    ...shape,
    domain,
    op,
    since,
    inputs: exactly(inputs),
    attributes,
    infer: inputs === 2 ? broadcast : unary,
    lower: (_, out) => out.unsupported(`${op} is implemented only ${hint}`),
  }
}

export const mul = unfused(
  'ai.onnx',
  'Mul',
  14,
  2,
  {},
  'as Swish(gate)·up, x·Sigmoid(x), or a constant factor of a Linear or embedding',
)
export const sigmoid = unfused('ai.onnx', 'Sigmoid', 13, 1, {}, 'in x·Sigmoid(x)')
export const swish = unfused(
  'ai.onnx',
  'Swish',
  24,
  1,
  { alpha: { type: 'float', default: 1, only: [1] } },
  'in Swish(gate)·up',
)

export const constant: OpDefinition = {
  ...shape,
  domain: 'ai.onnx',
  op: 'Constant',
  since: 13,
  inputs: exactly(0),
  attributes: { value_float: { type: 'float' } },
  infer: () => [{ dtype: 'float32', shape: [] }],
  lower: (_, out) => out.unsupported('Constant is implemented only where it can be folded into another node'),
}

export const identity: OpDefinition = {
  ...shape,
  domain: 'ai.onnx',
  op: 'Identity',
  since: 13,
  inputs: exactly(1),
  attributes: {},
  infer: (view) => [view.inputs[0]!],
  lower: (view, out) => void out.takeOver(view.node.inputs[0]!, view.node.outputs[0]!, []),
}

export const add: OpDefinition = {
  ...shape,
  domain: 'ai.onnx',
  op: 'Add',
  since: 14,
  inputs: exactly(2),
  attributes: {},
  infer: broadcast,
  lower(view, out) {
    if (view.inputs.some(isScalar)) out.unsupported('adding a constant is not implemented')
    const [a, b] = view.node.inputs as [string, string]
    const y = view.node.outputs[0]!
    // Add in place over whichever operand is not needed any more.
    const [keep, other] = out.canOverwrite(a, [b]) || !out.canOverwrite(b, [a]) ? [a, b] : [b, a]
    const to = out.takeOver(keep, y, [other])
    out.emit({ op: 'add', x: out.buffer(other), y: to, tokens: out.tokens(y) })
  },
}

export const swiglu: OpDefinition = {
  ...shape,
  domain: 'ai.wia',
  op: 'SwiGLU',
  since: 14,
  inputs: exactly(2),
  attributes: {},
  infer(view) {
    const [gate, up] = view.inputs as [ValueType, ValueType]
    if (gate.dtype !== 'float32' || gate.shape.length !== 2 || !sameType(gate, up))
      view.fail('gate and up differ', { expected: gate.shape, got: up.shape })
    return [gate]
  },
  lower(view, out) {
    const [gate, up] = view.node.inputs as [string, string]
    const value = view.node.outputs[0]!
    const [g, u] = [out.buffer(gate), out.buffer(up)]
    const y = out.canOverwrite(gate, [up]) ? out.takeOver(gate, value, [up]) : out.define(value)
    out.emit({ op: 'swiglu', gate: g, up: u, y, tokens: out.tokens(value) })
  },
}
