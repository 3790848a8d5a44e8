// Packages for tests: bytes from a seed, written by our writer into a temporary folder.
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll } from 'vitest'
import { createWiaWriter, type WiaWriterOptions } from '#sluice/format/wia/write.js'
import type { PlannedTensor } from '#sluice/format/writer.js'

const folders: string[] = []
afterAll(() => {
  for (const f of folders) rmSync(f, { recursive: true, force: true })
})

export function tempFolder(): string {
  const folder = mkdtempSync(join(tmpdir(), 'sluice-wia-'))
  folders.push(folder)
  return folder
}

/** Bytes from a seed (mulberry32). */
export function seeded(seed: number, length: number): Uint8Array {
  const out = new Uint8Array(length)
  let a = seed >>> 0
  for (let i = 0; i < length; i++) {
    a = (a + 0x6d2b79f5) >>> 0
    let t = Math.imul(a ^ (a >>> 15), 1 | a)
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t
    out[i] = t ^ (t >>> 14)
  }
  return out
}

export type Spec = Partial<PlannedTensor> & { name: string; bytes?: Uint8Array }

const SIZES: Record<string, number> = {
  float64: 8,
  float32: 4,
  float16: 2,
  bfloat16: 2,
  int64: 8,
  int32: 4,
  int16: 2,
  complex64: 8,
  uint16: 2,
  uint32: 4,
  uint64: 8,
}

/** A plain tensor of a shape, with bytes from its name. */
export function plain(
  name: string,
  shape: number[],
  dtype: PlannedTensor['dtype'] = 'float32',
  more: Partial<PlannedTensor> = {},
): PlannedTensor & { bytes: Uint8Array } {
  const cols = shape.at(-1) ?? 1
  const rows = shape.slice(0, -1).reduce((a, b) => a * b, 1)
  const byteLength = more.byteLength ?? rows * cols * (SIZES[dtype] ?? 1)
  const seed = [...name].reduce((a, c) => a * 31 + c.charCodeAt(0), 7)
  return {
    name,
    shape,
    dtype,
    encoding: { kind: 'plain', dtype },
    rows,
    cols,
    byteLength,
    ...more,
    bytes: seeded(seed, byteLength),
  }
}

export const METADATA = { model_name: 'test', version: '1.0.0' }

/** Chunks of odd sizes, to cross every boundary. */
export function* chunks(bytes: Uint8Array, size = 1000): Iterable<Uint8Array> {
  for (let at = 0; at < bytes.length; at += size) yield bytes.subarray(at, at + size)
}

export async function write(
  out: string,
  tensors: (PlannedTensor & { bytes?: Uint8Array })[],
  options: Partial<WiaWriterOptions> = {},
  chunk = 1000,
): Promise<void> {
  const writer = createWiaWriter(out, { metadata: METADATA, ...options })
  writer.plan(tensors)
  for (const t of tensors) if (t.aliasOf === undefined) await writer.put(t.name, chunks(t.bytes!, chunk))
  await writer.finish()
}
