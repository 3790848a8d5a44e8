// The likeliest tokens first, without sorting the vocabulary: a heap over ids, built in O(n), O(log n) a token taken.

/** Takes ids in the order (logit descending, id ascending). */
export class TokenHeap {
  readonly #logits: Float64Array
  readonly #ids: Uint32Array
  #size: number

  /** `logits` [vocabulary]; ids with -Infinity are left out. */
  constructor(logits: Float64Array) {
    this.#logits = logits
    this.#ids = new Uint32Array(logits.length)
    let n = 0
    for (let id = 0; id < logits.length; id++) if (logits[id] !== Number.NEGATIVE_INFINITY) this.#ids[n++] = id
    this.#size = n
    for (let i = Math.floor(n / 2) - 1; i >= 0; i--) this.#sink(i)
  }

  /** The next id, or undefined when all were taken. */
  take(): number | undefined {
    if (this.#size === 0) return undefined
    const ids = this.#ids
    const top = ids[0] as number
    ids[0] = ids[--this.#size] as number
    this.#sink(0)
    return top
  }

  #before(a: number, b: number): boolean {
    const x = this.#logits[a] as number
    const y = this.#logits[b] as number
    return x > y || (x === y && a < b)
  }

  #sink(start: number): void {
    const ids = this.#ids
    const id = ids[start] as number
    let at = start
    for (;;) {
      let child = 2 * at + 1
      if (child >= this.#size) break
      if (child + 1 < this.#size && this.#before(ids[child + 1] as number, ids[child] as number)) child++
      if (!this.#before(ids[child] as number, id)) break
      ids[at] = ids[child] as number
      at = child
    }
    ids[at] = id
  }
}
