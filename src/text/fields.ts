// Reading fields of tokenizer.json: every key is known or refused by name.
import { ModelFormatError } from '../base/errors.ts'
import { isJsonObject, type JsonObject, type JsonValue, own } from '../base/json.ts'

export function unsupported(what: string, where: string, got?: unknown): never {
  throw new ModelFormatError('TOKENIZER_UNSUPPORTED', {
    what,
    where,
    ...(got === undefined ? {} : { got }),
    remedy: 'Pass token ids instead of text.',
  })
}

export function malformed(what: string, where: string, extra: { expected?: unknown; got?: unknown } = {}): never {
  throw new ModelFormatError('FORMAT_INVALID', { what, where, ...extra })
}

/** Refuses keys that are not in the list: an unknown field may change what the text becomes. */
export function knownKeys(object: JsonObject, keys: readonly string[], where: string): void {
  for (const key of Object.keys(object)) if (!keys.includes(key)) unsupported(`unknown field "${key}"`, where)
}

export function objectAt(value: JsonValue | undefined, where: string): JsonObject {
  if (!isJsonObject(value)) malformed('not an object', where, { expected: 'object', got: typeof value })
  return value
}

export function arrayAt(value: JsonValue | undefined, where: string): JsonValue[] {
  if (!Array.isArray(value)) malformed('not an array', where, { expected: 'array', got: typeof value })
  return value
}

export function stringField(object: JsonObject, key: string, where: string, fallback?: string): string {
  const value = own(object, key) ?? fallback
  if (typeof value !== 'string') malformed(`"${key}" is not a string`, where, { expected: 'string', got: typeof value })
  return value
}

export function booleanField(object: JsonObject, key: string, where: string, fallback: boolean): boolean {
  const value = own(object, key) ?? fallback
  if (typeof value !== 'boolean')
    malformed(`"${key}" is not a boolean`, where, { expected: 'boolean', got: typeof value })
  return value
}

/** An id of a token: an integer from 0, below the cap that protects arrays indexed by id. */
export function tokenId(value: JsonValue | undefined, where: string): number {
  if (typeof value !== 'number' || !Number.isInteger(value) || value < 0 || value >= MAX_VOCABULARY)
    malformed('token id is out of range', where, { expected: `0 … ${MAX_VOCABULARY - 1}`, got: value })
  return value
}

/** Ids are array indices: the largest vocabularies have about 260,000 tokens. */
export const MAX_VOCABULARY = 1 << 22
