// The contract of a model family: configuration → graph and tensor names. One file a model_type; nothing else knows a family.
import type { JsonObject } from '../base/json.ts'
import type { Graph } from '../graph/graph.ts'

/** What a family may look at: never tensor bytes. */
export interface ArchInput {
  /** config.json, or GGUF metadata (keys like "llama.block_count"). */
  readonly config: JsonObject
  readonly format: 'safetensors' | 'gguf'
  /** Shapes row-major, slowest first ([out, in] for a Linear weight), in every format. */
  readonly tensors: ReadonlyMap<string, { readonly shape: readonly number[] }>
}

export interface ArchOutput {
  readonly graph: Graph
  /**
   * Weight name in the graph (the family's Hugging Face name) → tensor name in the model. Complete: every weight of the graph.
   * `<tensor>#<e>` is part e of a tensor stacked along axis 0 ([experts, out, in]): rows [e·out, (e+1)·out) of its matrix view.
   * `<tensor>[<a>:<b>]` are rows a … b−1 of a matrix, as query, key and value in one tensor.
   * Resolve names with graph/tensors.ts `findTensor`.
   */
  readonly names: ReadonlyMap<string, string>
  /** Tensors of the model that are known and not needed (recomputed tables such as rotary_emb.inv_freq). Any other leftover is TENSOR_UNEXPECTED. */
  readonly ignored: ReadonlySet<string>
  /** What a person should know: configuration fields nobody here knows, tensors left out. Sentences; never silent. */
  readonly warnings: readonly string[]
}

export interface Arch {
  /** config.json model_type values and GGUF general.architecture values this file handles. */
  readonly modelTypes: readonly string[]
  readonly ggufArchitectures: readonly string[]
  build(input: ArchInput): ArchOutput
}
