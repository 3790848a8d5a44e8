// One text being continued: chunks of ids become passes; logits come back; a failed call leaves the sequence where it stood.
import { InferenceError, SluiceError, ValidationError } from '../base/errors.ts'
import type { ForwardOptions, Sequence } from './engine.ts'
import type { KvTable } from './kv.ts'

/** What a sequence needs from its engine. */
export interface PassRunner {
  readonly vocabulary: number
  readonly context: number
  readonly tokensMax: number
  readonly logitRows: number
  /** One pass at a time, in order of asking; a wait ends with the signal. */
  exclusive<T>(work: () => Promise<T>, signal?: AbortSignal): Promise<T>
  /** Sets memory aside for logits that are collected; call the result to give it back. Throws BUDGET_EXCEEDED. */
  hold(bytes: number): () => void
  /** Runs ids at `position`; logits of tokens [firstLogit, ids.length) are then in `logits(i)`. */
  pass(
    ids: readonly number[],
    position: number,
    firstLogit: number,
    kvTable: number,
    options: ForwardOptions,
  ): Promise<void>
  /** Row i of the logits of the last pass: a view, valid until the next one. */
  logits(row: number): Float32Array
  released(kvTable: number): void
}

export class EngineSequence implements Sequence {
  readonly #runner: PassRunner
  readonly #table: KvTable
  readonly #kvTable: number
  #length = 0
  #released = false
  /** A forward is running or waiting for its turn. */
  #busy = false

  constructor(runner: PassRunner, table: KvTable, kvTable: number) {
    this.#runner = runner
    this.#table = table
    this.#kvTable = kvTable
  }

  get length(): number {
    return this.#length
  }

  async forward(ids: readonly number[], options: ForwardOptions): Promise<Float32Array> {
    this.#idle()
    this.#check(ids, options)
    const copy = ids.slice() // the caller may change its array while we wait
    const before = this.#length
    this.#busy = true
    try {
      return await this.#forward(copy, options)
    } catch (err) {
      this.#length = before
      this.#table.truncate(before)
      throw err
    } finally {
      this.#busy = false
      if (this.#released) this.#giveBack()
    }
  }

  async #forward(ids: readonly number[], options: ForwardOptions): Promise<Float32Array> {
    const r = this.#runner
    if (options.logits === 'all' && options.onLogits === undefined) {
      const giveBack = r.hold(ids.length * r.vocabulary * 4)
      try {
        const out = new Float32Array(ids.length * r.vocabulary)
        await this.#chunks(ids, options, (rows, first) => out.set(rows, first * r.vocabulary))
        return out
      } finally {
        giveBack()
      }
    }
    let out: Float32Array = new Float32Array(0)
    await this.#chunks(ids, options, async (rows, first, tokens) => {
      if (options.logits === 'last') out = rows
      else await options.onLogits?.(rows, first, tokens)
    })
    return out
  }

  /** `onRows` is called outside of the turn: a slow consumer holds up nobody else. Its rows are reused. */
  async #chunks(
    ids: readonly number[],
    options: ForwardOptions,
    onRows: (rows: Float32Array, firstToken: number, tokens: number) => void | Promise<void>,
  ): Promise<void> {
    const r = this.#runner
    const all = options.logits === 'all'
    const chunk = all ? r.logitRows : r.tokensMax
    const before = this.#length
    const rows = new Float32Array(
      options.logits === 'none' ? 0 : (all ? Math.min(chunk, ids.length) : 1) * r.vocabulary,
    )
    for (let start = 0; start < ids.length; start += chunk) {
      const part = ids.slice(start, start + chunk)
      const last = start + part.length === ids.length
      const firstLogit = all ? 0 : last && options.logits === 'last' ? part.length - 1 : part.length
      const wanted = part.length - firstLogit
      await r.exclusive(async () => {
        this.#alive() // it may have been released while it waited
        this.#table.reserve(this.#length + ids.length - start)
        await r.pass(part, this.#length, firstLogit, this.#kvTable, options)
        this.#alive()
        this.#length += part.length
        for (let i = 0; i < wanted; i++)
          rows.set(finite(r.logits(i), before + start + firstLogit + i), i * r.vocabulary)
      }, options.signal)
      if (wanted > 0) await onRows(rows.subarray(0, wanted * r.vocabulary), start, part.length)
    }
  }

  #alive(): void {
    if (this.#released) throw new SluiceError('CLOSED', { what: 'sequence is released' })
  }

  /** A text is continued by one call at a time: what the other one meant by "after what is there" would be a guess. */
  #idle(): void {
    this.#alive()
    if (this.#busy)
      throw new ValidationError('REQUEST_INVALID', {
        what: 'sequence is running',
        remedy: 'Await its forward first, or use another sequence.',
      })
  }

  #check(ids: readonly number[], options: ForwardOptions): void {
    if (options.logits !== 'last' && options.logits !== 'all' && options.logits !== 'none')
      throw new ValidationError('REQUEST_INVALID', {
        what: 'logits option is not known',
        expected: 'last, all or none',
        got: options.logits,
      })
    if (ids.length === 0)
      throw new ValidationError('REQUEST_INVALID', {
        what: 'no token ids given',
        remedy: 'Give at least one id (usually BOS).',
      })
    for (let i = 0; i < ids.length; i++) {
      const id = ids[i]!
      if (!Number.isInteger(id) || id < 0 || id >= this.#runner.vocabulary)
        throw new ValidationError('REQUEST_INVALID', {
          what: 'token id is out of range',
          where: `ids[${i}]`,
          expected: `0 … ${this.#runner.vocabulary - 1}`,
          got: id,
        })
    }
    if (this.#length + ids.length > this.#runner.context)
      throw new InferenceError('CONTEXT_FULL', {
        what: 'text is longer than the context',
        expected: `≤ ${this.#runner.context} tokens`,
        got: this.#length + ids.length,
        remedy: 'Shorten the text, or open with a larger context.',
        details: { context: this.#runner.context, tokens: this.#length + ids.length },
      })
  }

  truncate(length: number): void {
    this.#idle()
    if (!Number.isInteger(length) || length < 0 || length > this.#length)
      throw new ValidationError('REQUEST_INVALID', {
        what: 'cannot truncate to that length',
        expected: `0 … ${this.#length}`,
        got: length,
      })
    this.#length = length
    this.#table.truncate(length)
  }

  release(): void {
    if (this.#released) return
    this.#released = true
    if (!this.#busy) this.#giveBack() // else a pass may still write to its blocks: forward gives them back
  }

  #giveBack(): void {
    this.#table.truncate(0)
    this.#runner.released(this.#kvTable)
  }
}

/** The row itself. Whatever asks for logits gets numbers or LOGITS_INVALID: a NaN in a file of logits would be read as a result. */
function finite(logits: Float32Array, position: number): Float32Array {
  for (let i = 0; i < logits.length; i++)
    if (!Number.isFinite(logits[i]!))
      throw new InferenceError('LOGITS_INVALID', {
        what: 'the model gave a logit that is not a finite number',
        where: `position ${position}, token ${i}`,
        got: logits[i],
        remedy: 'The weights or an adapter are damaged, or overflow in this precision.',
        details: { position, token: i },
      })
  return logits
}
