// ai.onnx RMSNormalization (opset 23) over the last axis, or over each of `groups` equal parts of it (a norm per head).
import { activation, exactly, type OpDefinition } from '../op.ts'

export const rmsNormalization: OpDefinition = {
  domain: 'ai.onnx',
  op: 'RMSNormalization',
  since: 23,
  inputs: exactly(1),
  outputs: exactly(1),
  weights: exactly(1),
  attributes: {
    axis: { type: 'int', default: -1, only: [-1, 1] },
    epsilon: { type: 'float', default: 1e-5, min: 0, max: 1 },
    /** Parts of the last axis that are normalized each for itself, with one scale. Not in ONNX, where it takes a Reshape. */
    groups: { type: 'int', default: 1, min: 1, max: 2 ** 20 },
    stash_type: { type: 'int', default: 1, only: [1] },
  },
  infer(view) {
    const x = activation(view, 0)
    const scale = view.weights[0]!
    const groups = view.int('groups')
    if (x.width % groups !== 0)
      view.fail('width does not divide into groups', { expected: `a multiple of ${groups}`, got: x.width })
    if (scale.length !== 1 || scale[0] !== x.width / groups)
      view.fail(`scale ${view.node.weights[0]} does not fit`, { expected: [x.width / groups], got: scale })
    return [view.inputs[0]!]
  },
  lower(view, out) {
    const x = out.buffer(view.node.inputs[0]!)
    const value = view.node.outputs[0]!
    out.emit({
      op: 'rmsNorm',
      x,
      y: out.define(value),
      weight: view.node.weights[0]!,
      epsilon: view.float('epsilon'),
      offset: 0,
      tokens: out.tokens(value),
      groups: view.int('groups'),
    })
  },
}
