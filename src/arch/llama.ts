// Llama 1 to 3 and what is shaped like it: TinyLlama, SmolLM.
import type { Arch } from './arch.ts'
import { family } from './family.ts'
import type { GgufFamily } from './gguf.ts'
import { llamaBiases } from './huggingface.ts'

/** Mistral's GGUF files call themselves llama too. */
export const LLAMA_GGUF: GgufFamily = { architecture: 'llama', interleaved: true }

export const llama: Arch = family({
  modelType: 'llama',
  config: {
    architecture: 'LlamaForCausalLM',
    ropeTheta: 10000,
    rmsNormEps: 1e-6,
    contextLength: 2048,
    features: (config) => ({ biases: llamaBiases(config) }),
  },
  gguf: LLAMA_GGUF,
})
