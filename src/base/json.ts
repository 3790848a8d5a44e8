// JSON from files is read strictly, and written canonically.
//
// Strict: UTF-8 without BOM, RFC 8259 syntax (JSON.parse), plus: no duplicate keys, no integer literal beyond 2^53, no number
// that overflows to Infinity, capped size and depth. Duplicates are found by counting: JSON.parse keeps one value a key, so the
// colons outside strings and the keys of the parsed tree differ exactly when a key came twice. That costs one scan, not a parser.
import stringify from 'fast-json-stable-stringify'
import { ModelFormatError } from './errors.ts'
import { MAX_JSON_BYTES, MAX_JSON_DEPTH } from './limits.ts'

export type JsonValue = null | boolean | number | string | JsonValue[] | JsonObject
export interface JsonObject {
  [key: string]: JsonValue
}

export interface JsonOptions {
  /** File name for messages. */
  where: string
  maxBytes?: number
  maxDepth?: number
}

/** Throws JSON_INVALID. */
export function invalidJson(what: string, where: string, extra: object = {}): never {
  throw new ModelFormatError('JSON_INVALID', { what, where, ...extra })
}

/** Parses strictly. Throws JSON_INVALID or FORMAT_LIMIT. The result's objects are plain: look keys up with `own`. */
export function parseJson(input: Uint8Array | string, options: JsonOptions): JsonValue {
  const { where, maxDepth = MAX_JSON_DEPTH } = options
  const text = decodeJsonText(input, options)
  const found = { end: 0, keys: 0 }
  scan(text, 0, 'all', where, maxDepth, found)
  return parseScanned(text, found.keys, where)
}

/** A text that was scanned, and found to have `keys` keys. */
export function parseScanned(text: string, keys: number, where: string): JsonValue {
  let value: JsonValue
  try {
    value = JSON.parse(text) as JsonValue
  } catch (cause) {
    invalidJson('JSON does not parse', where, { got: (cause as Error).message, cause })
  }
  if (countKeys(value) !== keys) invalidJson('duplicate key in JSON', where, { got: findDuplicate(text) })
  return value
}

/** Text of an input that is not too large. Throws JSON_INVALID (BOM, not UTF-8), FORMAT_LIMIT. */
export function decodeJsonText(input: Uint8Array | string, { where, maxBytes = MAX_JSON_BYTES }: JsonOptions): string {
  if (input.length > maxBytes)
    throw new ModelFormatError('FORMAT_LIMIT', {
      what: 'JSON is too large',
      where,
      expected: `≤ ${maxBytes}`,
      got: input.length,
    })
  return typeof input === 'string' ? input : decodeUtf8(input, where)
}

/** Like parseJson, for a text that must be an object. */
export function parseJsonObject(input: Uint8Array | string, options: JsonOptions): JsonObject {
  const value = parseJson(input, options)
  if (!isJsonObject(value)) invalidJson('JSON is not an object', options.where)
  return value
}

export function isJsonObject(value: JsonValue | undefined): value is JsonObject {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

/** Own property only: `own(x, 'constructor')` is undefined unless the file has that key. */
export function own(object: JsonObject, key: string): JsonValue | undefined {
  return Object.hasOwn(object, key) ? object[key] : undefined
}

/** Canonical JSON: sorted keys, no spaces, shortest numbers (RFC 8785 for the values allowed here). Its SHA-256 identifies a model. */
export function canonicalJson(value: JsonValue): string {
  checkCanonical(value, 0)
  return stringify(value)
}

function checkCanonical(value: JsonValue, depth: number): void {
  if (depth > MAX_JSON_DEPTH) invalidJson('value is nested too deeply for canonical JSON', 'canonicalJson')
  if (typeof value === 'number' && !Number.isFinite(value))
    invalidJson('number is not finite', 'canonicalJson', { got: value })
  if (typeof value === 'string' && !value.isWellFormed())
    invalidJson('string has a lone surrogate', 'canonicalJson', { got: value })
  if (Array.isArray(value)) for (const v of value) checkCanonical(v, depth + 1)
  else if (typeof value === 'object' && value !== null)
    for (const [k, v] of Object.entries(value)) {
      if (v === undefined) continue
      if (!k.isWellFormed()) invalidJson('key has a lone surrogate', 'canonicalJson', { got: k })
      checkCanonical(v, depth + 1)
    }
}

function decodeUtf8(bytes: Uint8Array, where: string): string {
  if (bytes[0] === 0xef && bytes[1] === 0xbb && bytes[2] === 0xbf)
    invalidJson('JSON begins with a byte order mark', where)
  try {
    return new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes)
  } catch (cause) {
    return invalidJson('JSON is not valid UTF-8', where, { cause })
  }
}

const QUOTE = 34
const BACKSLASH = 92

/** What a scan found: the character after its end, and the keys. */
export interface Scan {
  end: number
  keys: number
}

/**
 * One pass over a text from `start`, to its end or to where the bracket that opens there closes: counts colons outside strings,
 * checks depth and numbers. Syntax is left to JSON.parse.
 */
export function scan(
  text: string,
  start: number,
  until: 'all' | 'closed',
  where: string,
  maxDepth: number,
  found: Scan,
): void {
  let colons = 0
  let depth = 0
  let i = start
  for (; i < text.length; i++) {
    const c = text.charCodeAt(i)
    if (c === QUOTE) {
      i = skipString(text, i)
    } else if (c === 58) {
      colons++
    } else if (c === 123 || c === 91) {
      if (++depth > maxDepth)
        throw new ModelFormatError('FORMAT_LIMIT', {
          what: 'JSON is nested too deeply',
          where,
          expected: `≤ ${maxDepth}`,
          got: depth,
        })
    } else if (c === 125 || c === 93) {
      if (--depth === 0 && until === 'closed') {
        i++
        break
      }
    } else if (c >= 48 && c <= 57) {
      i = checkNumber(text, i, where)
    }
  }
  found.end = i
  found.keys = colons
}

/** Index of the closing quote of the string that opens at i (or the last index, which JSON.parse then refuses). */
export function skipString(text: string, i: number): number {
  for (let j = i + 1; ; j++) {
    j = text.indexOf('"', j)
    if (j < 0) return text.length
    let slashes = 0
    while (text.charCodeAt(j - 1 - slashes) === BACKSLASH) slashes++
    if (slashes % 2 === 0) return j
  }
}

function checkNumber(text: string, start: number, where: string): number {
  let end = start
  let integer = true
  for (; end < text.length; end++) {
    const c = text.charCodeAt(end)
    if (c >= 48 && c <= 57) continue
    if (c === 46 || c === 101 || c === 69 || c === 43 || c === 45) integer = false
    else break
  }
  const literal = text.slice(start, end)
  if (integer && literal.length > 15 && !Number.isSafeInteger(Number(literal)))
    invalidJson('integer is beyond 2^53', where, { got: literal })
  if (!integer && !Number.isFinite(Number(literal)) && !Number.isNaN(Number(literal)))
    invalidJson('number overflows', where, { got: literal })
  return end - 1
}

/** Keys of a tree. By Object.values: no key is looked up again, which in an object of 100,000 keys is most of the time. */
function countKeys(value: JsonValue): number {
  if (typeof value !== 'object' || value === null) return 0
  const children = Array.isArray(value) ? value : Object.values(value)
  let n = children === value ? 0 : children.length
  for (let i = 0; i < children.length; i++) {
    const child = children[i]!
    if (typeof child === 'object' && child !== null) n += countKeys(child)
  }
  return n
}

/** Slow second look, only to name the key in the message. */
function findDuplicate(text: string): string {
  const stack: (Set<string> | undefined)[] = []
  for (let i = 0; i < text.length; i++) {
    const c = text.charCodeAt(i)
    if (c === 123) stack.push(new Set())
    else if (c === 91) stack.push(undefined)
    else if (c === 125 || c === 93) stack.pop()
    else if (c === QUOTE) {
      const end = skipString(text, i)
      if (/^\s*:/.test(text.slice(end + 1, end + 40))) {
        const key = JSON.parse(text.slice(i, end + 1)) as string
        const seen = stack.at(-1)
        if (seen?.has(key)) return key
        seen?.add(key)
      }
      i = end
    }
  }
  return 'a key'
}
