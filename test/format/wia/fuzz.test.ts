// Any change of a manifest is either refused with a typed error or leaves every range inside its source: nothing crashes, hangs or reads outside.
import { copyFileSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import fc from 'fast-check'
import { expect, test } from 'vitest'
import { isSluiceError } from '#sluice/base/errors.js'
import type { JsonValue } from '#sluice/base/json.js'
import { openWia } from '#sluice/format/wia/read.js'
import { plain, tempFolder, write } from './fixtures.ts'

const VALUES: JsonValue[] = [
  null,
  true,
  -1,
  0,
  1,
  15,
  16,
  63,
  64,
  4095,
  4096,
  65536,
  2 ** 31,
  2 ** 32,
  2 ** 53 - 1,
  1e300,
  0.5,
  '',
  'a',
  '__proto__',
  '../x',
  'sha256:',
  'int4',
  'LINEAR',
  'float64',
  [],
  [0],
  [1, 1],
  [2 ** 30, 2 ** 30],
  {},
  { a: 1 },
]

/** Every place in a tree: the object or array, and the key in it. */
function places(value: JsonValue, out: [{ [key: string]: JsonValue }, string][] = []) {
  if (typeof value !== 'object' || value === null) return out
  for (const key of Object.keys(value)) {
    out.push([value as { [key: string]: JsonValue }, key])
    places((value as { [key: string]: JsonValue })[key]!, out)
  }
  return out
}

test('random changes of the manifest', async () => {
  const out = join(tempFolder(), 'm.wia')
  await write(
    out,
    [
      plain('a', [600, 40]),
      plain('i', [3], 'int64', { inline: true }),
      { ...plain('tied', [600, 40]), aliasOf: 'a' },
      plain('s', [4, 6], 'float32', { strides: [1, 4] }),
      plain('q', [16, 32], 'float32', {
        encoding: { kind: 'panel', scheme: 'int4m', block: 32, scale: 'f16', exponent: -2 },
        byteLength: 320,
      }),
      plain('l', [2, 7], 'int8', {
        dtype: 'float32',
        linear: { scheme: 'linear', scales: [1, 2], zeroPoints: [0, 1], axis: 0 },
      }),
    ],
    { maxShardBytes: 65536, config: { hidden_size: 4 } },
  )
  const text = readFileSync(join(out, 'manifest.json'), 'utf8')
  const copy = join(tempFolder(), 'c.wia')
  for (const f of ['weights/model-00000.bin', 'weights/model-00001.bin', 'weights/pages.sha256', 'config/model.json']) {
    mkdirSync(join(copy, dirname(f)), { recursive: true })
    copyFileSync(join(out, f), join(copy, f))
  }
  const change = fc.record({ place: fc.nat(), value: fc.integer({ min: -2, max: VALUES.length - 1 }), from: fc.nat() })
  let accepted = 0
  let refused = 0
  await fc.assert(
    fc.asyncProperty(fc.array(change, { minLength: 1, maxLength: 3 }), async (changes) => {
      const manifest = JSON.parse(text) as JsonValue
      for (const { place, value, from } of changes) {
        const all = places(manifest)
        const [object, key] = all[place % all.length]!
        if (value === -2 && !Array.isArray(object)) delete object[key]
        else if (value < 0) object[key] = structuredClone(all[from % all.length]![0][all[from % all.length]![1]]!)
        else object[key] = structuredClone(VALUES[value]!)
      }
      writeFileSync(join(copy, 'manifest.json'), JSON.stringify(manifest))
      try {
        const reader = await openWia(copy, { mode: 'pread' })
        accepted++
        for (const t of reader.tensors.values())
          for (const s of t.segments) {
            expect(s.offset + s.length).toBeLessThanOrEqual(reader.sources[s.source]!.size)
            expect(s.length).toBeGreaterThan(0)
          }
        await reader.close()
      } catch (error) {
        if (!isSluiceError(error)) throw error
        expect(error.code).not.toBe('INTERNAL')
        refused++
      }
    }),
    { numRuns: 1500, seed: 14 },
  )
  expect(refused).toBeGreaterThan(1000)
  expect(accepted).toBeGreaterThan(5)
})
