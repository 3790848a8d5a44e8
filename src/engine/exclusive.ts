// One thing at a time, in order of asking.

export class Exclusive {
  #tail: Promise<unknown> = Promise.resolve()

  run<T>(work: () => Promise<T>): Promise<T> {
    const next = this.#tail.then(work)
    this.#tail = next.catch(() => undefined)
    return next
  }

  /** Resolves when everything asked for so far is done. */
  async idle(): Promise<void> {
    await this.#tail
  }
}
