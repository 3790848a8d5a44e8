// What most families are: two readings of a configuration (config.json, GGUF metadata) that end in one graph.
import type { Arch, ArchInput, ArchOutput } from './arch.ts'
import { decoderGraph } from './decoder.ts'
import { fusedName } from './fused.ts'
import { type GgufFamily, ggufIgnored, ggufNames, readGguf } from './gguf.ts'
import { type Family, readHuggingFace } from './huggingface.ts'

export interface FamilyFiles {
  readonly modelType: string
  readonly config: Family
  /** Left out: the family has no GGUF architecture of its own that is known here. */
  readonly gguf?: GgufFamily
  /** Query, key and value, and gate and up, are stored as one matrix each. */
  readonly fused?: boolean
}

export function family(files: FamilyFiles): Arch {
  const { modelType, config, gguf, fused = false } = files
  return {
    modelTypes: [modelType],
    ggufArchitectures: gguf === undefined ? [] : [gguf.architecture],
    build: (input) =>
      input.format === 'gguf' ? fromGguf(input, modelType, gguf!, fused) : fromConfig(input, config, fused),
  }
}

function fromConfig(input: ArchInput, config: Family, fused: boolean): ArchOutput {
  const { spec, ignored, warnings } = readHuggingFace(input, config)
  const graph = decoderGraph(spec)
  const names = new Map(graph.weights.map(({ name }) => [name, fused ? fusedName(spec, name) : name]))
  return { graph, names, ignored, warnings }
}

export function fromGguf(input: ArchInput, name: string, gguf: GgufFamily, fused = false): ArchOutput {
  const { spec, warnings } = readGguf(input, name, gguf)
  const graph = decoderGraph(spec)
  const names = ggufNames(input, graph.weights, gguf, (weight) => (fused ? fusedName(spec, weight) : weight))
  return { graph, names, ignored: ggufIgnored(input, spec), warnings }
}
