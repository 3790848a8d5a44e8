// Where the logits of the next token come from: a pass a token, or one pass over a token and a draft of what may follow. The caller
// samples from the same logits either way (a pass over several tokens is bit-identical to one after the other), so the text is the
// same with and without a draft, greedy or seeded; a draft only decides how many passes it takes.
import type { Sequence } from '../engine/engine.ts'
import { lookup } from './lookup.ts'

export interface DraftCount {
  /** Tokens proposed, and how many of them the model then chose itself. */
  readonly drafted: number
  readonly accepted: number
}

export class Decoder {
  readonly #sequence: Sequence
  readonly #signal: AbortSignal | undefined
  readonly #draftK: number
  readonly #contextLength: number
  /** Positions of the sequence that came before `history`. */
  readonly #before: number
  /** The last pass: tokens run, where the first of them stands in the history, and logits after each. */
  #fed: readonly number[] = []
  #start = 0
  #rows: Float32Array = new Float32Array(0)
  #drafted = 0
  #accepted = 0

  constructor(sequence: Sequence, options: { signal: AbortSignal | undefined; draftK: number; contextLength: number }) {
    this.#sequence = sequence
    this.#signal = options.signal
    this.#draftK = options.draftK
    this.#contextLength = options.contextLength
    this.#before = sequence.length
  }

  get count(): DraftCount {
    return { drafted: this.#drafted, accepted: this.#accepted }
  }

  /** Runs the prompt; logits after its last token. */
  prefill(prompt: readonly number[]): Promise<Float32Array> {
    this.#start = prompt.length // nothing is known of what follows
    return this.#forward(prompt, 'last')
  }

  /** Logits after the last token of `history`, which is the prompt and all tokens since. */
  async next(history: readonly number[]): Promise<Float32Array> {
    const last = history.length - 1
    const at = last - this.#start
    if (at > 0 && at < this.#fed.length && history[last] === this.#fed[at]) {
      this.#accepted++
      return this.#row(at)
    }
    this.#forget(last)
    const room = this.#contextLength - this.#sequence.length - 1
    const draft = lookup(history, Math.min(this.#draftK, room))
    this.#drafted += draft.length
    this.#fed = [history[last]!, ...draft]
    this.#start = last
    this.#rows = await this.#forward(this.#fed, draft.length === 0 ? 'last' : 'all')
    return this.#row(0)
  }

  /** Drops positions that a draft put after the text: the sequence then holds all tokens of `history` but the last. */
  settle(history: readonly number[]): void {
    this.#forget(history.length - 1)
  }

  #row(i: number): Float32Array {
    const width = this.#rows.length / this.#fed.length
    return this.#draftless() ? this.#rows : this.#rows.subarray(i * width, (i + 1) * width)
  }

  #draftless(): boolean {
    return this.#fed.length === 1
  }

  #forget(tokens: number): void {
    if (this.#sequence.length > this.#before + tokens) this.#sequence.truncate(this.#before + tokens)
  }

  #forward(ids: readonly number[], logits: 'last' | 'all'): Promise<Float32Array> {
    return this.#sequence.forward(ids, { logits, ...(this.#signal === undefined ? {} : { signal: this.#signal }) })
  }
}
