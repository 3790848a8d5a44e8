// Mistral: Llama whose attention sees a sliding window, in every layer.
import type { Arch } from './arch.ts'
import { family } from './family.ts'
import { refuseBiases } from './huggingface.ts'
import { everyLayer } from './window.ts'

export const mistral: Arch = family({
  modelType: 'mistral',
  config: {
    architecture: 'MistralForCausalLM',
    ropeTheta: 10000,
    rmsNormEps: 1e-6,
    contextLength: 4096 * 32,
    kvHeads: 8,
    honours: ['sliding_window'],
    features(config, { layers }) {
      refuseBiases(config, 'attention_bias', 'mlp_bias')
      return { windows: everyLayer(config, layers, 4096) }
    },
  },
})
