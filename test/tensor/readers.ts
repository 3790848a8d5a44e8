// Small models in memory: entries written by hand over bytes written by hand, every read counted.

import { createHash } from 'node:crypto'
import type { ModelReader, TensorEntry } from '#sluice/format/reader.js'
import { codecOf } from '#sluice/quant/codec.js'
import type { Encoding } from '#sluice/quant/scheme.js'
import { type CountedSource, counted } from '#sluice/source/counted.js'
import { MemorySource } from '#sluice/source/memory.js'

export interface Model {
  reader: Pick<ModelReader, 'tensors' | 'sources' | 'path'>
  sources: CountedSource[]
  reset(): void
}

export function model(entries: readonly TensorEntry[], files: readonly Uint8Array[]): Model {
  const sources = files.map((bytes, i) => counted(new MemorySource(bytes, `file${i}`), { record: true }))
  return {
    reader: { tensors: new Map(entries.map((e) => [e.name, e])), sources, path: 'model' },
    sources,
    reset: () => {
      for (const s of sources) s.reset()
    },
  }
}

/** Deterministic numbers in (-1, 1). */
export function numbers(n: number, seed = 1): Float32Array {
  const out = new Float32Array(n)
  let x = (seed * 2654435761) >>> 0 || 1
  for (let i = 0; i < n; i++) {
    x ^= x << 13
    x >>>= 0
    x ^= x >>> 17
    x ^= x << 5
    x >>>= 0
    out[i] = x / 2 ** 31 - 1
  }
  return out
}

/** A matrix at `offset` of source 0. */
export function entry(
  encoding: Encoding,
  rows: number,
  cols: number,
  offset: number,
  more: Partial<TensorEntry> = {},
): TensorEntry {
  const byteLength = codecOf(encoding).byteLength(rows, cols)
  return {
    name: 'w',
    shape: [rows, cols],
    dtype: encoding.kind === 'plain' ? encoding.dtype : 'float32',
    encoding,
    rows,
    cols,
    byteLength,
    segments: [{ source: 0, offset, length: byteLength, rowStart: 0, rows }],
    ...more,
  }
}

/** Numbers encoded, behind `offset` bytes of 0xee, with what they decode to as a whole. */
export function encoded(
  encoding: Encoding,
  rows: number,
  cols: number,
  offset = 0,
): { file: Uint8Array; stored: Uint8Array; values: Float32Array } {
  const codec = codecOf(encoding)
  const stored = new Uint8Array(codec.byteLength(rows, cols))
  codec.encode!(numbers(rows * cols), rows, cols, stored)
  const values = new Float32Array(rows * cols)
  codec.decode(stored, rows, cols, values)
  const file = new Uint8Array(offset + stored.length + 7).fill(0xee)
  file.set(stored, offset)
  return { file, stored, values }
}

/** The page table of stored bytes. */
export function pageTable(stored: Uint8Array, rows: number, rowsPerPage: number, pageBytes: number) {
  const count = Math.ceil(rows / rowsPerPage)
  const hashes = Array.from({ length: count }, (_, i) =>
    createHash('sha256')
      .update(stored.subarray(i * pageBytes, (i + 1) * pageBytes))
      .digest(),
  )
  return { rowsPerPage, count, sha256: (page: number) => new Uint8Array(hashes[page]!) }
}
