// Granite 3: Llama with four factors, of the embedding, of what a layer adds to the residual stream, of attention scores and of the logits.
import type { Arch } from './arch.ts'
import type { Config } from './config.ts'
import { family } from './family.ts'
import { llamaBiases } from './huggingface.ts'
import type { Features } from './spec.ts'

export const granite: Arch = family({
  modelType: 'granite',
  config: {
    architecture: 'GraniteForCausalLM',
    ropeTheta: 10000,
    rmsNormEps: 1e-6,
    contextLength: 2048,
    honours: ['embedding_multiplier', 'residual_multiplier', 'attention_multiplier', 'logits_scaling'],
    features(config) {
      const biases = llamaBiases(config)
      const residualScale = config.positive('residual_multiplier', 1)
      const biased = biases.has('o_proj') ? 'attention_bias' : biases.has('down_proj') ? 'mlp_bias' : undefined
      if (residualScale !== 1 && biased !== undefined)
        config.unsupported(`${biased} with a residual_multiplier is not implemented`, true, [false])
      return {
        biases,
        residualScale,
        embeddingScale: config.positive('embedding_multiplier', 1),
        attentionScale: config.positive('attention_multiplier', 1),
        logitScale: 1 / config.positive('logits_scaling', 1),
      }
    },
  },
  gguf: {
    architecture: 'granite',
    interleaved: true,
    honours: ['embedding_scale', 'residual_scale', 'attention.scale', 'logit_scale'],
    features: ggufFactors,
  },
})

/** As in llama.cpp, src/models/granite.cpp: 0 or an absent key is no factor, and the logits are divided by theirs. */
function ggufFactors(config: Config, key: (suffix: string) => string): Features {
  // Granite files use this flag to switch rotation off.
  config.require(key('rope.scaling.finetuned'), [true])
  const factor = (suffix: string) => (config.equals(key(suffix), 0) ? 1 : config.positive(key(suffix), 1))
  const attention = key('attention.scale')
  const stated = config.has(attention) && !config.equals(attention, 0)
  return {
    embeddingScale: factor('embedding_scale'),
    residualScale: factor('residual_scale'),
    logitScale: 1 / config.positive(key('logit_scale')),
    ...(stated ? { attentionScale: config.positive(attention) } : {}),
  }
}
