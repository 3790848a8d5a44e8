import fc from 'fast-check'
import { expect, test } from 'vitest'
import { isSluiceError } from '#sluice/base/errors.js'
import { type JsonValue, parseJsonObject } from '#sluice/base/json.js'
import { parseJsonMembers } from '#sluice/base/jsonmembers.js'

const where = 'test.json'

/** The tree again, so that it can be compared with what the whole parser gives. */
function whole(text: string): JsonValue {
  const { object, read } = parseJsonMembers(text, 'big', { where })
  const members = read((_, value) => value)
  const big = Object.fromEntries(members)
  return members.size === 0 ? object : { ...object, big }
}

function verdict(parse: () => JsonValue): string {
  try {
    return JSON.stringify(parse(), (_, v: unknown) =>
      typeof v === 'object' && v !== null && !Array.isArray(v) ? Object.entries(v).sort() : v,
    )
  } catch (error) {
    if (isSluiceError(error)) return error.code
    throw error
  }
}

function same(text: string): string {
  const expected = verdict(() => parseJsonObject(text, { where }))
  expect(
    verdict(() => whole(text)),
    text,
  ).toBe(expected)
  return expected
}

test('reads what the whole parser reads, refuses what it refuses', () => {
  const texts = [
    '{"big":{}}',
    '{ "a" : 1 , "big" : { "x" : [1, {"y":2}] , "z":null,"s":"a,}]","e":"\\u0041\\"" } , "b" : "t" }',
    '{"big":[1]}',
    '{"big":3,"a":{}}',
    '{"b\\u0069g":{"x":1}}',
    '{"big":{"__proto__":{"a":1},"constructor":2}}',
    '\t{"a":{"big":{"n":1}}}\n',
  ]
  for (const text of texts) expect(same(text)).not.toMatch(/^[A-Z]/)
  for (const text of [
    '{"big":{"x":1,"x":2}}',
    '{"big":{"x":1,"\\u0078":2}}',
    '{"big":{"x":{"k":1,"k":2}}}',
    '{"big":{},"big":{}}',
    '{"big":{},"b\\u0069g":{}}',
    '{"a":1,"a":2,"big":{}}',
    '{"big":{"x":1,}}',
    '{"big":{,"x":1}}',
    '{"big":{"x":}}',
    '{"big":{"x":,"y":2}}',
    '{"big":{"x"}}',
    '{"big":{"x" 1}}',
    '{"big":{"x":1 2}}',
    '{"big":{"x":1]}}',
    '{"big":{"x":[}}}',
    '{"big":{"x":{]}}',
    '{"big":{"x":1 "y":2}}',
    '{"big":{"x\n":1}}',
    '{"big":{"x":"a\nb"}}',
    '{"big":{"\\q":1}}',
    '{"big":{x:1}}',
    '{"big":{"x":9007199254740993}}',
    '{"big":{"x":1e999}}',
    '{"big":{"x":NaN}}',
    '{"big":{"x":1}',
    '{"big":{"x":1',
    '{"big":{"x',
    '{"big":{}} x',
    '{"big":{}}}',
    '[1]',
    '"big"',
    '',
    '{',
  ])
    expect(same(text), text).toBe('JSON_INVALID')
  const deep = (n: number) => `{"big":{"x":${'['.repeat(n)}${']'.repeat(n)}}}`
  expect(same(deep(62))).not.toMatch(/^[A-Z]/)
  expect(same(deep(63))).toBe('FORMAT_LIMIT')
})

test('agrees with the whole parser on random objects and on random damage to them', () => {
  const json = fc.dictionary(fc.constantFrom('a', 'big', 'c"', 'é'), fc.jsonValue({ maxDepth: 3 }))
  fc.assert(
    fc.property(json, fc.nat(), fc.constantFrom('', '"', ',', ':', '{', '}', '[', ']', '1', ' ', '\\'), (o, at, c) => {
      const text = JSON.stringify({ ...o, big: { ...o, x: o } })
      fc.pre(!/\d{16}/.test(text))
      same(text)
      const i = at % text.length
      same(text.slice(0, i) + c + text.slice(i + 1))
      same(text.slice(0, i) + c + text.slice(i))
    }),
    { numRuns: 300 },
  )
})

test('more members than are parsed at once, each once and in order', () => {
  const n = 1000
  const text = `{"big":{${Array.from({ length: n }, (_, i) => `"t${i}":{"i":${i}}`).join(',')}}}`
  const members = parseJsonMembers(text, 'big', { where })
  expect(members.count).toBe(n)
  const seen = members.read((name, value) => `${name} ${(value as { i: number }).i}`)
  expect([...seen.values()]).toEqual(Array.from({ length: n }, (_, i) => `t${i} ${i}`))
  const twice = text.replace('"t999"', '"t3"')
  expect(() => parseJsonMembers(twice, 'big', { where }).read(() => 0)).toThrow(/duplicate key.*t3/)
})
