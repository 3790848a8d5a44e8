// The contract of the engine: token ids in, logits out, memory promised.
import type { Plan } from '../graph/plan.ts'
import type { PagerReport } from '../pager/pager.ts'

/** exact: float32 activations; fast: 8-bit activations where weights are quantized, as llama.cpp has them. */
export type Precision = 'exact' | 'fast'

/** What one run of Sequence.forward gives back. */
export interface ForwardOptions {
  /** Which logits come back: of the last token [vocabulary], of every token [tokens, vocabulary], or none. */
  logits: 'last' | 'all' | 'none'
  signal?: AbortSignal
  /** With logits 'all': called per chunk instead of collecting, rows in order. The array is reused. */
  /** Filled with the experts chosen, [MoE layer][token][rank], best first: for tests and analysis. */
  trace?: { experts: number[][][] }
  onLogits?: (rows: Float32Array, firstToken: number, tokens: number) => void | Promise<void>
}

/** One text being continued: owns its key/value cache. */
export interface Sequence {
  /** Positions in the cache. */
  readonly length: number
  /**
   * Runs ids after what is already there. Returns float32 logits (empty for 'none').
   * Throws REQUEST_INVALID (id out of range), CONTEXT_FULL, BUDGET_EXCEEDED, ABORTED; after a throw the sequence stands where it stood.
   */
  forward(ids: readonly number[], options: ForwardOptions): Promise<Float32Array>
  /** Forgets positions from `length` on. */
  truncate(length: number): void
  /** Gives its cache back. Safe twice; forward then throws CLOSED. */
  release(): void
}

/** What an engine holds and did. Bytes. */
export interface EngineReport {
  readonly precision: Precision
  readonly kernels: string
  readonly threads: number
  readonly budgetBytes: number
  /** Highest resident set of the process seen so far. */
  readonly peakBytes: number
  readonly byOwner: Readonly<Record<string, number>>
  readonly pager: PagerReport
}

/** A model that is ready to run, within its budget. Passes of its sequences take turns. */
export interface Engine {
  readonly plan: Plan
  readonly vocabulary: number
  readonly contextLength: number
  /** An empty text. Throws BUDGET_EXCEEDED when too many are in use, CLOSED. */
  createSequence(): Sequence
  /** What it holds and did so far. */
  report(): EngineReport
  /** Stops threads and gives everything back. Safe at any time, twice. */
  close(): Promise<void>
}
