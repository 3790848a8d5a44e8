// ai.onnx Attention (opset 23), 3-D form without batch: causal, grouped queries. past_key and past_value are not inputs: the engine
// keeps one cache an Attention node, in node order, and appends k and v before attending.
import { activation, exactly, float32, type OpDefinition } from '../op.ts'

export const attention: OpDefinition = {
  domain: 'ai.onnx',
  op: 'Attention',
  since: 23,
  inputs: exactly(3),
  outputs: exactly(1),
  weights: exactly(0),
  attributes: {
    q_num_heads: { type: 'int', min: 1, max: 2 ** 20 },
    kv_num_heads: { type: 'int', min: 1, max: 2 ** 20 },
    is_causal: { type: 'int', only: [1] },
    /** 0: 1/√headDim. */
    scale: { type: 'float', default: 0, min: 0, max: 1e6 },
    softcap: { type: 'float', default: 0, only: [0] },
    /** Positions a token sees, itself included; 0: all before it. Not in ONNX, where a window is a mask. */
    window: { type: 'int', default: 0, min: 0, max: 2 ** 31 - 1 },
  },
  infer(view) {
    const [q, k, v] = [activation(view, 0), activation(view, 1), activation(view, 2)]
    const heads = view.int('q_num_heads')
    const kvHeads = view.int('kv_num_heads')
    if (heads % kvHeads !== 0)
      view.fail('query heads do not divide into key/value heads', { expected: `a multiple of ${kvHeads}`, got: heads })
    const headDim = q.width / heads
    if (!Number.isInteger(headDim))
      view.fail('query width does not divide into heads', { expected: `a multiple of ${heads}`, got: q.width })
    if (k.width !== kvHeads * headDim || v.width !== k.width)
      view.fail('keys or values have the wrong width', { expected: kvHeads * headDim, got: `${k.width}, ${v.width}` })
    if (k.rows !== q.rows || v.rows !== q.rows)
      view.fail('queries, keys and values have different rows', { got: [q.rows, k.rows, v.rows] })
    return [float32(q.rows, q.width)]
  },
  lower(view, out) {
    const [q, k, v] = view.node.inputs as [string, string, string]
    for (const value of [q, k, v]) out.requireAllTokens(value)
    const heads = view.int('q_num_heads')
    const kvHeads = view.int('kv_num_heads')
    const headDim = (view.inputs[0]!.shape[1] as number) / heads
    const window = view.int('window')
    out.emit({
      op: 'attention',
      layer: out.kv.length,
      q: out.buffer(q),
      k: out.buffer(k),
      v: out.buffer(v),
      y: out.define(view.node.outputs[0]!),
      heads,
      kvHeads,
      headDim,
      scale: view.float('scale') || 1 / Math.sqrt(headDim),
      window,
    })
    out.kv.push({ kvHeads, headDim, window })
  },
}
