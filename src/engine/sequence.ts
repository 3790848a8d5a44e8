// One text being continued: chunks of ids become passes; logits come back; a failed call leaves the sequence where it stood.
import { InferenceError, SluiceError, throwIfAborted, ValidationError } from '../base/errors.ts'
import type { ForwardOptions, Sequence } from './engine.ts'
import type { KvTable } from './kv.ts'

/** What a sequence needs from its engine. */
export interface PassRunner {
  readonly vocabulary: number
  readonly context: number
  readonly tokensMax: number
  readonly logitRows: number
  /** One pass at a time, in order of asking. */
  exclusive<T>(work: () => Promise<T>): Promise<T>
  /** Runs ids at `position`; logits of tokens [firstLogit, ids.length) are then in `logits(i)`. */
  pass(
    ids: readonly number[],
    position: number,
    firstLogit: number,
    table: KvTable,
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
  #running = false

  constructor(runner: PassRunner, table: KvTable, kvTable: number) {
    this.#runner = runner
    this.#table = table
    this.#kvTable = kvTable
  }

  get length(): number {
    return this.#length
  }

  async forward(ids: readonly number[], options: ForwardOptions): Promise<Float32Array> {
    this.#check(ids)
    const own = Array.from(ids) // the caller's array may change while this waits and runs
    return this.#runner.exclusive(async () => {
      throwIfAborted(options.signal)
      this.#check(own) // it may have been released, or grown, while waiting
      const before = this.#length
      this.#running = true
      try {
        return await this.#chunks(own, options)
      } catch (err) {
        this.#length = before
        if (!this.#released) this.#table.truncate(before)
        throw err
      } finally {
        this.#running = false
      }
    })
  }

  async #chunks(ids: readonly number[], options: ForwardOptions): Promise<Float32Array> {
    const r = this.#runner
    const all = options.logits === 'all'
    const collect = all && options.onLogits === undefined
    const out = new Float32Array(collect ? ids.length * r.vocabulary : options.logits === 'last' ? r.vocabulary : 0)
    const chunk = all ? r.logitRows : r.tokensMax
    const before = this.#length
    const rows =
      all && options.onLogits !== undefined ? new Float32Array(Math.min(chunk, ids.length) * r.vocabulary) : undefined
    for (let start = 0; start < ids.length; start += chunk) {
      const part = ids.slice(start, start + chunk)
      const last = start + part.length === ids.length
      const firstLogit = all ? 0 : last && options.logits === 'last' ? part.length - 1 : part.length
      this.#table.reserve(this.#length + part.length)
      await r.pass(part, this.#length, firstLogit, this.#table, this.#kvTable, options)
      if (this.#released) throw new SluiceError('CLOSED', { what: 'sequence was released while it ran' })
      this.#length += part.length
      const row = (i: number) => finite(r.logits(i), before + start + firstLogit + i)
      if (collect) for (let i = 0; i < part.length; i++) out.set(row(i), (start + i) * r.vocabulary)
      else if (rows !== undefined) {
        for (let i = 0; i < part.length; i++) rows.set(row(i), i * r.vocabulary)
        await options.onLogits!(rows.subarray(0, part.length * r.vocabulary), start, part.length)
      } else if (firstLogit < part.length) out.set(row(0))
    }
    return out
  }

  #check(ids: readonly number[]): void {
    if (this.#released) throw new SluiceError('CLOSED', { what: 'sequence is released' })
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
    if (this.#released) throw new SluiceError('CLOSED', { what: 'sequence is released' })
    if (this.#running)
      throw new ValidationError('REQUEST_INVALID', {
        what: 'a sequence cannot be truncated while it runs',
        remedy: 'Wait for forward(), or abort it.',
      })
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
    // A running pass still writes to these blocks: give them back after it.
    void this.#runner.exclusive(async () => {
      this.#table.truncate(0)
      this.#runner.released(this.#kvTable)
    })
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
