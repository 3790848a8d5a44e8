// Files for the tests of this folder, made from a seed and removed afterwards.
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll } from 'vitest'

/** Deterministic bytes (xorshift32), the same for the same seed. */
export function seededBytes(length: number, seed = 1): Uint8Array {
  const out = new Uint8Array(length)
  let x = (seed * 2654435761) >>> 0 || 1
  for (let i = 0; i < length; i++) {
    x ^= x << 13
    x >>>= 0
    x ^= x >>> 17
    x ^= x << 5
    x >>>= 0
    out[i] = x & 255
  }
  return out
}

/** A folder on the disk (not a RAM file system, which has no direct I/O), removed after the tests of the file that asked. */
export function scratchFolder(): string {
  const folder = mkdtempSync(join(process.env.SLUICE_TMP ?? tmpdir(), 'sluice-source-'))
  afterAll(() => rmSync(folder, { recursive: true, force: true }))
  return folder
}

export function writeBytes(path: string, bytes: Uint8Array): string {
  writeFileSync(path, bytes)
  return path
}
