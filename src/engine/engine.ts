// The contract of the engine: token ids in, logits out, memory promised.
import type { Plan } from '../graph/plan.ts'
import type { PagerReport } from '../pager/pager.ts'

/**
 * exact: float32 throughout, logits within 1e-3 of a float64 computation over the same weights. fast: with block-quantized weights activations are
 * rounded to int8 blocks, and the cache to 16 bits: logits move by about 1 % of their spread (root mean square; test/engine/fast.test.ts).
 */
export type Precision = 'exact' | 'fast'

export interface ForwardOptions {
  /** Which logits come back: of the last token [vocabulary], of every token [tokens, vocabulary], or none. */
  logits: 'last' | 'all' | 'none'
  /** Ends the call with ABORTED, within 100 ms also in the middle of a pass. */
  signal?: AbortSignal
  /** Filled with the experts chosen, [MoE layer][token][rank], best first: for tests and analysis. */
  trace?: { experts: number[][][] }
  /**
   * With logits 'all': called per chunk instead of collecting, rows in order, and awaited. The array is reused. Other sequences go on meanwhile;
   * what it throws, forward throws.
   */
  onLogits?: (rows: Float32Array, firstToken: number, tokens: number) => void | Promise<void>
}

/** One text being continued: owns its key/value cache. */
export interface Sequence {
  /** Positions in the cache. */
  readonly length: number
  /**
   * Runs ids after what is already there. Returns float32 logits (empty for 'none').
   * A sequence runs one call at a time; calls of several sequences take turns, a chunk of the prompt each.
   * Throws REQUEST_INVALID (id out of range, another call is running), CONTEXT_FULL, BUDGET_EXCEEDED (cache, or logits that are collected),
   * LOGITS_INVALID (NaN or Infinity), ABORTED, CLOSED, and what reading weights throws (SOURCE_*, CHECKSUM_MISMATCH); after a throw the sequence stands where it stood and the
   * engine works on. WORKER_FAILED: a thread is gone, the engine can only be closed.
   */
  forward(ids: readonly number[], options: ForwardOptions): Promise<Float32Array>
  /** Forgets positions from `length` on. Throws REQUEST_INVALID while a call is running. */
  truncate(length: number): void
  /** Gives its cache back; a call that is running ends with CLOSED. Safe at any time, twice. */
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
  /**
   * Stops threads and gives everything back. Safe at any time, twice; calls that are running end with CLOSED. An engine that is idle keeps no
   * process alive, closed or not.
   */
  close(): Promise<void>
}
