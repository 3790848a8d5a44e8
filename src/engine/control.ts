// The words that the engine and its compute threads share. One writer a word, except `done` and the barrier.
//
// A pass: the main thread writes the pass words, bumps `generation` and notifies; every thread runs the whole program
// (program.ts), meets the others at barriers, and adds itself to `done`; the last one notifies.

export const WORD = {
  /** Grows by one a pass; threads sleep on it. */
  generation: 0,
  /** Threads that finished this generation. */
  done: 1,
  /** Not 0: leave the pass at the next check. */
  abort: 2,
  /** Not 0: end the thread. */
  stop: 3,
  barrierCount: 4,
  barrierPhase: 5,
  /** Tokens in this pass, position of the first, pass number of the pager. */
  tokens: 6,
  position: 7,
  pass: 8,
  /** How many tokens want logits; their indices lie at Program.logitTokens. */
  logitTokens: 9,
  /** Address of the sequence's page tables: uint32 [layers, pagesMax]. */
  kvTable: 10,
  /** From here on, a word a thread: microseconds it waited for pages in the last pass. */
  stalls: 32,
} as const

/** Threads an engine may have. */
export const THREADS_MAX = 64
const WORDS = WORD.stalls + THREADS_MAX

export type Control = Int32Array<SharedArrayBuffer>

export function createControl(): Control {
  return new Int32Array(new SharedArrayBuffer(WORDS * 4))
}

/** How long a thread looks before it sleeps. A sleep and wake costs about 20 µs, a look about 10 ns. */
const SPINS = 4000
/** Sleeping threads look at `abort` this often. */
const ABORT_CHECK_MS = 20

/** Waits until all `threads` have come here. False when the pass was aborted. */
export function barrier(control: Control, threads: number): boolean {
  if (threads === 1) return Atomics.load(control, WORD.abort) === 0
  const phase = Atomics.load(control, WORD.barrierPhase)
  if (Atomics.add(control, WORD.barrierCount, 1) === threads - 1) {
    Atomics.store(control, WORD.barrierCount, 0)
    Atomics.add(control, WORD.barrierPhase, 1)
    Atomics.notify(control, WORD.barrierPhase)
    return Atomics.load(control, WORD.abort) === 0
  }
  for (let i = 0; i < SPINS; i++) {
    if (Atomics.load(control, WORD.barrierPhase) !== phase) return Atomics.load(control, WORD.abort) === 0
  }
  while (Atomics.load(control, WORD.barrierPhase) === phase) {
    if (Atomics.load(control, WORD.abort) !== 0) return false
    Atomics.wait(control, WORD.barrierPhase, phase, ABORT_CHECK_MS)
  }
  return Atomics.load(control, WORD.abort) === 0
}
