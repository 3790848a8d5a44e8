// JSON from files is read strictly, and written canonically.
//
// Strict: UTF-8 without BOM, RFC 8259 syntax (JSON.parse), plus: no duplicate keys, no integer literal beyond 2^53, no number
// that overflows to Infinity, capped size and depth. Duplicates are found by counting: JSON.parse keeps one value a key, so the
// colons outside strings and the keys of the parsed tree differ exactly when a key came twice. That costs one scan, not a parser.
import stringify from 'fast-json-stable-stringify'
import { ModelFormatError } from './errors.ts'
import { MAX_JSON_BYTES, MAX_JSON_DEPTH } from './limits.ts'

/** Any JSON value. */
export type JsonValue = null | boolean | number | string | JsonValue[] | JsonObject
/** A JSON object as the strict reader gives it. */
export interface JsonObject {
  [key: string]: JsonValue
}

export interface JsonOptions {
  /** File name for messages. */
  where: string
  maxBytes?: number
  maxDepth?: number
}

function invalid(what: string, where: string, extra: object = {}): never {
  throw new ModelFormatError('JSON_INVALID', { what, where, ...extra })
}

/** Parses strictly. Throws JSON_INVALID or FORMAT_LIMIT. The result's objects are plain: look keys up with `own`. */
export function parseJson(input: Uint8Array | string, options: JsonOptions): JsonValue {
  const { where, maxBytes = MAX_JSON_BYTES, maxDepth = MAX_JSON_DEPTH } = options
  if (input.length > maxBytes)
    throw new ModelFormatError('FORMAT_LIMIT', {
      what: 'JSON is too large',
      where,
      expected: `≤ ${maxBytes}`,
      got: input.length,
    })
  const text = typeof input === 'string' ? input : decodeUtf8(input, where)
  const keys = scan(text, where, maxDepth)
  let value: JsonValue
  try {
    value = JSON.parse(text) as JsonValue
  } catch (cause) {
    invalid('JSON does not parse', where, { got: (cause as Error).message, cause })
  }
  if (countKeys(value, where) !== keys) invalid('duplicate key in JSON', where, { got: findDuplicate(text) })
  return value
}

/** Like parseJson, for a text that must be an object. */
export function parseJsonObject(input: Uint8Array | string, options: JsonOptions): JsonObject {
  const value = parseJson(input, options)
  if (!isJsonObject(value)) invalid('JSON is not an object', options.where)
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
  if (depth > MAX_JSON_DEPTH) invalid('value is nested too deeply for canonical JSON', 'canonicalJson')
  if (typeof value === 'number' && !Number.isFinite(value))
    invalid('number is not finite', 'canonicalJson', { got: value })
  if (typeof value === 'string' && !value.isWellFormed())
    invalid('string has a lone surrogate', 'canonicalJson', { got: value })
  if (Array.isArray(value)) for (const v of value) checkCanonical(v, depth + 1)
  else if (typeof value === 'object' && value !== null)
    for (const [k, v] of Object.entries(value)) {
      if (v === undefined) continue
      if (!k.isWellFormed()) invalid('key has a lone surrogate', 'canonicalJson', { got: k })
      checkCanonical(v, depth + 1)
    }
}

function decodeUtf8(bytes: Uint8Array, where: string): string {
  if (bytes[0] === 0xef && bytes[1] === 0xbb && bytes[2] === 0xbf) invalid('JSON begins with a byte order mark', where)
  try {
    return new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes)
  } catch (cause) {
    return invalid('JSON is not valid UTF-8', where, { cause })
  }
}

const QUOTE = 34
const BACKSLASH = 92

/** One pass: counts colons outside strings, checks depth and integer literals. Syntax is left to JSON.parse. */
function scan(text: string, where: string, maxDepth: number): number {
  let colons = 0
  let depth = 0
  for (let i = 0; i < text.length; i++) {
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
      depth--
    } else if (c >= 48 && c <= 57) {
      i = checkNumber(text, i, where)
    }
  }
  return colons
}

/** Index of the closing quote of the string that opens at i (or the last index, which JSON.parse then refuses). */
function skipString(text: string, i: number): number {
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
    invalid('integer is beyond 2^53', where, { got: literal })
  if (!integer && !Number.isFinite(Number(literal)) && !Number.isNaN(Number(literal)))
    invalid('number overflows', where, { got: literal })
  return end - 1
}

function countKeys(value: JsonValue, where: string): number {
  if (typeof value !== 'object' || value === null) return 0
  let n = 0
  if (Array.isArray(value)) {
    for (const v of value) if (typeof v === 'object') n += countKeys(v, where)
    return n
  }
  for (const key in value) {
    n++
    const v = value[key]
    if (typeof v === 'object') n += countKeys(v as JsonValue, where)
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
