// Runs the vectors (README.md here) against our reader, and checks that the generator still gives the same files.
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { isSluiceError, ModelFormatError } from '#sluice/base/errors.js'
import { openWia } from '#sluice/format/wia/read.js'
import { codecOf } from '#sluice/quant/codec.js'
import { expect, test } from 'vitest'

interface Verdict {
  path: string
  verdict: 'accept' | 'refuse'
  code?: string
  why: string
  verify?: 'lazy' | 'eager'
  values?: Record<string, number[]>
}
const here = import.meta.dirname
const verdicts = JSON.parse(readFileSync(join(here, 'verdicts.json'), 'utf8')) as Verdict[]
const MODES = ['off', 'lazy', 'eager'] as const

test('there are vectors of both kinds', () => {
  expect(verdicts.filter((v) => v.verdict === 'accept').length).toBeGreaterThan(20)
  expect(verdicts.filter((v) => v.verdict === 'refuse').length).toBeGreaterThan(100)
})

test.each(verdicts.filter((v) => v.verdict === 'accept'))('$path is accepted: $why', async ({ path, values }) => {
  for (const verify of MODES) {
    const reader = await openWia(join(here, path), { verify })
    for (const [name, expected] of Object.entries(values ?? {})) {
      const e = reader.tensors.get(name)!
      const s = e.segments[0]!
      const out = new Float32Array(e.rows * e.cols)
      codecOf(e.encoding).decode(await reader.sources[s.source]!.read(s.offset, s.length), e.rows, e.cols, out)
      expect([...out].map((x) => x + 0)).toEqual(expected)
    }
    await reader.close()
  }
})

test.each(verdicts.filter((v) => v.verdict === 'refuse'))('$path is refused with $code: $why', async ({ path, code, verify }) => {
  for (const mode of MODES) {
    const applies = verify === undefined || MODES.indexOf(mode) >= MODES.indexOf(verify)
    const outcome = await openWia(join(here, path), { verify: mode }).then(
      async (reader) => {
        await reader.close()
        return 'accepted'
      },
      (error: unknown) => error,
    )
    if (!applies) {
      expect(outcome).toBe('accepted')
      continue
    }
    expect(isSluiceError(outcome) ? outcome.code : outcome).toBe(code)
    if (code !== 'NOT_IMPLEMENTED') expect(outcome).toBeInstanceOf(ModelFormatError)
  }
})
