// Qwen 3 mixtures: Qwen 3 with experts as feed-forward, in all layers or some.
import type { Arch } from './arch.ts'
import type { Config } from './config.ts'
import { family } from './family.ts'
import { readExperts } from './gguf.ts'
import { llamaBiases, refuseBiases } from './huggingface.ts'
import { type Dimensions, type Experts, QWEN_EXPERTS } from './spec.ts'

export const qwen3Moe: Arch = family({
  modelType: 'qwen3_moe',
  config: {
    architecture: 'Qwen3MoeForCausalLM',
    ropeTheta: 10000,
    rmsNormEps: 1e-6,
    contextLength: 32768,
    kvHeads: 4,
    // A window would be used when use_sliding_window is set, which is refused.
    honours: ['sliding_window'],
    features(config, dimensions) {
      refuseBiases(config, 'mlp_bias')
      for (const unused of ['sliding_window', 'max_window_layers']) config.has(unused)
      return { biases: llamaBiases(config), queryKeyNorm: 'head', experts: readConfigExperts(config, dimensions) }
    },
  },
  gguf: {
    architecture: 'qwen3moe',
    interleaved: false,
    features: (config, key, { layers }) => ({
      queryKeyNorm: 'head',
      experts: {
        ...QWEN_EXPERTS,
        ...readExperts(config, key, layers),
        inner: config.count(key('expert_feed_forward_length')),
        normalize: true,
        sparse: () => true,
      },
    }),
  },
})

function readConfigExperts(config: Config, { layers }: Dimensions): Experts {
  const count = config.has('num_experts') ? config.count('num_experts') : config.count('num_local_experts', 128)
  // Two names of one number: transformers 5 writes the second.
  if (config.has('num_experts')) config.require('num_local_experts', [count])
  const step = config.count('decoder_sparse_step', 1)
  const dense = new Set(config.indices('mlp_only_layers', layers))
  return {
    ...QWEN_EXPERTS,
    count,
    topK: config.count('num_experts_per_tok', 8),
    inner: config.count('moe_intermediate_size', 768),
    normalize: config.flag('norm_topk_prob', false),
    sparse: (i) => !dense.has(i) && (i + 1) % step === 0,
  }
}
