// The engine at work: sequences, passes, report, end.
import { SluiceError, throwIfAborted } from '../base/errors.ts'
import type { Plan, PlanRope } from '../graph/plan.ts'
import { peakResident } from '../memory/machine.ts'
import type { Budget } from '../memory/memory.ts'
import { CONTROL, type WeightPager } from '../pager/pager.ts'
import type { Bound } from './bind.ts'
import type { Engine, EngineReport, ForwardOptions, Precision, Sequence } from './engine.ts'
import { Exclusive } from './exclusive.ts'
import { KvPool, KvTable } from './kv.ts'
import { type Layout, SEQUENCES_MAX } from './layout.ts'
import { writeRopeTable } from './rope-table.ts'
import { EngineSequence, type PassRunner } from './sequence.ts'
import type { Threads } from './threads.ts'
import type { Weights } from './weights.ts'

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
  #closed: Promise<void> | undefined
  readonly #closing: { readonly promise: Promise<undefined>; resolve(): void }

  constructor(parts: Parts) {
    this.#p = parts
    let closing!: () => void
    const promise = new Promise<undefined>((resolve) => {
      closing = () => resolve(undefined)
    })
    this.#closing = { promise, resolve: closing }
    const { layout, bound, plan } = parts
    this.#pool = new KvPool(bound.kv, layout.kvBlockBytes, layout.kvBlocks)
    const tableBytes = plan.kv.length * layout.pagesMax * 4
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

  exclusive<T>(work: () => Promise<T>): Promise<T> {
    return this.#turn.run(work)
  }

  released(kvTable: number): void {
    this.#freeTables.push(kvTable)
  }

  async pass(
    ids: readonly number[],
    position: number,
    firstLogit: number,
    _table: KvTable,
    kvTable: number,
    options: ForwardOptions,
  ): Promise<void> {
    this.#check()
    const { bound, memory, threads, pager } = this.#p
    await this.#embed(ids)
    throwIfAborted(options.signal)
    this.#check()
    this.#p.ropes.forEach((rope, i) => {
      const { address, half } = bound.program.ropes[i]!
      writeRopeTable(rope, position, ids.length, new Float32Array(memory.buffer, address, ids.length * half * 2))
    })
    const wanted = new Int32Array(memory.buffer, bound.program.logitTokens, ids.length)
    for (let i = firstLogit; i < ids.length; i++) wanted[i - firstLogit] = i
    await pager.start()
    const pass = ++this.#pass
    const done = await threads.run(
      { tokens: ids.length, position, pass, logitTokens: ids.length - firstLogit, kvTable },
      options.signal,
    )
    if (!done) await this.#recover(options.signal)
    if (options.trace !== undefined) this.#trace(options.trace, ids.length)
  }

  /** After a pass that did not end: the reader starts over, and the reason is thrown. */
  async #recover(signal: AbortSignal | undefined): Promise<never> {
    const { pager } = this.#p
    const failure = await this.#readerFailure()
    if (failure !== undefined) throw failure
    this.#check()
    await pager.reset(this.#pass + 1)
    throwIfAborted(signal)
    this.#check()
    throw new SluiceError('INTERNAL', { what: 'pass ended without a reason' })
  }

  /** The reader raises its word first and sends the error after it: threads may have left before the error is here. */
  async #readerFailure(): Promise<Error | undefined> {
    const { pager } = this.#p
    if (pager.failure !== undefined || Atomics.load(pager.shared.control, CONTROL.failed) === 0) return pager.failure
    return Promise.race([new Promise<Error>((resolve) => pager.onError(resolve)), this.#closing.promise])
  }

  /** Rows of the embedding, read one by one: a token costs its row, not the matrix. */
  async #embed(ids: readonly number[]): Promise<void> {
    const { plan, bound, weights, memory } = this.#p
    const step = plan.steps[0]!
    if (step.op !== 'embed') return
    const rows = await weights.tensor(step.weight).rowsAt(ids)
    const { address, stride, width } = bound.embedding
    const out = new Float32Array(memory.buffer, address, ids.length * stride)
    for (let t = 0; t < ids.length; t++) {
      const row = rows.subarray(t * width, (t + 1) * width)
      if (step.scale === 1) out.set(row, t * stride)
      else for (let i = 0; i < width; i++) out[t * stride + i] = row[i]! * step.scale
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
    this.#closing.resolve()
    this.#closed ??= (async () => {
      await this.#p.threads.close()
      await this.#p.pager.close()
    })()
    return this.#closed
  }
}
