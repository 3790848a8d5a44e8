// The compute threads: started once, asleep between passes, told nothing but a number.
import { Worker } from 'node:worker_threads'
import { InferenceError, SluiceError } from '../base/errors.ts'
import { CONTROL, type SharedPages } from '../pager/pager.ts'
import { type Control, createControl, WORD } from './control.ts'
import type { Program } from './program.ts'

export interface ThreadSetup {
  readonly thread: number
  readonly threads: number
  readonly control: Control
  readonly pages: SharedPages
  readonly memories: readonly WebAssembly.Memory[]
  readonly program: Program
  readonly kernels: unknown
}

/** V8 heaps of compute threads stay small: they allocate next to nothing. */
const RESOURCE_LIMITS = { maxOldGenerationSizeMb: 24, maxYoungGenerationSizeMb: 2, codeRangeSizeMb: 16, stackSizeMb: 1 }

export class Threads {
  readonly #workers: Worker[] = []
  readonly #control: Control = createControl()
  readonly #pages: SharedPages
  #failure: Error | undefined
  #closed = false
  #closing: Promise<void> | undefined

  private constructor(pages: SharedPages) {
    this.#pages = pages
  }

  static async start(count: number, setup: Omit<ThreadSetup, 'thread' | 'threads' | 'control'>): Promise<Threads> {
    const t = new Threads(setup.pages)
    const ready = Array.from({ length: count }, (_, thread) =>
      t.#spawn({ ...setup, thread, threads: count, control: t.#control }),
    )
    try {
      await Promise.all(ready)
    } catch (err) {
      await t.close()
      throw err
    }
    for (const w of t.#workers) w.unref()
    return t
  }

  get count(): number {
    return this.#workers.length
  }

  /** Milliseconds that the thread which waited most for pages waited in the last pass. */
  get stallMs(): number {
    return Math.max(...this.#control.subarray(WORD.stalls, WORD.stalls + this.count)) / 1000
  }

  #spawn(setup: ThreadSetup): Promise<void> {
    const worker = new Worker(new URL('./worker.js', import.meta.url), {
      workerData: setup,
      resourceLimits: RESOURCE_LIMITS,
      execArgv: [],
    })
    this.#workers.push(worker)
    return new Promise((resolve, reject) => {
      const fail = (err: Error) => {
        this.#fail(err)
        reject(this.#failure)
      }
      worker.on('message', (m: { ready?: true; error?: string; stack?: string }) => {
        if (m.ready) resolve()
        else
          fail(
            new InferenceError('WORKER_FAILED', {
              what: 'compute thread failed',
              where: `thread ${setup.thread}`,
              got: m.error,
              details: { stack: m.stack },
            }),
          )
      })
      worker.on('error', (cause) =>
        fail(
          new InferenceError('WORKER_FAILED', {
            what: 'compute thread ended',
            where: `thread ${setup.thread}`,
            got: cause.message,
            cause,
          }),
        ),
      )
      worker.on('exit', (code) => {
        if (!this.#closed)
          fail(
            new InferenceError('WORKER_FAILED', {
              what: 'compute thread ended',
              where: `thread ${setup.thread}`,
              got: `exit code ${code}`,
            }),
          )
      })
    })
  }

  /** A thread that is gone counts as done, so that nobody waits for it. */
  #fail(err: Error): void {
    if (this.#closed) return
    this.#failure ??= err
    this.#abort()
    Atomics.store(this.#control, WORD.done, this.#workers.length)
    Atomics.notify(this.#control, WORD.done)
  }

  /**
   * One pass. Resolves true when all threads ran to the end, false when the pass was aborted or the pager's reader failed.
   * Throws WORKER_FAILED when a thread is gone: the engine is then unusable.
   */
  async run(
    words: { tokens: number; position: number; pass: number; logitTokens: number; kvTable: number },
    signal?: AbortSignal,
  ): Promise<boolean> {
    if (this.#failure) throw this.#failure
    if (this.#closed) throw new SluiceError('CLOSED', { what: 'engine is closed' })
    const c = this.#control
    c[WORD.tokens] = words.tokens
    c[WORD.position] = words.position
    c[WORD.pass] = words.pass
    c[WORD.logitTokens] = words.logitTokens
    c[WORD.kvTable] = words.kvTable
    Atomics.store(c, WORD.barrierCount, 0)
    Atomics.store(c, WORD.abort, 0)
    Atomics.store(this.#pages.control, CONTROL.abort, 0)
    Atomics.store(c, WORD.done, 0)
    for (const w of this.#workers) w.ref() // keep the process alive while a pass runs
    const abort = () => this.#abort()
    signal?.addEventListener('abort', abort, { once: true })
    if (signal?.aborted) abort() // an event that is past is not heard
    Atomics.add(c, WORD.generation, 1)
    Atomics.notify(c, WORD.generation)
    try {
      for (;;) {
        const done = Atomics.load(c, WORD.done)
        if (done >= this.#workers.length) break
        const wait = Atomics.waitAsync(c, WORD.done, done)
        if (wait.async) await wait.value
      }
    } finally {
      signal?.removeEventListener('abort', abort)
      for (const w of this.#workers) w.unref()
    }
    if (this.#failure) throw this.#failure
    return Atomics.load(c, WORD.abort) === 0
  }

  /** Threads look at these words at least every 20 ms, also while they wait for a page or for each other. */
  #abort(): void {
    Atomics.store(this.#control, WORD.abort, 1)
    Atomics.store(this.#pages.control, CONTROL.abort, 1)
    Atomics.notify(this.#control, WORD.barrierPhase)
  }

  /** Ends the threads, also in the middle of a pass. Safe at any time, twice: every call resolves when they are gone. */
  close(): Promise<void> {
    this.#closing ??= this.#close()
    return this.#closing
  }

  async #close(): Promise<void> {
    this.#closed = true
    this.#abort()
    Atomics.store(this.#control, WORD.stop, 1)
    Atomics.add(this.#control, WORD.generation, 1)
    Atomics.notify(this.#control, WORD.generation)
    await Promise.all(this.#workers.map((w) => w.terminate()))
    Atomics.store(this.#control, WORD.done, this.#workers.length)
    Atomics.notify(this.#control, WORD.done)
  }
}
