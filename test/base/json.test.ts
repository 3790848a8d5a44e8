import canonicalize from 'canonicalize'
import fc from 'fast-check'
import { parse as losslessParse } from 'lossless-json'
import { expect, test } from 'vitest'
import { isSluiceError } from '#sluice/base/errors.js'
import { canonicalJson, parseJson } from '#sluice/base/json.js'

const where = 'test.json'
const code = (text: string | Uint8Array, options = {}) => {
  try {
    parseJson(text, { where, ...options })
    return 'ok'
  } catch (err) {
    return isSluiceError(err) ? err.code : 'other'
  }
}

test('strict rules', () => {
  expect(code('{"a":1,"a":2}')).toBe('JSON_INVALID')
  expect(code('{"a":{"b":1,"\\u0062":2}}')).toBe('JSON_INVALID')
  expect(code('{"__proto__":1,"constructor":2}')).toBe('ok')
  expect(code('{"a":"x:y","b":"\\":"}')).toBe('ok')
  expect(code('9007199254740993')).toBe('JSON_INVALID')
  expect(code('9007199254740991')).toBe('ok')
  expect(code('-9007199254740993')).toBe('JSON_INVALID')
  expect(code('1e999')).toBe('JSON_INVALID')
  expect(code('-3.4028234663852886e38')).toBe('ok')
  expect(code('[NaN]')).toBe('JSON_INVALID')
  expect(code('{"a":1}x')).toBe('JSON_INVALID')
  expect(code('[1 2]')).toBe('JSON_INVALID')
  expect(code('"unclosed')).toBe('JSON_INVALID')
  expect(code('[['.repeat(100000))).toBe('FORMAT_LIMIT')
  expect(code('[]', { maxBytes: 1 })).toBe('FORMAT_LIMIT')
  expect(code(new Uint8Array([0xef, 0xbb, 0xbf, 0x31]))).toBe('JSON_INVALID')
  expect(code(new Uint8Array([0x22, 0xff, 0x22]))).toBe('JSON_INVALID')
})

test('duplicates are named', () => {
  expect(() => parseJson('{"x":[{"k":1,"k":2}]}', { where })).toThrow(/duplicate key.*test\.json.*k/)
})

test('agrees with JSON.parse on any JSON text, and with a parser that refuses duplicate keys', () => {
  fc.assert(
    fc.property(fc.jsonValue(), (value) => {
      const text = JSON.stringify(value)
      fc.pre(!/\d{16}/.test(text)) // integers beyond 2^53 are refused
      expect(parseJson(text, { where })).toEqual(JSON.parse(text))
    }),
  )
  fc.assert(
    fc.property(fc.array(fc.constantFrom('a', 'b', 'c', 'd:', '"'), { minLength: 1, maxLength: 4 }), (keys) => {
      const text = `{${keys.map((k, i) => `${JSON.stringify(k)}:${i}`).join(',')}}`
      let refused = false
      try {
        losslessParse(text)
      } catch {
        refused = true
      }
      expect(code(text) !== 'ok').toBe(refused)
    }),
  )
})

test('canonical JSON equals RFC 8785', () => {
  fc.assert(
    fc.property(fc.jsonValue(), (value) => {
      const text = JSON.stringify(value)
      if (!text.isWellFormed() || /\\ud[89a-f]/i.test(text)) return
      expect(canonicalJson(JSON.parse(text))).toBe(canonicalize(JSON.parse(text)))
    }),
  )
  expect(() => canonicalJson(Number.NaN)).toThrow(/not finite/)
  expect(() => canonicalJson('\ud800')).toThrow(/lone surrogate/)
})
