// Seeded changes of files: bytes, numbers in text and in binary, and values, keys and subtrees of JSON.
import { dice } from './models.ts'

const NUMBERS = [
  ...[
    '0',
    '-1',
    '1',
    '2',
    '7',
    '0.5',
    '-0',
    '1e308',
    '-1e308',
    '1e999',
    '1e-320',
    'null',
    '"1"',
    'true',
    '[]',
    '{}',
    '64',
    '65',
  ],
  ...[
    '2147483647',
    '2147483648',
    '4294967295',
    '4294967296',
    '9007199254740991',
    '9007199254740992',
    '9007199254740993',
  ],
  ...['18446744073709551615', '18446744073709551616', '1000000000', '65536', '255', '256'],
]
const WORDS = [0n, 1n, 2n, 0x7fn, 0x80n, 0xffn, 0xffffn, 2n ** 31n - 1n, 2n ** 31n, 2n ** 32n - 1n, 2n ** 32n]
const LONG_WORDS = [...WORDS, 2n ** 53n - 1n, 2n ** 53n, 2n ** 53n + 1n, 2n ** 63n - 1n, 2n ** 63n, 2n ** 64n - 1n]
const VALUES: unknown[] = [
  ...[null, true, false, 0, -1, 1, 1.5, 1e308, 2 ** 31, 2 ** 32, 2 ** 53, 1e9, '', 'x', '__proto__', 'constructor'],
  ...[
    '\u0000',
    '\u001b[2J',
    '..',
    '../../etc/passwd',
    '/etc/passwd',
    'a'.repeat(5000),
    [],
    {},
    [[[[]]]],
    [0],
    ['x'],
    { x: 1 },
  ],
]

/** One to four random changes. The same seed gives the same bytes. */
export function mutate(input: Uint8Array, seed: number, other: Uint8Array = input): Uint8Array<ArrayBuffer> {
  const roll = dice(seed * 2654435761)
  for (let i = 0; i < 4; i++) roll(2)
  let bytes: Uint8Array<ArrayBuffer> = Uint8Array.from(input)
  for (let n = 1 + roll(3); n > 0; n--) bytes = change(bytes, roll, other)
  return bytes
}

type Roll = (n: number) => number

function change(bytes: Uint8Array<ArrayBuffer>, roll: Roll, other: Uint8Array): Uint8Array<ArrayBuffer> {
  if (bytes.length === 0) return Uint8Array.of(roll(256))
  // Headers and indexes are at the front: half of the changes go there.
  const near = roll(2) === 0 ? Math.min(bytes.length, 1 + roll(4096)) : bytes.length
  const at = roll(near)
  switch (roll(9)) {
    case 0:
      bytes[at]! ^= 1 << roll(8)
      return bytes
    case 1:
      bytes[at] = [0, 255, 127, 128, 10, 34, 44, 92, 123, 125][roll(10)]!
      return bytes
    case 2:
      return bytes.slice(0, at)
    case 3: {
      const from = roll(Math.max(1, other.length))
      return Uint8Array.from(
        Buffer.concat([bytes.subarray(0, at), other.subarray(from, from + roll(200)), bytes.subarray(at)]),
      )
    }
    case 4:
      return Uint8Array.from(Buffer.concat([bytes.subarray(0, at), bytes.subarray(at + 1 + roll(64))]))
    case 5: {
      const word = LONG_WORDS[roll(LONG_WORDS.length)]!
      if (at + 8 <= bytes.length) new DataView(bytes.buffer).setBigUint64(at, word, roll(4) > 0)
      return bytes
    }
    case 6: {
      const word = Number(WORDS[roll(WORDS.length)]! & 0xffffffffn)
      if (at + 4 <= bytes.length) new DataView(bytes.buffer).setUint32(at, word, roll(4) > 0)
      return bytes
    }
    default:
      return replaceNumber(bytes, roll)
  }
}

/** Another number (or something that is none) in place of a number in the text at the front. */
function replaceNumber(bytes: Uint8Array<ArrayBuffer>, roll: Roll): Uint8Array<ArrayBuffer> {
  const window = Buffer.from(bytes.subarray(0, 65536)).toString('latin1')
  const found = [...window.matchAll(/-?\d+(?:\.\d+)?/g)]
  if (found.length === 0) return bytes
  const m = found[roll(found.length)]!
  const head = bytes.subarray(0, m.index)
  const tail = bytes.subarray(m.index + m[0].length)
  return Uint8Array.from(Buffer.concat([head, Buffer.from(NUMBERS[roll(NUMBERS.length)]!), tail]))
}

/** A JSON text with one to three values, keys or subtrees changed. */
export function mutateJson(text: string, seed: number): string {
  const roll = dice(seed * 2246822519 + 1)
  for (let i = 0; i < 4; i++) roll(2)
  const root = JSON.parse(text) as unknown
  for (let n = 1 + roll(3); n > 0; n--) {
    const places: { holder: Record<string, unknown>; key: string }[] = []
    collect(root, places, 0)
    if (places.length === 0) break
    const { holder, key } = places[roll(places.length)]!
    switch (roll(6)) {
      case 0:
        if (Array.isArray(holder)) holder.splice(Number(key), 1)
        else delete holder[key]
        break
      case 1: {
        const from = places[roll(places.length)]!
        holder[key] = structuredClone(from.holder[from.key])
        break
      }
      case 2:
        if (Array.isArray(holder)) holder.push(structuredClone(holder[roll(holder.length)]))
        else {
          const name = ['__proto__', 'constructor', 'x', ''][roll(4)]!
          Object.defineProperty(holder, name, {
            value: holder[key],
            enumerable: true,
            configurable: true,
            writable: true,
          })
        }
        break
      case 3: {
        const value = holder[key]
        if (typeof value === 'number') holder[key] = [value + 1, value - 1, -value, value * 2, value / 2][roll(5)]
        else if (typeof value === 'string') holder[key] = value.slice(0, roll(value.length + 1))
        break
      }
      default:
        holder[key] = VALUES[roll(VALUES.length)]
    }
  }
  return JSON.stringify(root)
}

function collect(value: unknown, out: { holder: Record<string, unknown>; key: string }[], depth: number): void {
  if (typeof value !== 'object' || value === null || depth > 20) return
  for (const key of Object.keys(value)) {
    out.push({ holder: value as Record<string, unknown>, key })
    collect((value as Record<string, unknown>)[key], out, depth + 1)
  }
}
