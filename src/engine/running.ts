// The engine at work: sequences, passes, report, end.
import { BudgetError, SluiceError, throwIfAborted } from '../base/errors.ts'
import type { Plan, PlanRope } from '../graph/plan.ts'
import { peakResident } from '../memory/machine.ts'
import type { Budget } from '../memory/memory.ts'
import { CONTROL, type WeightPager } from '../pager/pager.ts'
import type { Bound } from './bind.ts'
import type { Engine, EngineReport, ForwardOptions, Precision, Sequence } from './engine.ts'
import { Exclusive, unlessAborted } from './exclusive.ts'
import { KvPool, KvTable } from './kv.ts'
import { type Layout, SEQUENCES_MAX } from './layout.ts'
import { timePass, watchLoad } from './news.ts'
import { writeRopeTable } from './rope-table.ts'
import { EngineSequence, type PassRunner } from './sequence.ts'
import type { Threads } from './threads.ts'
import type { Weights } from './weights.ts'

/** Logits collected for a caller up to this size are part of what the process is allowed anyway (allowance.ts). */
const COLLECT_BYTES = 8 * 1024 * 1024

export interface Parts {
  readonly plan: Plan
  readonly layout: Layout
  readonly bound: Bound
  readonly pager: WeightPager
  readonly threads: Threads
  readonly weights: Weights
  readonly memory: WebAssembly.Memory
  readonly budget: Budget
  readonly precision: Precision
  readonly kernels: string
  readonly context: number
  /** The plan's rotary tables, with factors from the model applied. */
  readonly ropes: readonly PlanRope[]
}

export class RunningEngine implements Engine, PassRunner {
  readonly #p: Parts
  readonly #turn = new Exclusive()
  readonly #pool: KvPool
  readonly #freeTables: number[]
  #pass = 0
  /** The reader starting over after an aborted pass: the next pass waits for it, the caller who aborted does not. */
  #restart: Promise<void> | undefined
  /** The reader's last failure. Its message may come later than the threads' leaving, but before the answer to a reset. */
  #failure: Error | undefined
  #closed: Promise<void> | undefined

  constructor(parts: Parts) {
    this.#p = parts
    const { layout, bound, plan } = parts
    this.#pool = new KvPool(bound.kv, layout.kvBlockBytes, layout.kvBlocks)
    const tableBytes = plan.kv.length * layout.pagesMax * 4
    parts.pager.onError((error) => {
      this.#failure = error
    })
    this.#freeTables = Array.from({ length: SEQUENCES_MAX }, (_, i) => bound.kvTables + i * tableBytes)
  }

  get plan(): Plan {
    return this.#p.plan
  }
  get vocabulary(): number {
    return this.#p.plan.vocabulary
  }
  get contextLength(): number {
    return this.#p.context
  }
  get context(): number {
    return this.#p.context
  }
  get tokensMax(): number {
    return this.#p.layout.tokensMax
  }
  get logitRows(): number {
    return this.#p.layout.logitRows
  }

  createSequence(): Sequence {
    this.#check()
    const at = this.#freeTables.pop()
    if (at === undefined)
      throw new SluiceError('BUDGET_EXCEEDED', {
        what: 'too many sequences at a time',
        expected: `≤ ${SEQUENCES_MAX}`,
        got: SEQUENCES_MAX + 1,
        remedy: 'Release a sequence first.',
      })
    const { plan, layout, memory } = this.#p
    const words = new Uint32Array(memory.buffer, at, plan.kv.length * layout.pagesMax)
    return new EngineSequence(this, new KvTable(this.#pool, layout.kvLayers, words, layout.pagesMax), at)
  }

  exclusive<T>(work: () => Promise<T>, signal?: AbortSignal): Promise<T> {
    return this.#turn.run(work, signal)
  }

  hold(bytes: number): () => void {
    if (bytes <= COLLECT_BYTES) return () => undefined
    try {
      const held = this.#p.budget.reserve(bytes, 'scratch', 'logits of all tokens')
      return () => held.release()
    } catch (cause) {
      throw new BudgetError('BUDGET_EXCEEDED', {
        what: 'logits of all tokens do not fit into the memory budget',
        got: `${bytes} bytes`,
        remedy: 'Take them in parts with onLogits, or give more memory.',
        details: { wantedBytes: bytes, availableBytes: this.#p.budget.available },
        cause,
      })
    }
  }

  released(kvTable: number): void {
    this.#freeTables.push(kvTable)
  }

  async pass(
    ids: readonly number[],
    position: number,
    firstLogit: number,
    kvTable: number,
    options: ForwardOptions,
  ): Promise<void> {
    this.#check()
    const { bound, memory, threads, pager } = this.#p
    const { signal } = options
    // Disks may hang: whoever aborts does not wait for them.
    const rows = await unlessAborted(this.#embeddingRows(ids, signal), signal)
    await unlessAborted(pager.start(), signal)
    // A read ahead failed after the last pass: perhaps it was the disk's mood, and this call is worth a new try.
    if (Atomics.load(pager.shared.control, CONTROL.failed) !== 0) this.#restart ??= pager.reset(this.#pass + 1)
    if (this.#restart !== undefined) await unlessAborted(this.#restart, signal)
    this.#restart = undefined
    this.#check()
    this.#embed(rows, ids.length)
    this.#p.ropes.forEach((rope, i) => {
      const { address, half } = bound.program.ropes[i]!
      writeRopeTable(rope, position, ids.length, new Float32Array(memory.buffer, address, ids.length * half * 2))
    })
    const wanted = new Int32Array(memory.buffer, bound.program.logitTokens, ids.length)
    for (let i = firstLogit; i < ids.length; i++) wanted[i - firstLogit] = i
    const pass = ++this.#pass
    const logits = ids.length - firstLogit
    const loaded = pass === 1 ? watchLoad(pager) : () => undefined
    const ended = timePass(pager, () => threads.stallMs, { pass, tokens: ids.length, position, logits })
    let done = false
    try {
      done = await threads.run({ tokens: ids.length, position, pass, logitTokens: logits, kvTable }, signal)
    } finally {
      loaded()
      ended(done ? 'done' : signal?.aborted ? 'aborted' : 'failed')
    }
    if (!done) await this.#recover(signal)
    if (options.trace !== undefined) this.#trace(options.trace, ids.length)
  }

  /** After a pass that did not end: the reader starts over, and the reason is thrown. */
  async #recover(signal: AbortSignal | undefined): Promise<never> {
    this.#check()
    this.#restart = this.#p.pager.reset(this.#pass + 1)
    this.#restart.catch(() => undefined) // the next pass hears of it
    throwIfAborted(signal)
    await this.#restart
    throw this.#failure ?? new SluiceError('INTERNAL', { what: 'pass ended without a reason' })
  }

  /** Rows of the embedding, read one by one: a token costs its row, not the matrix. float32 [tokens, width]. */
  #embeddingRows(ids: readonly number[], signal: AbortSignal | undefined): Promise<Float32Array> {
    const { plan, weights } = this.#p
    const step = plan.steps[0] as Extract<Plan['steps'][number], { op: 'embed' }> // bind() made sure of it
    return weights.tensor(step.weight).rowsAt(ids, signal === undefined ? {} : { signal })
  }

  #embed(rows: Float32Array, tokens: number): void {
    const { plan, bound, memory } = this.#p
    const { scale } = plan.steps[0] as Extract<Plan['steps'][number], { op: 'embed' }>
    const { address, stride, width } = bound.embedding
    const out = new Float32Array(memory.buffer, address, tokens * stride)
    for (let t = 0; t < tokens; t++) {
      const row = rows.subarray(t * width, (t + 1) * width)
      if (scale === 1) out.set(row, t * stride)
      else for (let i = 0; i < width; i++) out[t * stride + i] = row[i]! * scale
    }
  }

  #trace(trace: { experts: number[][][] }, tokens: number): void {
    const { bound, memory } = this.#p
    bound.program.routes.forEach((r, layer) => {
      const choices = new Int32Array(memory.buffer, r.choices, tokens * r.topK)
      trace.experts[layer] ??= []
      for (let t = 0; t < tokens; t++) trace.experts[layer]!.push([...choices.subarray(t * r.topK, (t + 1) * r.topK)])
    })
  }

  logits(row: number): Float32Array {
    const { address, stride, width } = this.#p.bound.logits
    return new Float32Array(this.#p.memory.buffer, address + row * stride * 4, width)
  }

  report(): EngineReport {
    const { precision, kernels, threads, budget, pager } = this.#p
    return {
      precision,
      kernels,
      threads: threads.count,
      budgetBytes: budget.total,
      peakBytes: peakResident(),
      byOwner: budget.report(),
      pager: pager.report(),
    }
  }

  #check(): void {
    if (this.#closed !== undefined) throw new SluiceError('CLOSED', { what: 'engine is closed' })
  }

  close(): Promise<void> {
    this.#closed ??= (async () => {
      await this.#p.threads.close()
      await this.#p.pager.close()
      await this.#p.weights.close()
    })()
    return this.#closed
  }
}
