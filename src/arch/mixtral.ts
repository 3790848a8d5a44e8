// Mixtral: the Llama decoder with a mixture of SwiGLU experts as feed-forward; the chosen experts' softmax is renormalized.
import type { Arch, ArchInput, ArchOutput } from './arch.ts'
import { decoderGraph } from './decoder.ts'
import { ggufIgnored, ggufNames, readGguf } from './gguf.ts'
import { type FamilyDefaults, readHuggingFace, sameNames } from './huggingface.ts'

const MIXTRAL: FamilyDefaults = {
  architecture: 'MixtralForCausalLM',
  ropeTheta: 1e6,
  rmsNormEps: 1e-5,
  contextLength: 4096 * 32,
  kvHeads: 8,
  biases: false,
  experts: true,
}

export const mixtral: Arch = {
  modelTypes: ['mixtral'],
  // GGUF files call it llama too, and have llama.expert_count above 0.
  ggufArchitectures: ['llama'],
  build(input: ArchInput): ArchOutput {
    if (input.format === 'gguf') {
      const { spec, warnings } = readGguf(input, 'mixtral')
      const graph = decoderGraph(spec)
      return { graph, names: ggufNames(input, graph.weights), ignored: ggufIgnored(input), warnings }
    }
    const { spec, ignored, warnings } = readHuggingFace(input, MIXTRAL)
    const graph = decoderGraph(spec)
    return { graph, names: sameNames(graph.weights), ignored, warnings }
  },
}
