// The contract of the engine: token ids in, logits out, memory promised.
import type { Plan } from '../graph/plan.ts'
import type { PagerReport } from '../pager/pager.ts'

export type Precision = 'exact' | 'fast'

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
   * Throws REQUEST_INVALID (id out of range), CONTEXT_FULL, BUDGET_EXCEEDED, LOGITS_INVALID (NaN or Infinity), ABORTED; after a throw the sequence stands where it stood.
   */
  forward(ids: readonly number[], options: ForwardOptions): Promise<Float32Array>
  /** Forgets positions from `length` on. Throws REQUEST_INVALID (also while forward runs), CLOSED. */
  truncate(length: number): void
  release(): void
}

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

export interface Engine {
  readonly plan: Plan
  readonly vocabulary: number
  readonly contextLength: number
  createSequence(): Sequence
  report(): EngineReport
  /** Stops threads and gives everything back. Safe at any time, twice. */
  close(): Promise<void>
}
