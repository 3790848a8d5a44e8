// ai.onnx Gather along axis 0: rows of an embedding (data is a weight), or the tokens whose logits are wanted (data is an
// activation). ai.wia Embedding is the former with a factor.
import { activation, between, exactly, float32, matrix, type NodeView, type OpDefinition, TOKENS } from '../op.ts'

function indices(view: NodeView, index: number): string {
  const type = view.inputs[index]!
  const [rows] = type.shape
  if (type.dtype !== 'int64' || type.shape.length !== 1 || typeof rows !== 'string')
    view.fail(`indices ${view.node.inputs[index]} have the wrong type`, {
      expected: 'int64 [tokens]',
      got: `${type.dtype} [${type.shape.join(', ')}]`,
    })
  return rows
}

export const gather: OpDefinition = {
  domain: 'ai.onnx',
  op: 'Gather',
  since: 13,
  inputs: between(1, 2),
  outputs: exactly(1),
  weights: between(0, 1),
  attributes: { axis: { type: 'int', default: 0, only: [0] } },
  infer(view) {
    if (view.inputs.length + view.weights.length !== 2)
      view.fail('Gather takes data and indices', {
        got: `${view.inputs.length} inputs, ${view.weights.length} weights`,
      })
    if (view.weights.length === 1) return [float32(indices(view, 0), matrix(view, 0).in)]
    return [float32(indices(view, 1), activation(view, 0).width)]
  },
  lower(view, out) {
    const { inputs, outputs, weights } = view.node
    if (weights.length === 1) {
      out.requireInput(inputs[0]!, 'input_ids')
      out.emit({ op: 'embed', weight: weights[0]!, y: out.define(outputs[0]!), scale: 1 })
      return
    }
    out.requireAllTokens(inputs[0]!)
    out.requireInput(inputs[1]!, 'logit_indices')
    out.emit({ op: 'selectLogits', x: out.buffer(inputs[0]!), y: out.define(outputs[0]!) })
  },
}

export const embedding: OpDefinition = {
  domain: 'ai.wia',
  op: 'Embedding',
  since: 14,
  inputs: exactly(1),
  outputs: exactly(1),
  weights: exactly(1),
  attributes: { scale: { type: 'float', default: 1 } },
  infer: (view) => [float32(indices(view, 0), matrix(view, 0).in)],
  lower(view, out) {
    out.requireInput(view.node.inputs[0]!, 'input_ids')
    if (view.inputs[0]!.shape[0] !== TOKENS) out.unsupported('embedding rows are not the tokens of the pass')
    out.emit({
      op: 'embed',
      weight: view.node.weights[0]!,
      y: out.define(view.node.outputs[0]!),
      scale: view.float('scale'),
    })
  },
}
