// ai.wia MoE: a mixture of SwiGLU experts. The router is a Linear before it; softmax, choice and weighting happen here.
import { activation, between, exactly, float32, matrix, type NodeView, type OpDefinition, sameType } from '../op.ts'

/** Weights come in threes: gate, up, down of expert 0, then of expert 1 … */
function experts(view: NodeView): { count: number; inner: number } {
  const count = view.weights.length / 3
  if (!Number.isInteger(count)) view.fail('weights are not gate, up, down of each expert', { got: view.weights.length })
  return { count, inner: matrix(view, 0).out }
}

export const moe: OpDefinition = {
  domain: 'ai.wia',
  op: 'MoE',
  since: 14,
  inputs: between(2, 3),
  outputs: exactly(1),
  weights: between(3, 3 * 65536),
  attributes: {
    top_k: { type: 'int', min: 1, max: 65536 },
    normalize: { type: 'int', default: 1, only: [0, 1] },
  },
  infer(view) {
    const x = activation(view, 0)
    const logits = activation(view, 1)
    const { count, inner } = experts(view)
    if (logits.rows !== x.rows || logits.width !== count)
      view.fail('router logits do not fit', { expected: [x.rows, count], got: [logits.rows, logits.width] })
    if (view.int('top_k') > count)
      view.fail('top_k is above the number of experts', { expected: `≤ ${count}`, got: view.int('top_k') })
    for (let i = 0; i < view.weights.length; i++) {
      const want = i % 3 === 2 ? [x.width, inner] : [inner, x.width]
      const w = matrix(view, i)
      if (w.out !== want[0] || w.in !== want[1])
        view.fail(`expert weight ${view.node.weights[i]} does not fit`, { expected: want, got: view.weights[i] })
    }
    const addend = view.inputs[2]
    const y = float32(x.rows, x.width)
    if (addend !== undefined && !sameType(addend, y))
      view.fail(`addend ${view.node.inputs[2]} has another shape than the result`, {
        expected: y.shape,
        got: addend.shape,
      })
    return [y]
  },
  lower(view, out) {
    const [x, logits, addend] = view.node.inputs as [string, string, string?]
    const value = view.node.outputs[0]!
    out.requireAllTokens(x)
    const { count, inner } = experts(view)
    const topK = view.int('top_k')
    const route = out.routes.length
    out.routes.push({ experts: count, topK })
    out.emit({
      op: 'route',
      logits: out.buffer(logits),
      experts: count,
      topK,
      normalize: view.int('normalize') === 1,
      route,
    })
    const y = addend === undefined ? out.define(value) : out.takeOver(addend, value, [x, logits])
    if (addend === undefined) out.emit({ op: 'zero', y, tokens: out.tokens(value) })
    // Any expert may get every token: its buffers have a row for each. The gathered rows are overwritten by the expert's result.
    const { width, rows } = activation(view, 0)
    const own = out.scratch(`${value}.expert`, width, rows)
    const gate = out.scratch(`${value}.gate`, inner, rows)
    const up = out.scratch(`${value}.up`, inner, rows)
    for (let expert = 0; expert < count; expert++) {
      const [wGate, wUp, wDown] = view.node.weights.slice(3 * expert, 3 * expert + 3) as [string, string, string]
      const tokens = { kind: 'expert', route, expert } as const
      const linear = { op: 'linear', accumulate: false, alpha: 1, tokens } as const
      out.emit({ op: 'gatherExpert', x: out.buffer(x), y: own, route, expert })
      out.emit({ ...linear, weight: wGate, x: own, y: gate })
      out.emit({ ...linear, weight: wUp, x: own, y: up })
      out.emit({ op: 'swiglu', gate, up, y: gate, tokens })
      out.emit({ ...linear, weight: wDown, x: gate, y: own })
      out.emit({ op: 'scatterExpert', x: own, y, route, expert })
    }
  },
}
