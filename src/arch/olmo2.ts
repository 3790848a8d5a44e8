// OLMo 2: norms on the results of attention and feed-forward instead of before them, and on the whole width of queries and keys.
import type { Arch } from './arch.ts'
import { family } from './family.ts'
import { llamaBiases, refuseBiases } from './huggingface.ts'

export const olmo2: Arch = family({
  modelType: 'olmo2',
  config: {
    architecture: 'Olmo2ForCausalLM',
    ropeTheta: 10000,
    rmsNormEps: 1e-5,
    contextLength: 2048,
    features(config) {
      refuseBiases(config, 'mlp_bias')
      return { biases: llamaBiases(config), norms: 'after', queryKeyNorm: 'width' }
    },
  },
  gguf: {
    architecture: 'olmo2',
    interleaved: false,
    modules: { post_attention_layernorm: 'post_attention_norm' },
    features: () => ({ norms: 'after', queryKeyNorm: 'width' }),
  },
})
