// ai.wia Linear: y = addend + alpha·W x + bias, with W stored [out, in] as checkpoints have it.
import { activation, between, exactly, float32, matrix, type NodeView, type OpDefinition, sameType } from '../op.ts'

function infer(view: NodeView) {
  const x = activation(view, 0)
  const w = matrix(view, 0)
  if (w.in !== x.width)
    view.fail(`weight ${view.node.weights[0]} does not fit its input`, {
      expected: `[out, ${x.width}]`,
      got: view.weights[0],
    })
  const bias = view.weights[1]
  if (bias !== undefined && (bias.length !== 1 || bias[0] !== w.out))
    view.fail(`bias ${view.node.weights[1]} does not fit`, { expected: [w.out], got: bias })
  const heads = view.int('permuted_heads')
  if (heads > 0 && w.out % (2 * heads) !== 0)
    view.fail('rows do not divide into heads of pairs', { expected: `a multiple of ${2 * heads}`, got: w.out })
  const y = float32(x.rows, w.out)
  const addend = view.inputs[1]
  if (addend !== undefined && !sameType(addend, y))
    view.fail(`addend ${view.node.inputs[1]} has another shape than the result`, {
      expected: y.shape,
      got: addend.shape,
    })
  return [y]
}

export const linear: OpDefinition = {
  domain: 'ai.wia',
  op: 'Linear',
  since: 14,
  inputs: between(1, 2),
  outputs: exactly(1),
  weights: between(1, 2),
  attributes: {
    alpha: { type: 'float', default: 1 },
    permuted_heads: { type: 'int', default: 0, min: 0, max: 2 ** 20 },
  },
  infer,
  lower(view, out) {
    const { inputs, outputs, weights } = view.node
    const [x, addend] = inputs as [string, string?]
    const [y] = outputs as [string]
    const tokens = out.tokens(y)
    const to = addend === undefined ? out.define(y) : out.takeOver(addend, y, [x])
    out.emit({
      op: 'linear',
      weight: weights[0]!,
      x: out.buffer(x),
      y: to,
      accumulate: addend !== undefined,
      alpha: view.float('alpha'),
      tokens,
    })
    if (weights[1] !== undefined) out.emit({ op: 'bias', weight: weights[1], y: to, tokens })
  },
}
