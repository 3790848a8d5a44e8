// architecture.json: the computational graph of WIA-AI-014 as plain data. validate.ts says what is accepted, docs/FORMAT.md specifies it.
import type { JsonValue } from '../base/json.ts'

/** An input or output of a graph. */
export interface ValueInfo {
  readonly name: string
  readonly dtype: string
  /** Numbers or symbolic names ("tokens"); -1 is read with a warning, never written. */
  readonly shape: readonly (number | string)[]
}

export interface GraphNode {
  readonly name: string
  readonly op: string
  /** 'ai.onnx' for ONNX operators ('' in a file is read as that), 'ai.wia' for ours. */
  readonly domain: string
  readonly inputs: readonly string[]
  readonly outputs: readonly string[]
  readonly attributes: { readonly [key: string]: JsonValue }
  /** Tensor names this node reads, in the operator's order. */
  readonly weights: readonly string[]
}

/** The architecture of a model as a DAG of operators (docs/GRAPH.md). */
export interface Graph {
  /** model_type the graph was made from: information only. */
  readonly name: string
  readonly opsets: readonly { readonly domain: string; readonly version: number }[]
  readonly inputs: readonly ValueInfo[]
  readonly outputs: readonly ValueInfo[]
  readonly nodes: readonly GraphNode[]
  /** Shapes of the weights the nodes name: what the tensor index is checked against. */
  readonly weights: readonly { readonly name: string; readonly shape: readonly number[] }[]
  readonly contextLength: number
}
