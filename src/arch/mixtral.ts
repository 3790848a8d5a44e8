// Mixtral: the Llama decoder with a mixture of SwiGLU experts as feed-forward; the chosen experts' softmax is renormalized.
import type { Arch } from './arch.ts'
import { family } from './family.ts'
import { mixtralExperts } from './gguf.ts'
import { refuseBiases } from './huggingface.ts'
import { LLAMA_GGUF } from './llama.ts'
import { MIXTRAL_EXPERTS } from './spec.ts'

export const mixtral: Arch = family({
  modelType: 'mixtral',
  config: {
    architecture: 'MixtralForCausalLM',
    ropeTheta: 1e6,
    rmsNormEps: 1e-5,
    contextLength: 4096 * 32,
    kvHeads: 8,
    features(config, { inner }) {
      refuseBiases(config, 'attention_bias', 'mlp_bias')
      const count = config.count('num_local_experts', 8)
      const topK = config.count('num_experts_per_tok', 2)
      return { experts: { ...MIXTRAL_EXPERTS, count, topK, inner, normalize: true, sparse: () => true } }
    },
  },
  // GGUF files call it llama too, and have llama.expert_count above 0.
  gguf: {
    ...LLAMA_GGUF,
    features: (config, key, dimensions) => ({ experts: mixtralExperts(config, key, dimensions) }),
  },
})
