// OLMoE: a mixture in every layer, and norms of queries and keys over their whole width.
import type { Arch } from './arch.ts'
import { family } from './family.ts'
import { readExperts } from './gguf.ts'
import { llamaBiases, refuseBiases } from './huggingface.ts'
import { QWEN_EXPERTS } from './spec.ts'

export const olmoe: Arch = family({
  modelType: 'olmoe',
  config: {
    architecture: 'OlmoeForCausalLM',
    ropeTheta: 10000,
    rmsNormEps: 1e-5,
    contextLength: 4096,
    features(config, { inner }) {
      refuseBiases(config, 'mlp_bias')
      const count = config.count('num_experts', 64)
      config.require('num_local_experts', [count])
      const topK = config.count('num_experts_per_tok', 8)
      const normalize = config.flag('norm_topk_prob', false)
      return {
        biases: llamaBiases(config),
        queryKeyNorm: 'width',
        experts: { ...QWEN_EXPERTS, count, topK, inner, normalize, sparse: () => true },
      }
    },
  },
  gguf: {
    architecture: 'olmoe',
    interleaved: false,
    honours: ['expert_weights_norm'],
    features(config, key, { layers, inner }) {
      // llama.cpp has it built in that shares are not normalized (src/models/olmoe.cpp).
      config.require(key('expert_weights_norm'), [false])
      config.require(key('expert_feed_forward_length'), [inner])
      const experts = readExperts(config, key, layers)
      return {
        queryKeyNorm: 'width',
        experts: { ...QWEN_EXPERTS, ...experts, inner, normalize: false, sparse: () => true },
      }
    },
  },
})
