// ai.onnx RMSNormalization (opset 23) over the last axis.
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
    stash_type: { type: 'int', default: 1, only: [1] },
  },
  infer(view) {
    const x = activation(view, 0)
    const scale = view.weights[0]!
    if (scale.length !== 1 || scale[0] !== x.width)
      view.fail(`scale ${view.node.weights[0]} does not fit`, { expected: [x.width], got: scale })
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
      groups: 1,
    })
  },
}
