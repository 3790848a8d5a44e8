// Typed looks at JSON objects of a package: every field is known, present and of its type, or the package is refused by the field's name.
import { isJsonObject, type JsonObject, type JsonValue, own } from '../../base/json.ts'
import { invalid, unsupported } from './refuse.ts'

/** Throws FORMAT_UNSUPPORTED when the object has a key that is not in the list. */
export function onlyKeys(object: JsonObject, known: ReadonlySet<string>, where: string): void {
  for (const key of Object.keys(object)) if (!known.has(key)) unsupported('unknown field', where, key)
}

function wrong(key: string, where: string, expected: string, got: JsonValue | undefined): never {
  if (got === undefined) invalid(`field '${key}' is missing`, where)
  invalid(`field '${key}' has the wrong type`, where, { expected, got: JSON.stringify(got) })
}

export function textField(object: JsonObject, key: string, where: string): string {
  const value = own(object, key)
  if (typeof value !== 'string') wrong(key, where, 'a string', value)
  return value
}

/** A whole number from 0 to 2^53−1. */
export function countField(object: JsonObject, key: string, where: string): number {
  const value = own(object, key)
  if (typeof value !== 'number' || !Number.isSafeInteger(value) || value < 0) wrong(key, where, 'a count', value)
  return value
}

export function booleanField(object: JsonObject, key: string, where: string): boolean {
  const value = own(object, key)
  if (typeof value !== 'boolean') wrong(key, where, 'true or false', value)
  return value
}

export function objectField(object: JsonObject, key: string, where: string): JsonObject {
  const value = own(object, key)
  if (!isJsonObject(value)) wrong(key, where, 'an object', value)
  return value
}

export function arrayField(object: JsonObject, key: string, where: string): JsonValue[] {
  const value = own(object, key)
  if (!Array.isArray(value)) wrong(key, where, 'an array', value)
  return value
}

/** Array of strings, absent = empty, no entry twice. */
export function textList(object: JsonObject, key: string, where: string): string[] {
  if (own(object, key) === undefined) return []
  const list = arrayField(object, key, where)
  const seen = new Set<string>()
  for (const item of list) {
    if (typeof item !== 'string') wrong(key, where, 'an array of strings', list)
    if (seen.has(item)) invalid(`field '${key}' names something twice`, where, { got: item })
    seen.add(item)
  }
  return [...seen]
}

/** 64 lower-case hexadecimal digits. */
export function sha256Field(object: JsonObject, key: string, where: string): string {
  const text = textField(object, key, where)
  if (!/^[0-9a-f]{64}$/.test(text)) wrong(key, where, '64 lower-case hexadecimal digits', text)
  return text
}
