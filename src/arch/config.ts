// Typed reading of a model configuration. Every key that is read is remembered; what is left over is neutral, harmless or warned of.
import { ValidationError } from '../base/errors.ts'
import { isJsonObject, type JsonObject, type JsonValue, own } from '../base/json.ts'

/** Dimensions above this exist in no model and only serve to make products overflow. */
const MAX_DIMENSION = 2 ** 31

export class Config {
  readonly #json: JsonObject
  readonly #where: string
  readonly #read = new Set<string>()

  constructor(json: JsonObject, where: string) {
    this.#json = json
    this.#where = where
  }

  has(key: string): boolean {
    return this.#get(key) !== undefined
  }

  /** The key is there, be it null. */
  states(key: string): boolean {
    this.#read.add(key)
    return own(this.#json, key) !== undefined
  }

  equals(key: string, value: JsonValue): boolean {
    return this.#get(key) === value
  }

  /** A count ≥ 1. Throws CONFIG_INVALID. */
  count(key: string, fallback?: number): number {
    return this.#number(key, fallback, (n) => Number.isSafeInteger(n) && n >= 1 && n <= MAX_DIMENSION, 'a count')
  }

  /** A count ≥ 0. */
  natural(key: string): number {
    return this.#number(
      key,
      undefined,
      (n) => Number.isSafeInteger(n) && n >= 0 && n <= MAX_DIMENSION,
      'a count from 0',
    )
  }

  /** A finite number > 0. */
  positive(key: string, fallback?: number): number {
    return this.#number(key, fallback, (n) => Number.isFinite(n) && n > 0, 'a number above 0')
  }

  /** A finite number > 0, or undefined when absent. */
  positiveOrNone(key: string): number | undefined {
    return this.has(key) ? this.positive(key) : undefined
  }

  /** A list of finite numbers > 0, all of them. */
  positives(key: string, length: number): number[] {
    return this.#list(
      key,
      length,
      length,
      'numbers above 0',
      (v) => typeof v === 'number' && Number.isFinite(v) && v > 0,
    )
  }

  /** A list with a value of `allowed` for each of `layers` layers, or undefined when absent. Entries beyond the layers are not looked at. */
  perLayer<T extends JsonValue>(key: string, layers: number, allowed: readonly T[]): T[] | undefined {
    if (!this.has(key)) return undefined
    const expected = allowed.map((v) => JSON.stringify(v)).join(' | ')
    const list = this.#list<T>(key, layers, Number.POSITIVE_INFINITY, `times ${expected}`, (v) =>
      allowed.includes(v as T),
    )
    return list.slice(0, layers)
  }

  /** A list of indices below `limit`; empty when absent. */
  indices(key: string, limit: number): number[] {
    if (!this.has(key)) return []
    const below = (v: JsonValue) => Number.isSafeInteger(v) && (v as number) >= 0 && (v as number) < limit
    return this.#list(key, 0, limit, `indices below ${limit}`, below)
  }

  flag(key: string, fallback: boolean): boolean {
    const value = this.#get(key) ?? fallback
    if (typeof value !== 'boolean') this.invalid(key, 'true or false', value)
    return value
  }

  text(key: string, fallback?: string): string {
    const value = this.#get(key) ?? fallback
    if (typeof value !== 'string') this.invalid(key, 'a string', value)
    return value
  }

  object(key: string): JsonObject | undefined {
    const value = this.#get(key)
    if (value !== undefined && !isJsonObject(value)) this.invalid(key, 'an object', value)
    return value
  }

  /** One number, or a list that says the same for every layer (GGUF has both). */
  perLayerCount(key: string, layers: number, fallback?: number): number {
    const value = this.#get(key)
    if (!Array.isArray(value)) return this.count(key, fallback)
    const [first] = value
    if (value.length !== layers || typeof first !== 'number' || !Number.isSafeInteger(first) || first < 1)
      this.invalid(key, `${layers} counts`, value)
    if (value.some((v) => v !== first)) this.unsupported(`${key} differs between layers`, value)
    return first
  }

  /** The key may be absent or null, or have one of the values; anything else changes the maths: ARCH_UNSUPPORTED. */
  require(key: string, allowed: readonly JsonValue[]): void {
    const value = this.#get(key)
    if (value !== undefined && !allowed.includes(value)) this.unsupported(`${key} is not implemented`, value, allowed)
  }

  /** Keys nobody has read that are not in `harmless`, as warnings. */
  leftover(harmless: (key: string) => boolean): string[] {
    return Object.keys(this.#json)
      .filter((key) => !this.#read.has(key) && !harmless(key))
      .map((key) => `${this.#where}: the field ${JSON.stringify(key)} is not known and was not used`)
  }

  invalid(key: string, expected: string, got: unknown): never {
    throw new ValidationError('CONFIG_INVALID', {
      what: `${key} ${got === undefined ? 'is missing' : 'has an impossible value'}`,
      where: this.#where,
      expected,
      got: typeof got === 'object' ? JSON.stringify(got) : String(got),
      details: { field: key },
    })
  }

  unsupported(what: string, got: unknown, expected?: readonly JsonValue[]): never {
    throw new ValidationError('ARCH_UNSUPPORTED', {
      what,
      where: this.#where,
      ...(expected === undefined
        ? {}
        : { expected: expected.map((v) => JSON.stringify(v)).join(' | ') || 'no such field' }),
      got: JSON.stringify(got)?.slice(0, 80),
      ...(what.startsWith('quantization_config')
        ? {
            remedy:
              'Quantized checkpoints are not run yet: use an unquantized one, or a GGUF, and quantize with convert.',
          }
        : {}),
    })
  }

  /** null counts as absent, as in Hugging Face configurations. */
  #get(key: string): JsonValue | undefined {
    this.#read.add(key)
    return own(this.#json, key) ?? undefined
  }

  #list<T extends JsonValue>(
    key: string,
    min: number,
    max: number,
    expected: string,
    ok: (value: JsonValue) => boolean,
  ): T[] {
    const value = this.#get(key)
    if (!Array.isArray(value) || value.length < min || value.length > max || !value.every(ok))
      this.invalid(key, min === 0 ? expected : `${min} ${expected}`, value)
    return value as T[]
  }

  #number(key: string, fallback: number | undefined, ok: (n: number) => boolean, expected: string): number {
    const value = this.#get(key) ?? fallback
    if (typeof value !== 'number' || !ok(value)) this.invalid(key, expected, value)
    return value
  }
}
