// How work is divided: thread t of n takes a contiguous part, in multiples of a unit.

/** Rows and columns are divided in whole panels. */
export const UNIT = 16

export class Share {
  readonly thread: number
  readonly threads: number

  constructor(thread: number, threads: number) {
    this.thread = thread
    this.threads = threads
  }

  /** First of this thread's part of n things. */
  from(n: number, unit: number, thread = this.thread): number {
    return Math.min(n, Math.floor((Math.ceil(n / unit) * thread) / this.threads) * unit)
  }

  /** One past the last. */
  to(n: number, unit: number): number {
    return this.from(n, unit, this.thread + 1)
  }
}
