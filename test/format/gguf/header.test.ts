import fc from 'fast-check'
import { expect, test } from 'vitest'
import { isSluiceError } from '#sluice/base/errors.js'
import { type GgufHeader, parseGguf } from '#sluice/format/gguf/header.js'
import { decodeValue, metadataObject } from '#sluice/format/gguf/metadata.js'
import { Incomplete } from '#sluice/format/gguf/window.js'
import { ARRAY, gguf, type Meta, STRING, type Tensor, U32 } from './build.ts'

const parse = (file: Uint8Array) => parseGguf(file, file.length, 'x')

function code(file: Uint8Array, fileSize = file.length): string {
  try {
    parseGguf(file, fileSize, 'x')
  } catch (error) {
    if (isSluiceError(error)) return error.code
    throw error
  }
  return 'accepted'
}

function values(header: GgufHeader): Record<string, unknown> {
  return Object.fromEntries([...header.metadata].map(([key, raw]) => [key, decodeValue(raw, 'x')]))
}

const NAME: Meta = ['general.name', STRING, 'x']
const A: Tensor = { name: 'a', ne: [3, 2], type: 0, bytes: new Uint8Array(24) }
const B: Tensor = { name: 'b', ne: [64, 2], type: 8, bytes: new Uint8Array(136) }

const ALL: readonly Meta[] = [
  ['u8', 0, 255],
  ['i8', 1, -128],
  ['u16', 2, 65535],
  ['i16', 3, -32768],
  ['u32', 4, 4294967295],
  ['i32', 5, -2147483648],
  ['f32', 6, 1.5],
  ['bool', 7, 1],
  ['string', STRING, '널 \0 x'],
  ['u64', 10, 2n ** 64n - 1n],
  ['i64', 11, -(2n ** 63n)],
  ['safe', 10, 2n ** 53n - 1n],
  ['unsafe', 10, 2n ** 53n],
  ['f64', 12, 1e-300],
  ['empty', ARRAY, [STRING, []]],
  ['strings', ARRAY, [STRING, ['a', '', '漢字']]],
  [
    'nested',
    ARRAY,
    [
      ARRAY,
      [
        [U32, [1, 2]],
        [STRING, ['in']],
      ],
    ],
  ],
  ['__proto__', U32, 7],
]

test.each([
  [2, false],
  [3, false],
  [2, true],
  [3, true],
])('version %i, big-endian %s: every value type, tensors, shapes row-major', (version, bigEndian) => {
  const file = gguf(ALL, [A, B], { version, bigEndian })
  const header = parse(file)
  expect(header).toMatchObject({ version, bigEndian, alignment: 32 })
  expect(values(header)).toEqual(
    Object.fromEntries([
      ...Object.entries({
        u8: 255,
        i8: -128,
        u16: 65535,
        i16: -32768,
        u32: 4294967295,
        i32: -2147483648,
        f32: 1.5,
        bool: true,
        string: '널 \0 x',
        u64: '18446744073709551615',
        i64: '-9223372036854775808',
        safe: 9007199254740991,
        unsafe: '9007199254740992',
        f64: 1e-300,
        empty: [],
        strings: ['a', '', '漢字'],
        nested: [[1, 2], ['in']],
      }),
      ['__proto__', 7],
    ]),
  )
  const data = file.length - 32 - 160
  expect(header.tensors.map(({ name, shape, offset, length }) => [name, shape, offset, length])).toEqual([
    ['a', [2, 3], data, 24],
    ['b', [2, 64], data + 32, 136],
  ])
})

test('general.alignment moves the data', () => {
  const header = parse(gguf([['general.alignment', U32, 128]], [A, B], { alignment: 128 }))
  expect(header.tensors.map((t) => t.offset % 128)).toEqual([0, 0])
  expect(header.tensors[1]!.offset - header.tensors[0]!.offset).toBe(128)
})

test.each([
  ['magic', gguf([], []).fill(65, 0, 4), 'FORMAT_INVALID'],
  ['version 1', gguf([], [], { version: 1 }), 'FORMAT_UNSUPPORTED'],
  ['version 1 big-endian', gguf([], [], { version: 1, bigEndian: true }), 'FORMAT_UNSUPPORTED'],
  ['version 4', gguf([], [], { version: 4 }), 'FORMAT_UNSUPPORTED'],
  ['a key twice', gguf([NAME, NAME], []), 'FORMAT_INVALID'],
  ['an empty key', gguf([['', U32, 1]], []), 'FORMAT_INVALID'],
  ['a value type', gguf([['x', 13, 0]], []), 'FORMAT_UNSUPPORTED'],
  ['an element type', gguf([['x', ARRAY, [13, []]]], []), 'FORMAT_UNSUPPORTED'],
  ['nesting', gguf([['x', ARRAY, nest(9)]], []), 'FORMAT_LIMIT'],
  ['alignment 0', gguf([['general.alignment', U32, 0]], [A]), 'FORMAT_INVALID'],
  ['alignment 48', gguf([['general.alignment', U32, 48]], [A]), 'FORMAT_INVALID'],
  ['alignment of another type', gguf([['general.alignment', 10, 32n]], [A]), 'FORMAT_INVALID'],
  ['a tensor twice', gguf([], [A, A]), 'FORMAT_INVALID'],
  ['a long tensor name', gguf([], [{ ...A, name: 'n'.repeat(64) }]), 'FORMAT_INVALID'],
  ['five dimensions', gguf([], [{ ...A, ne: [3, 2, 1, 1, 1] }]), 'FORMAT_INVALID'],
  ['a removed tensor type', gguf([], [{ ...A, type: 4 }]), 'FORMAT_UNSUPPORTED'],
  ['a row that is not blocks', gguf([], [{ ...B, ne: [33, 2] }]), 'FORMAT_INVALID'],
  ['a size past 2^53', gguf([], [{ ...A, ne: [2 ** 30, 2 ** 30] }]), 'FORMAT_INVALID'],
  ['an unaligned offset', gguf([], [A, { ...B, offset: 24 }]), 'FORMAT_INVALID'],
  ['an overlap', gguf([], [A, { ...B, offset: 0 }]), 'FORMAT_INVALID'],
  ['a hole', gguf([], [A, { ...B, offset: 64 }]), 'FORMAT_INVALID'],
  ['data cut short', gguf([], [A, B]).slice(0, -25), 'FORMAT_INVALID'],
])('%s is refused', (_, file, expected) => {
  expect(code(file)).toBe(expected)
})

function nest(depth: number): unknown {
  return depth === 0 ? [U32, []] : [ARRAY, [nest(depth - 1)]]
}

test('text that is not UTF-8 and a bool of 2 are refused when decoded', () => {
  const file = gguf([['s', STRING, 'ab']], [])
  file[file.indexOf(97)] = 0xff
  for (const bad of [file, gguf([['b', 7, 2]], [])]) {
    const { metadata } = parse(bad)
    expect(() => metadataObject(metadata, 'x')).toThrowError(expect.objectContaining({ code: 'FORMAT_INVALID' }))
  }
})

test('counts and lengths are compared with the file before anything is made', () => {
  const started = performance.now()
  for (const huge of [2n ** 40n, 2n ** 53n, 2n ** 60n, 2n ** 63n, 2n ** 64n - 1n])
    for (const at of [8, 16, 24]) {
      const file = gguf([['key', ARRAY, [STRING, ['a']]]], [])
      new DataView(file.buffer).setBigUint64(at, huge, true)
      expect(code(file)).toBe('FORMAT_INVALID')
    }
  // An array of 2^40 strings in a file that claims to be large enough: a cap, not an allocation.
  const file = gguf([['key', ARRAY, [STRING, ['a']]]], [])
  new DataView(file.buffer).setBigUint64(24 + 8 + 3 + 4 + 4, 2n ** 40n, true)
  expect(code(file, 2 ** 50)).toBe('FORMAT_LIMIT')
  expect(performance.now() - started).toBeLessThan(500)
})

test('elements of all arrays together are capped, nested ones too', () => {
  // 20 arrays of 500,000 bytes each, in one array and in several keys: a file of 10 MB that would become 10 million numbers.
  const bytes = new Array<number>(500_000).fill(1)
  const nested: Meta = ['x', ARRAY, [ARRAY, Array.from({ length: 20 }, () => [0, bytes])]]
  const keys = Array.from({ length: 20 }, (_, i): Meta => [`k${i}`, ARRAY, [0, bytes]])
  expect([code(gguf([nested], [])), code(gguf(keys, [])), code(gguf(keys.slice(4), []))]).toEqual([
    'FORMAT_LIMIT',
    'FORMAT_LIMIT',
    'accepted',
  ])
})

test('a window that is too short asks for more, never for less than it has, and ends', () => {
  const file = gguf(ALL, [A, B])
  let length = 0
  for (let tries = 0; ; tries++) {
    expect(tries).toBeLessThan(1000)
    try {
      parseGguf(file.subarray(0, length), file.length, 'x')
      break
    } catch (error) {
      expect(error).toBeInstanceOf(Incomplete)
      expect((error as Incomplete).needed).toBeGreaterThan(length)
      length = (error as Incomplete).needed
    }
  }
  expect(length).toBeLessThanOrEqual(file.length - 192)
})

test('any cut is refused, any changed byte is accepted or refused: typed errors only', () => {
  const file = gguf([...ALL, ['general.alignment', U32, 32]], [A, B])
  for (let n = 0; n < file.length - 24; n++) expect(code(file.slice(0, n)), `${n} bytes`).toBe('FORMAT_INVALID')
  fc.assert(
    fc.property(fc.integer({ min: 0, max: file.length - 193 }), fc.integer({ min: 0, max: 255 }), (at, value) => {
      const changed = file.slice()
      changed[at] = value
      if (code(changed) !== 'accepted') return
      try {
        metadataObject(parse(changed).metadata, 'x')
      } catch (error) {
        if (!isSluiceError(error)) throw error
      }
    }),
    { numRuns: 3000, seed: 1 },
  )
})

test('large values are decoded when they are looked at, once', () => {
  const tokens = Array.from({ length: 1000 }, (_, i) => `token ${i}`)
  const { metadata } = parse(gguf([NAME, ['tokens', ARRAY, [STRING, tokens]]], []))
  const config = metadataObject(metadata, 'x')
  expect(Object.keys(config)).toEqual(['general.name', 'tokens'])
  expect(Object.getOwnPropertyDescriptor(config, 'tokens')!.get).toBeTypeOf('function')
  expect(config.tokens).toEqual(tokens)
  expect(config.tokens).toBe(config.tokens)
  expect(Object.getOwnPropertyDescriptor(config, 'general.name')!.get).toBeUndefined()
})
