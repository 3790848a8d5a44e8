// Qwen 3: Llama whose queries and keys are normed head by head before rotation, and a window in the upper layers of some models.
import type { Arch } from './arch.ts'
import { family } from './family.ts'
import { llamaBiases, refuseBiases } from './huggingface.ts'
import { qwenWindows } from './window.ts'

export const qwen3: Arch = family({
  modelType: 'qwen3',
  config: {
    architecture: 'Qwen3ForCausalLM',
    ropeTheta: 10000,
    rmsNormEps: 1e-6,
    contextLength: 32768,
    kvHeads: 32,
    headDim: 128,
    honours: ['use_sliding_window', 'sliding_window', 'layer_types'],
    features(config, { layers }) {
      refuseBiases(config, 'mlp_bias')
      return { biases: llamaBiases(config), queryKeyNorm: 'head', windows: qwenWindows(config, layers) }
    },
  },
  gguf: { architecture: 'qwen3', interleaved: false, features: () => ({ queryKeyNorm: 'head' }) },
})
