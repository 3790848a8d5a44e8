// Qwen 2 and 2.5: Llama with biases on query, key and value, and a window in the upper layers of some models.
import type { Arch } from './arch.ts'
import { family } from './family.ts'
import { refuseBiases } from './huggingface.ts'
import { qwenWindows } from './window.ts'

export const qwen2: Arch = family({
  modelType: 'qwen2',
  config: {
    architecture: 'Qwen2ForCausalLM',
    ropeTheta: 10000,
    rmsNormEps: 1e-6,
    contextLength: 32768,
    kvHeads: 32,
    honours: ['use_sliding_window', 'sliding_window', 'layer_types'],
    features(config, { layers }) {
      refuseBiases(config, 'mlp_bias')
      return { biases: new Set(['q_proj', 'k_proj', 'v_proj']), windows: qwenWindows(config, layers) }
    },
  },
  gguf: { architecture: 'qwen2', interleaved: false },
})
