// ai.wia RotaryCache (positions → cos and sin) and ai.onnx RotaryEmbedding (opset 23), which rotates pairs with them.
import { activation, between, exactly, float32, type OpDefinition } from '../op.ts'
import { inverseFrequencies, type RopeScaling } from '../rope.ts'

/** Real heads have 64 to 512 dimensions; a table is computed from this number, so it is capped. */
const MAX_ROTARY_DIM = 65536

export const rotaryCache: OpDefinition = {
  domain: 'ai.wia',
  op: 'RotaryCache',
  since: 14,
  inputs: exactly(1),
  outputs: exactly(2),
  weights: between(0, 1),
  attributes: {
    dim: { type: 'int', min: 2, max: MAX_ROTARY_DIM },
    base: { type: 'float', default: 10000, min: 1e-6, max: 1e30 },
    scaling: { type: 'string', default: 'none', only: ['none', 'linear', 'llama3', 'yarn'] },
    factor: { type: 'float', default: 1, min: 1e-6, max: 1e9 },
    low_freq_factor: { type: 'float', default: 1, min: 1e-6, max: 1e9 },
    high_freq_factor: { type: 'float', default: 4, min: 1e-6, max: 1e9 },
    original_context_length: { type: 'int', default: 8192, min: 1, max: 2 ** 40 },
    beta_fast: { type: 'float', default: 32, min: 1e-6, max: 1e9 },
    beta_slow: { type: 'float', default: 1, min: 1e-6, max: 1e9 },
    truncate: { type: 'int', default: 1, only: [0, 1] },
    /** Frequency i is divided by divisors[i], after `scaling`. */
    divisors: { type: 'floats', default: [], min: 1e-6, max: 1e9 },
    /** cos and sin are multiplied by it. */
    attention_scale: { type: 'float', default: 1, min: 1e-6, max: 1e6 },
  },
  infer(view) {
    const positions = view.inputs[0]!
    const [rows] = positions.shape
    if (positions.dtype !== 'int64' || positions.shape.length !== 1 || typeof rows !== 'string')
      view.fail('positions have the wrong type', {
        expected: 'int64 [tokens]',
        got: `${positions.dtype} [${positions.shape.join(', ')}]`,
      })
    const dim = view.int('dim')
    if (dim % 2 !== 0) view.fail('attribute dim is odd', { expected: 'an even number', got: dim })
    if (view.text('scaling') === 'llama3' && view.float('high_freq_factor') <= view.float('low_freq_factor'))
      view.fail('high_freq_factor must be above low_freq_factor', { got: view.float('high_freq_factor') })
    if (view.text('scaling') === 'yarn' && view.float('base') <= 1)
      view.fail('yarn needs a base above 1', { got: view.float('base') })
    const divisors = view.list('divisors').length
    if (divisors !== 0 && divisors !== dim / 2)
      view.fail('divisors do not fit', { expected: `none or ${dim / 2}`, got: divisors })
    const factors = view.weights[0]
    if (factors !== undefined && (factors.length !== 1 || factors[0] !== dim / 2))
      view.fail(`frequency factors ${view.node.weights[0]} do not fit`, { expected: [dim / 2], got: factors })
    const half = float32(rows as string, dim / 2)
    return [half, half]
  },
  lower(view, out) {
    out.requireInput(view.node.inputs[0]!, 'position_ids')
    const scaling: RopeScaling = {
      type: view.text('scaling') as RopeScaling['type'],
      factor: view.float('factor'),
      lowFreqFactor: view.float('low_freq_factor'),
      highFreqFactor: view.float('high_freq_factor'),
      originalContextLength: view.int('original_context_length'),
      betaFast: view.float('beta_fast'),
      betaSlow: view.float('beta_slow'),
      truncate: view.int('truncate') === 1,
    }
    const divisors = view.list('divisors')
    const frequencies = inverseFrequencies(view.int('dim'), view.float('base'), scaling)
    const factorsWeight = view.node.weights[0]
    out.addRope(
      {
        inverseFrequencies: frequencies.map((f, i) => f / (divisors[i] ?? 1)),
        attentionScale: view.float('attention_scale'),
        ...(factorsWeight === undefined ? {} : { factorsWeight }),
      },
      view.node.outputs[0]!,
      view.node.outputs[1]!,
    )
  },
}

export const rotaryEmbedding: OpDefinition = {
  domain: 'ai.onnx',
  op: 'RotaryEmbedding',
  since: 23,
  inputs: exactly(3),
  outputs: exactly(1),
  weights: exactly(0),
  attributes: {
    num_heads: { type: 'int', min: 1, max: 2 ** 20 },
    interleaved: { type: 'int', default: 0, only: [0, 1] },
    rotary_embedding_dim: { type: 'int', default: 0, min: 0, max: MAX_ROTARY_DIM },
  },
  infer(view) {
    const x = activation(view, 0)
    const cos = activation(view, 1)
    const sin = activation(view, 2)
    const heads = view.int('num_heads')
    if (x.width % heads !== 0)
      view.fail('width does not divide into heads', { expected: `a multiple of ${heads}`, got: x.width })
    const headDim = x.width / heads
    const dim = view.int('rotary_embedding_dim') || headDim
    if (dim > headDim || dim % 2 !== 0)
      view.fail('rotary dimension does not fit the head', { expected: `even, ≤ ${headDim}`, got: dim })
    if (cos.width !== dim / 2 || sin.width !== dim / 2 || cos.rows !== x.rows || sin.rows !== x.rows)
      view.fail('cos and sin do not fit', { expected: [x.rows, dim / 2], got: [cos.rows, cos.width] })
    return [view.inputs[0]!]
  },
  lower(view, out) {
    const [x, cos, sin] = view.node.inputs as [string, string, string]
    const rope = out.ropeIndex(cos, sin)
    out.requireAllTokens(x)
    const headDim = (view.inputs[0]!.shape[1] as number) / view.int('num_heads')
    out.emit({
      op: 'rope',
      x: out.takeOver(x, view.node.outputs[0]!, []),
      heads: view.int('num_heads'),
      headDim,
      rotaryDim: view.int('rotary_embedding_dim') || headDim,
      interleaved: view.int('interleaved') === 1,
      rope,
    })
  },
}
