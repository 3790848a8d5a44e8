// A JSON object with one member that is itself a large object, such as a model's index: that member's members are parsed one at
// a time and gone again. As one tree, an index of 100,000 tensors costs more in memory management than in parsing.
//
// The rules are those of json.ts, to the letter: each value goes through the same scan and parser, and what stands between values
// is checked here.
import {
  decodeJsonText,
  invalidJson,
  type JsonObject,
  type JsonOptions,
  type JsonValue,
  parseJson,
  parseScanned,
  type Scan,
  scan,
  skipString,
} from './json.ts'
import { MAX_JSON_DEPTH } from './limits.ts'

export interface JsonMembers {
  /** The whole object, in which the large member is {}. Without such a member (or when it is no object), everything as parseJson gives it. */
  readonly object: JsonObject
  /** Members of the large member. */
  readonly count: number
  /** What `read` makes of each, by name. Throws JSON_INVALID at one that does not parse or comes twice, and what `read` throws. */
  read<T>(read: (name: string, value: JsonValue) => T): Map<string, T>
}

/** Throws JSON_INVALID, FORMAT_LIMIT. */
export function parseJsonMembers(input: Uint8Array | string, member: string, options: JsonOptions): JsonMembers {
  const { where, maxDepth = MAX_JSON_DEPTH } = options
  const text = decodeJsonText(input, options)
  const start = skipSpace(text, 0)
  if (text[start] !== '{') {
    parseJson(text, options) // what is no JSON at all is refused as that
    return invalidJson('JSON is not an object', where)
  }
  const entries = new Map<string, JsonValue>()
  let large: number[] = []
  const end = forMembers(text, start, where, (quote, at) => {
    const name = nameAt(text, quote, where)
    if (entries.has(name)) invalidJson('duplicate key in JSON', where, { got: name })
    if (name === member && text.charCodeAt(at) === OPEN) {
      entries.set(name, {})
      large = []
      return indexMembers(text, at, where, maxDepth - 2, large)
    }
    const value = scanValue(text, at, where, maxDepth - 1)
    entries.set(name, parseScanned(text.slice(at, value.end), value.keys, where))
    return value.end
  })
  if (skipSpace(text, end) !== text.length) unexpected(text, skipSpace(text, end), where)
  return {
    object: Object.fromEntries(entries),
    count: large.length / 4,
    read<T>(read: (name: string, value: JsonValue) => T): Map<string, T> {
      const made = new Map<string, T>()
      for (let i = 0; i < large.length; i += BATCH * 4) {
        const [names, values] = parseBatch(text, large, i, where)
        for (let k = 0; k < names.length; k++) {
          const name = names[k] as string
          if (made.size === made.set(name, read(name, values[k]!)).size)
            invalidJson('duplicate key in JSON', where, { got: name })
        }
      }
      return made
    },
  }
}

/** Members parsed together: fewer calls of the parser, few enough that their objects are gone before they are moved in memory. */
const BATCH = 64

/**
 * Names and values of the members that begin at index[from]. Names are strings of their own: a slice would keep the whole text in
 * memory. An array parses exactly when its elements do, since each is closed by the scan.
 */
function parseBatch(
  text: string,
  index: readonly number[],
  from: number,
  where: string,
): [readonly JsonValue[], readonly JsonValue[]] {
  const names: string[] = []
  const values: string[] = []
  let keys = 0
  for (let i = from; i < Math.min(index.length, from + BATCH * 4); i += 4) {
    names.push(text.slice(index[i]!, skipString(text, index[i]!) + 1))
    values.push(text.slice(index[i + 1]!, index[i + 2]!))
    keys += index[i + 3]!
  }
  return [parseList(names, 0, where), parseList(values, keys, where)]
}

function parseList(texts: readonly string[], keys: number, where: string): readonly JsonValue[] {
  const list = parseScanned(`[${texts.join(',')}]`, keys, where) as JsonValue[]
  if (list.length !== texts.length) invalidJson('JSON does not parse', where, { got: 'a member without a value' })
  return list
}

const OPEN = 123
const CLOSE = 125

/** Four numbers a member into `index`: opening quote of its name, first character of its value, the one after its last, keys in it. */
function indexMembers(text: string, start: number, where: string, maxDepth: number, index: number[]): number {
  return forMembers(text, start, where, (quote, at) => {
    const { end, keys } = scanValue(text, at, where, maxDepth)
    index.push(quote, at, end, keys)
    return end
  })
}

/**
 * Walks the object that opens at `start`; returns the character after its closing brace. `member` gets the opening quote of a name
 * and the first character of its value, and says where the value ends.
 */
function forMembers(text: string, start: number, where: string, member: (quote: number, at: number) => number): number {
  let i = skipSpace(text, start + 1)
  if (text.charCodeAt(i) === CLOSE) return i + 1
  for (;;) {
    if (text.charCodeAt(i) !== 34) unexpected(text, i, where)
    const colon = skipSpace(text, skipString(text, i) + 1)
    if (text.charCodeAt(colon) !== 58) unexpected(text, colon, where)
    i = skipSpace(text, member(i, skipSpace(text, colon + 1)))
    const c = text.charCodeAt(i)
    if (c === CLOSE) return i + 1
    if (c !== 44) unexpected(text, i, where)
    i = skipSpace(text, i + 1)
  }
}

function unexpected(text: string, at: number, where: string): never {
  return invalidJson('JSON does not parse', where, {
    got: at < text.length ? `${JSON.stringify(text[at])} at position ${at}` : 'its end',
  })
}

/** The four characters that RFC 8259 calls white space. */
function skipSpace(text: string, i: number): number {
  for (;;) {
    const c = text.charCodeAt(i)
    if (c !== 32 && c !== 10 && c !== 13 && c !== 9) return i
    i++
  }
}

const found: Scan = { end: 0, keys: 0 }

/** Where a value ends, and what is in it. The result is the same object each time. */
function scanValue(text: string, at: number, where: string, maxDepth: number): Scan {
  const c = text.charCodeAt(at)
  if (c === OPEN || c === 91) {
    scan(text, at, 'closed', where, maxDepth, found)
    return found
  }
  // A string, number or word ends before the next comma or brace that is outside it.
  let end = c === 34 ? skipString(text, at) + 1 : at
  while (end < text.length && text.charCodeAt(end) !== 44 && text.charCodeAt(end) !== CLOSE) end++
  scan(text.slice(at, end), 0, 'all', where, maxDepth, found)
  found.end = end
  return found
}

/** By the parser, which knows escapes and control characters. */
function nameAt(text: string, quote: number, where: string): string {
  return parseScanned(text.slice(quote, skipString(text, quote) + 1), 0, where) as string
}
