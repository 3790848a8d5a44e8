import fc from 'fast-check'
import { expect, test } from 'vitest'
import { isSluiceError } from '#sluice/base/errors.js'
import { parseJsonObject } from '#sluice/base/json.js'
import { headerLength, parseHeader } from '#sluice/format/safetensors/header.js'
import { f32, rawFile, safetensors } from './build.ts'

function parse(file: Uint8Array) {
  const length = headerLength(file.subarray(0, 8), file.length, 'x')
  return parseHeader(file.subarray(8, 8 + length), file.length, 'x')
}

function code(file: Uint8Array): string {
  try {
    parse(file)
  } catch (error) {
    if (isSluiceError(error)) return error.code
    throw error
  }
  return 'accepted'
}

const data = (n: number) => new Uint8Array(n)

test('tensors come in storage order, with offsets from the start of the file', () => {
  const file = safetensors([
    { name: 'z', dtype: 'F32', shape: [2], bytes: f32(1, 2) },
    { name: 'a', dtype: 'F16', shape: [1, 3], bytes: data(6) },
    { name: 'empty', dtype: 'I64', shape: [0, 4], bytes: data(0) },
  ])
  const header = parse(file)
  const start = file.length - 14
  expect(header.tensors).toEqual([
    { name: 'z', dtype: 'float32', shape: [2], offset: start, length: 8 },
    { name: 'a', dtype: 'float16', shape: [1, 3], offset: start + 8, length: 6 },
    { name: 'empty', dtype: 'int64', shape: [0, 4], offset: start + 14, length: 0 },
  ])
})

test.each([
  [
    '{"a":{"dtype":"U8","shape":[16],"data_offsets":[0,16]},"a":{"dtype":"U8","shape":[16],"data_offsets":[0,16]}}',
    'JSON_INVALID',
  ],
  ['{"a":{"dtype":"U8","shape":[16.0],"data_offsets":[0,16]}}', 'FORMAT_INVALID'],
  ['{"a":{"dtype":"U8","shape":[16],"data_offsets":[-0,16]}}', 'FORMAT_INVALID'],
  ['{"a":{"dtype":"U8","shape":[16],"data_offsets":[0,1.6e1]}}', 'FORMAT_INVALID'],
  ['{"a":{"dtype":"U8","shape":[16],"data_offsets":[0,16,16]}}', 'FORMAT_INVALID'],
  ['{"a":{"dtype":"U8","shape":[16],"data_offsets":[16,0]}}', 'FORMAT_INVALID'],
  ['{"a":{"dtype":"U8","shape":[15],"data_offsets":[0,16]}}', 'FORMAT_INVALID'],
  ['{"a":{"dtype":"U8","shape":16,"data_offsets":[0,16]}}', 'FORMAT_INVALID'],
  ['{"a":{"dtype":"F4","shape":[32],"data_offsets":[0,16]}}', 'FORMAT_UNSUPPORTED'],
  ['{"a":{"dtype":"toString","shape":[16],"data_offsets":[0,16]}}', 'FORMAT_UNSUPPORTED'],
  ['{"a":{"dtype":"U8","shape":[16],"data_offsets":[0,16],"scale":1}}', 'FORMAT_INVALID'],
  ['{"a":{"dtype":"U8","shape":[4294967296,4294967296],"data_offsets":[0,16]}}', 'FORMAT_INVALID'],
  [
    '{"a":{"dtype":"U8","shape":[8],"data_offsets":[0,8]},"b":{"dtype":"U8","shape":[9],"data_offsets":[7,16]}}',
    'FORMAT_INVALID',
  ],
  [
    '{"a":{"dtype":"U8","shape":[8],"data_offsets":[0,8]},"b":{"dtype":"U8","shape":[7],"data_offsets":[9,16]}}',
    'FORMAT_INVALID',
  ],
  ['{"__metadata__":{"a":null},"a":{"dtype":"U8","shape":[16],"data_offsets":[0,16]}}', 'FORMAT_INVALID'],
  ['{"\\ud800":{"dtype":"U8","shape":[16],"data_offsets":[0,16]}}', 'JSON_INVALID'],
  ['{"a":{"dtype":"U8","shape":[16],"data_offsets":[0,16],"shape":[16]}}', 'JSON_INVALID'],
  ['{"a":{"dtype":"U8","shape":[16],"data_offsets":[0,16]},}', 'JSON_INVALID'],
  ['{"a":{"dtype":"U8","shape":[016],"data_offsets":[0,16]}}', 'FORMAT_INVALID'],
  ['{"a":{"dtype":"U8","shape":[16,],"data_offsets":[0,16]}}', 'FORMAT_INVALID'],
  [' {"a":{"dtype":"U8","shape":[16],"data_offsets":[0,16]}}', 'FORMAT_INVALID'],
  [`{"a":{"dtype":"U8","shape":[${'1,'.repeat(16)}16],"data_offsets":[0,16]}}`, 'FORMAT_LIMIT'],
])('%s is %s', (json, expected) => {
  expect(code(rawFile(json, data(16)))).toBe(expected)
})

test('names that look like numbers written oddly are no reason to refuse', () => {
  const name = 'a,-1[2.5:3e4\\"'
  expect(parse(safetensors([{ name, dtype: 'U8', shape: [1], bytes: data(1) }])).tensors[0]!.name).toBe(name)
})

test('any cut of a valid file is refused, with a typed error', () => {
  const file = safetensors([{ name: 'a', dtype: 'F32', shape: [2], bytes: f32(1, 2) }], { format: 'pt' })
  for (let n = 0; n < file.length; n++) expect(code(file.slice(0, n)), `${n} bytes`).not.toBe('accepted')
})

test('any changed byte is accepted or refused with a typed error, never anything else', () => {
  const file = safetensors([
    { name: 'a', dtype: 'F32', shape: [2], bytes: f32(1, 2) },
    { name: 'b', dtype: 'U8', shape: [3], bytes: data(3) },
  ])
  const headerEnd = file.length - 11
  fc.assert(
    fc.property(fc.integer({ min: 0, max: headerEnd - 1 }), fc.integer({ min: 0, max: 255 }), (at, value) => {
      const changed = file.slice()
      changed[at] = value
      if (code(changed) !== 'accepted') return
      // What the walker takes, the strict parser takes too, and they read the same.
      const json = parseJsonObject(changed.subarray(8, headerEnd), { where: 'x' })
      for (const t of parse(changed).tensors) expect(json[t.name]).toMatchObject({ shape: t.shape })
    }),
    { numRuns: 2000, seed: 1 },
  )
})

test('an index of 100,000 tensors parses', () => {
  const tensors = Array.from({ length: 100_000 }, (_, i) => ({
    name: `model.layers.${i >> 8}.mlp.experts.${i & 255}.down_proj.weight`,
    dtype: 'BF16',
    shape: [1, 2],
    bytes: data(4),
  }))
  const file = safetensors(tensors)
  parse(file) // compiled code is what is timed
  expect(parse(file).tensors.length).toBe(100_000)
})
