// Walks JSON text of a known shape, without building a tree: a header of 100,000 tensors parses four times faster than through objects,
// and what the shape does not foresee (another type, a fraction, a key twice) cannot slip through.
import { ModelFormatError } from '../../base/errors.ts'

const SPACE = 32
const QUOTE = 34
const COMMA = 44
const ZERO = 48
const NINE = 57

export class JsonCursor {
  readonly #text: string
  readonly #where: string
  #at = 0

  /** Throws JSON_INVALID for bytes that are not UTF-8. */
  constructor(json: Uint8Array, where: string) {
    this.#where = where
    try {
      this.#text = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(json)
    } catch (cause) {
      throw new ModelFormatError('JSON_INVALID', { what: 'JSON is not valid UTF-8', where, cause })
    }
  }

  /** Next character that is not white space, as text; '' at the end. */
  peek(): string {
    let c = this.#text.charCodeAt(this.#at)
    while (c === SPACE || c === 10 || c === 13 || c === 9) c = this.#text.charCodeAt(++this.#at)
    return this.#text[this.#at] ?? ''
  }

  /** Takes `char` if it comes next. */
  take(char: string): boolean {
    if (this.peek() !== char) return false
    this.#at++
    return true
  }

  expect(char: string): void {
    if (!this.take(char)) this.#fail('JSON does not parse', `'${char}'`, this.peek())
  }

  /** A string. */
  string(): string {
    this.expect('"')
    const text = this.#text
    const start = this.#at
    let end = start
    let plain = true
    for (; ; end++) {
      const c = text.charCodeAt(end)
      if (c === QUOTE) break
      if (c === 92) {
        plain = false
        end++
      } else if (!(c >= SPACE)) {
        // NaN past the end, or a raw control character
        this.#at = end
        this.#fail('JSON string is not closed or has a control character', 'a printable character', text[end] ?? '')
      }
    }
    this.#at = end + 1
    if (plain) return text.slice(start, end)
    let value: string
    try {
      value = JSON.parse(text.slice(start - 1, end + 1)) as string
    } catch (cause) {
      this.#at = start
      return this.#fail('JSON string has an unknown escape', 'JSON escapes', text.slice(start, end), cause)
    }
    if (!value.isWellFormed()) this.#fail('JSON string has a lone surrogate', 'Unicode', text.slice(start, end))
    return value
  }

  /** A count: digits only, up to 2^53; undefined (and nothing taken) when something else comes. */
  count(): number | undefined {
    this.peek()
    const text = this.#text
    const start = this.#at
    let end = start
    let n = 0
    for (let c = text.charCodeAt(end); c >= ZERO && c <= NINE; c = text.charCodeAt(++end)) n = n * 10 + (c - ZERO)
    const next = text[end]
    if (end === start || next === '.' || next === 'e' || next === 'E') return undefined
    if (end > start + 1 && text.charCodeAt(start) === ZERO) return undefined
    if (!Number.isSafeInteger(n)) return undefined
    this.#at = end
    return n
  }

  /** `[count, count, …]`; undefined when it is anything else. The position is then of no use. */
  counts(): number[] | undefined {
    if (!this.take('[')) return undefined
    const out: number[] = []
    if (this.take(']')) return out
    for (;;) {
      const n = this.count()
      if (n === undefined) return undefined
      out.push(n)
      if (this.take(']')) return out
      if (!this.take(',')) return undefined
    }
  }

  /**
   * An object: calls `value` for each key, at its value. Throws JSON_INVALID for a key that comes twice.
   * `seen` says whether a key came already, and remembers it.
   */
  object(seen: (key: string) => boolean, value: (key: string) => void): void {
    this.expect('{')
    if (this.take('}')) return
    for (;;) {
      const key = this.string()
      if (seen(key)) this.#fail('duplicate key in JSON', 'a new key', key)
      this.expect(':')
      value(key)
      if (this.take('}')) return
      if (this.#text.charCodeAt(this.#at) !== COMMA) this.#fail('JSON does not parse', "',' or '}'", this.peek())
      this.#at++
    }
  }

  /** Throws JSON_INVALID when something other than white space is left. */
  end(): void {
    if (this.peek() !== '') this.#fail('something follows the JSON', 'the end', this.peek())
  }

  /** What comes next, for messages. */
  rest(): string {
    return this.#text.slice(this.#at, this.#at + 40)
  }

  #fail(what: string, expected: string, got: string, cause?: unknown): never {
    const where = `${this.#where}, character ${this.#at}`
    throw new ModelFormatError('JSON_INVALID', { what, where, expected, got: got === '' ? 'the end' : got, cause })
  }
}
