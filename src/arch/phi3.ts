// Phi-3, 3.5 and 4: Llama with query, key and value in one matrix and gate and up in another, a sliding window, a partial rotation, and
// longrope. Only texts up to the original length run where longrope is stated: its factors change with the length.
import type { Arch, ArchInput } from './arch.ts'
import type { Config } from './config.ts'
import { family } from './family.ts'
import { type GgufRope, LONG_FACTORS, SHORT_FACTORS } from './gguf.ts'
import { refuseBiases } from './huggingface.ts'
import { NO_SCALING } from './rope.ts'
import type { Dimensions } from './spec.ts'
import { everyLayer } from './window.ts'

export const phi3: Arch = family({
  modelType: 'phi3',
  fused: true,
  config: {
    architecture: 'Phi3ForCausalLM',
    ropeTheta: 10000,
    rmsNormEps: 1e-5,
    contextLength: 4096,
    rope: { partial: true, longrope: true },
    honours: ['sliding_window', 'partial_rotary_factor'],
    features(config, { layers }) {
      refuseBiases(config, 'attention_bias', 'mlp_bias')
      config.has('original_max_position_embeddings') // Of no effect without longrope.
      return { windows: everyLayer(config, layers, undefined) }
    },
  },
  gguf: {
    architecture: 'phi3',
    interleaved: false,
    honours: ['attention.sliding_window', 'rope.scaling.attn_factor'],
    features(config, key, { layers }) {
      // 0 is no window. llama.cpp reads the key and leaves the window out; the model has it in every layer.
      const window = key('attention.sliding_window')
      const positions = !config.has(window) || config.equals(window, 0) ? 0 : config.count(window)
      return { windows: Array.from({ length: layers }, () => positions) }
    },
    rope: ggufRope,
  },
})

function ggufRope(
  config: Config,
  key: (suffix: string) => string,
  { headDim }: Dimensions,
  input: ArchInput,
): GgufRope {
  config.require(key('rope.scaling.type'), ['none', 'longrope'])
  config.require(key('rope.scaling.factor'), [1])
  config.require(key('rope.scale_linear'), [1])
  const dim = config.count(key('rope.dimension_count'), headDim)
  if (dim > headDim || dim % 2 !== 0)
    config.invalid(key('rope.dimension_count'), `an even number up to ${headDim}`, dim)
  const base = config.positive(key('rope.freq_base'), 10000)
  const attentionScale = config.positive(key('rope.scaling.attn_factor'), 1)
  const rope = { base, dim, scaling: NO_SCALING, divisors: [], attentionScale }
  if (!input.tensors.has(SHORT_FACTORS)) return { rope }
  const context = config.count(key('rope.scaling.original_context_length'))
  const warnings = [
    `GGUF metadata: longrope is implemented up to the original context, ${context} positions; ${LONG_FACTORS} was not used`,
  ]
  return { rope, ropeFactors: SHORT_FACTORS, context, warnings }
}
