// The main thread's handle on the reader: a worker thread for files, or the same loop on this thread for other sources.
import { createHash } from 'node:crypto'
import { Worker } from 'node:worker_threads'
import { InferenceError, SluiceError } from '../base/errors.ts'
import { publish } from '../base/events.ts'
import { fromPlainError } from '../base/transfer.ts'
import type { ByteSource } from '../source/source.ts'
import type { FromReader, ReaderInput, ToReader } from './messages.ts'
import { createStream, type StreamHooks, type StreamInput } from './stream.ts'

export interface ReaderHandle {
  /** Resolves when reading began. */
  readonly started: Promise<void>
  reset(pass: number): Promise<void>
  /** Ends it; resolves when it is gone. */
  stop(): Promise<void>
}

/** A thread that hangs in a read (a dead network disk) is ended without its consent after this. */
const STOP_MS = 5000

/** The reader's heap stays small: its bytes lie outside of it. */
const RESOURCE_LIMITS = { maxOldGenerationSizeMb: 64, maxYoungGenerationSizeMb: 4, codeRangeSizeMb: 16 }

/** Starts the reader thread. `onError`: a read failed, or the thread died. */
export function startReaderThread(input: ReaderInput, onError: (error: Error) => void): ReaderHandle {
  const worker = new Worker(new URL('./reader-worker.js', import.meta.url), {
    workerData: input,
    name: 'sluice reader',
    execArgv: [], // a program started with --input-type or --eval has options that a file cannot be run with
    resourceLimits: RESOURCE_LIMITS,
  })
  const resets = new Map<number, { resolve(): void; reject(error: Error): void }>()
  let nextId = 1
  let stopping = false
  let dead: Error | undefined
  const started = settleable()
  const exited = new Promise<void>((resolve) => {
    worker.once('exit', (code) => {
      if (stopping) end(new SluiceError('CLOSED', { what: 'the pager was closed' }))
      else died(new InferenceError('WORKER_FAILED', { what: 'the reader thread ended', got: `exit code ${code}` }))
      resolve()
    })
  })
  started.promise.catch(() => {}) // whoever awaits it sees it; nobody has to
  // An idle reader keeps no process alive; one that somebody waits for does.
  const idle = (): void => {
    if (!stopping && resets.size === 0) worker.unref()
  }
  void started.promise.then(idle, idle)

  /** Whoever waits for the thread waits no longer. Promises that are settled stay as they are. */
  function end(error: Error): void {
    dead ??= error
    started.reject(error)
    for (const r of resets.values()) r.reject(error)
    resets.clear()
  }

  function died(error: Error): void {
    if (dead !== undefined) return // it refused to start, or an uncaught error came before this exit
    end(error)
    onError(error)
  }

  worker.on('error', (cause) =>
    died(new InferenceError('WORKER_FAILED', { what: 'the reader thread failed', got: cause.message, cause })),
  )
  worker.on('message', (message: FromReader) => {
    if (message.kind === 'started') started.resolve()
    else if (message.kind === 'refused') end(fromPlainError(message.error))
    else if (message.kind === 'page') publish('page', () => message.page)
    else if (message.kind === 'failed') onError(fromPlainError(message.error))
    else {
      resets.get(message.id)?.resolve()
      resets.delete(message.id)
      idle()
    }
  })
  const say = (message: ToReader): void => worker.postMessage(message)

  return {
    started: started.promise,
    reset(pass) {
      if (dead !== undefined) return Promise.reject(dead)
      const id = nextId++
      return new Promise((resolve, reject) => {
        resets.set(id, { resolve, reject })
        worker.ref()
        say({ kind: 'reset', id, pass })
      })
    },
    async stop() {
      stopping = true
      worker.ref()
      say({ kind: 'stop' })
      const timer = setTimeout(() => void worker.terminate(), STOP_MS)
      await exited
      clearTimeout(timer)
    },
  }
}

interface Settleable {
  readonly promise: Promise<void>
  resolve(): void
  reject(error: Error): void
}

// Promise.withResolvers came with Node 22.
function settleable(): Settleable {
  let resolve!: () => void
  let reject!: (error: Error) => void
  const promise = new Promise<void>((yes, no) => {
    resolve = yes
    reject = no
  })
  return { promise, resolve, reject }
}

/** Runs the loop on this thread, over sources that stay open afterwards: they are the model's. */
export function startReaderHere(
  input: StreamInput,
  sources: readonly ByteSource[],
  repack: StreamHooks['repack'],
  onError: (error: Error) => void,
  news: boolean,
): ReaderHandle {
  const stream = createStream(input, new Map(sources.entries()), {
    ...(repack === undefined ? {} : { repack }),
    sha256: (bytes) => createHash('sha256').update(bytes).digest(),
    onError: (error) => onError(error instanceof Error ? error : new Error(String(error))),
    ...(news ? { onPage: (page) => publish('page', () => page) } : {}),
  })
  stream.start()
  return { started: Promise.resolve(), reset: (pass) => stream.reset(pass), stop: () => stream.stop() }
}
