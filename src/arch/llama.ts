// Llama 1 to 3 and what is shaped like it: TinyLlama, SmolLM, and Mistral without a sliding window.
import type { Arch, ArchInput, ArchOutput } from './arch.ts'
import { decoderGraph } from './decoder.ts'
import { ggufIgnored, ggufNames, readGguf } from './gguf.ts'
import { type FamilyDefaults, readHuggingFace, sameNames } from './huggingface.ts'

const LLAMA: FamilyDefaults = {
  architecture: 'LlamaForCausalLM',
  ropeTheta: 10000,
  rmsNormEps: 1e-6,
  contextLength: 2048,
  biases: true,
  experts: false,
}
const MISTRAL: FamilyDefaults = {
  ...LLAMA,
  architecture: 'MistralForCausalLM',
  contextLength: 4096 * 32,
  kvHeads: 8,
  biases: false,
}

export const llama: Arch = {
  modelTypes: ['llama', 'mistral'],
  ggufArchitectures: ['llama'],
  build(input: ArchInput): ArchOutput {
    if (input.format === 'gguf') {
      const { spec, warnings } = readGguf(input, 'llama')
      const graph = decoderGraph(spec)
      return { graph, names: ggufNames(input, graph.weights), ignored: ggufIgnored(input), warnings }
    }
    const { spec, ignored, warnings } = readHuggingFace(input, input.config.model_type === 'mistral' ? MISTRAL : LLAMA)
    const graph = decoderGraph(spec)
    return { graph, names: sameNames(graph.weights), ignored, warnings }
  },
}
