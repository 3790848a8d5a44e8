// Where the larger test data lives: SLUICE_DATA, or ../shared/data beside the checkout. Cases that need it are skipped, and
// counted in the closing lines of `npm test`, when it is not there.
import { existsSync } from 'node:fs'
import { join, resolve } from 'node:path'
import { test } from 'vitest'

const candidates = [process.env.SLUICE_DATA, resolve(import.meta.dirname, '../../shared/data')]
export const DATA = candidates.find((d): d is string => d !== undefined && existsSync(join(d, 'manifest.json')))

/** Path inside the data folder. Only inside tests made with `dataTest`. */
export function data(...parts: string[]): string {
  if (DATA === undefined) throw new Error('no test data folder; use dataTest')
  return join(DATA, ...parts)
}

/** A test that needs the data folder. */
export const dataTest = test.skipIf(DATA === undefined)
