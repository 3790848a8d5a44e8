// A real, small language model: the chances of the next token are its counts in a text, after the token before. It keeps the contract of
// Sequence: positions, ranges, context, cancelling, and a sequence that stands where it stood after an error.
import { SluiceError } from '#sluice/base/errors.js'
import type { ForwardOptions, Sequence } from '#sluice/engine/engine.js'

export class MarkovSequence implements Sequence {
  readonly #counts = new Map<number, Map<number, number>>()
  readonly #vocabulary: number
  readonly #context: number
  readonly #ids: number[] = []
  released = false
  /** Called at each forward. */
  onForward: (() => void) | undefined

  constructor(text: readonly number[], vocabulary: number, context = 1024) {
    this.#vocabulary = vocabulary
    this.#context = context
    for (let i = 0; i + 1 < text.length; i++) {
      const [from, to] = [text[i] as number, text[i + 1] as number]
      const row = this.#counts.get(from) ?? new Map<number, number>()
      row.set(to, (row.get(to) ?? 0) + 1)
      this.#counts.set(from, row)
    }
  }

  get length(): number {
    return this.#ids.length
  }

  /** log(count + 1/1000): every token is possible. */
  #logits(id: number): Float32Array {
    const logits = new Float32Array(this.#vocabulary).fill(Math.log(0.001))
    for (const [to, count] of this.#counts.get(id) ?? []) logits[to] = Math.log(count + 0.001)
    return logits
  }

  async forward(ids: readonly number[], options: ForwardOptions): Promise<Float32Array> {
    this.onForward?.()
    // As an engine with threads: the answer comes in a later turn of the event loop.
    await new Promise((resolve) => setImmediate(resolve))
    if (options.signal?.aborted) throw new SluiceError('ABORTED', { what: 'cancelled' })
    for (const id of ids)
      if (id >= this.#vocabulary)
        throw new SluiceError('REQUEST_INVALID', { what: 'token id is out of range', got: id })
    if (this.#ids.length + ids.length > this.#context)
      throw new SluiceError('CONTEXT_FULL', { what: 'the context is full' })
    this.#ids.push(...ids)
    return options.logits === 'none' ? new Float32Array(0) : this.#logits(ids.at(-1) as number)
  }

  truncate(length: number): void {
    this.#ids.length = Math.min(length, this.#ids.length)
  }

  release(): void {
    this.released = true
  }
}
