// Models made of pseudo-random bytes, and compute threads that check what they get.
import { createHash } from 'node:crypto'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { Worker } from 'node:worker_threads'
import type { ModelReader, Segment, TensorEntry } from '#sluice/format/reader.js'
import type { SharedPages, WeightPager } from '#sluice/pager/pager.js'
import type { Encoding } from '#sluice/quant/scheme.js'
import { MemorySource } from '#sluice/source/memory.js'
import { openFile } from '#sluice/source/openFile.js'
import type { ByteSource, ReadOptions } from '#sluice/source/source.js'

export const F32: Encoding = { kind: 'plain', dtype: 'float32' }
export const F16: Encoding = { kind: 'plain', dtype: 'float16' }
export const F32_BIG: Encoding = { kind: 'plain', dtype: 'float32', bigEndian: true }
export const BF16_BIG: Encoding = { kind: 'plain', dtype: 'bfloat16', bigEndian: true }
export const INT4: Encoding = { kind: 'panel', scheme: 'int4', block: 32, scale: 'f16', exponent: 0 }
export const Q4_0: Encoding = { kind: 'ggml', type: 'Q4_0' }
export const Q8_0: Encoding = { kind: 'ggml', type: 'Q8_0' }
export const Q8_0_BIG: Encoding = { kind: 'ggml', type: 'Q8_0', bigEndian: true }
/** Panels with minima, panels with float32 scales, and decoded rows. */
export const Q4_1: Encoding = { kind: 'ggml', type: 'Q4_1' }
export const MXFP4: Encoding = { kind: 'ggml', type: 'MXFP4' }
export const Q5_1: Encoding = { kind: 'ggml', type: 'Q5_1' }
export const Q5_1_BIG: Encoding = { kind: 'ggml', type: 'Q5_1', bigEndian: true }

const GGML_BYTES: Readonly<Record<string, number>> = { Q4_0: 18, Q8_0: 34, Q4_1: 20, MXFP4: 17, Q5_1: 24 }

export interface MatrixSpec {
  rows: number
  cols: number
  encoding: Encoding
  /** Rows of all segments but the last: a multiple of 16. Absent: one segment. */
  split?: number
  /** Rows a page of a page table. Absent: no table. */
  table?: number
  /** Bytes before each segment. */
  gap?: number
}

export interface Model {
  reader: ModelReader
  /** Bytes of rows [from, from + rows) as kernels want them. */
  expected(name: string, from: number, rows: number): Uint8Array
  /** Whole files, one a source. */
  files: Uint8Array[]
}

/** Bytes of a row, for 16-row panels of a sixteenth of a panel. */
function rowBytes(e: Encoding, cols: number): number {
  if (e.kind === 'plain') return cols * (e.dtype === 'float32' ? 4 : 2)
  if (e.kind === 'panel') return (cols / 32) * 18
  return (cols / 32) * GGML_BYTES[e.type]!
}

export function randomBytes(length: number, seed: number): Uint8Array {
  const out = new Uint8Array(length)
  let x = seed * 2654435761 + 1
  for (let i = 0; i < length; i++) {
    x = (Math.imul(x, 1664525) + 1013904223) >>> 0
    out[i] = x >>> 24
  }
  return out
}

/** Matrices m0, m1 …; segments go to the sources in turn. */
export function makeModel(specs: readonly MatrixSpec[], sourceCount: number, seed: number): Model {
  const parts: Uint8Array[][] = Array.from({ length: sourceCount }, () => [])
  const sizes = new Array<number>(sourceCount).fill(0)
  const stored = new Map<string, Uint8Array>()
  const tensors = new Map<string, TensorEntry>()
  let turn = 0
  specs.forEach((spec, k) => {
    const name = `m${k}`
    const unit = spec.encoding.kind === 'panel' ? 16 : 1
    const row = rowBytes(spec.encoding, spec.cols)
    const bytesOf = (rows: number) => Math.ceil(rows / unit) * unit * row
    const bytes = randomBytes(bytesOf(spec.rows), seed + k)
    // Decoded types: no float16 field is NaN, whose bits are nobody's promise.
    if (spec.encoding.kind === 'ggml' && spec.encoding.type.endsWith('_1'))
      for (let i = 0; i < bytes.length; i++) bytes[i] = bytes[i]! & 0xbf
    stored.set(name, bytes)
    const segments: Segment[] = []
    for (let from = 0; from < spec.rows; from += spec.split ?? spec.rows) {
      const rows = Math.min(spec.split ?? spec.rows, spec.rows - from)
      const source = turn++ % sourceCount
      const gap = new Uint8Array(spec.gap ?? 0).fill(0xee)
      parts[source]!.push(gap, bytes.subarray(bytesOf(from), bytesOf(from) + bytesOf(rows)))
      segments.push({ source, offset: sizes[source]! + gap.length, length: bytesOf(rows), rowStart: from, rows })
      sizes[source]! += gap.length + bytesOf(rows)
    }
    const { table } = spec
    tensors.set(name, {
      name,
      shape: [spec.rows, spec.cols],
      dtype: 'float32',
      encoding: spec.encoding,
      rows: spec.rows,
      cols: spec.cols,
      byteLength: bytes.length,
      segments,
      ...(table === undefined
        ? {}
        : {
            pages: {
              rowsPerPage: table,
              count: Math.ceil(spec.rows / table),
              sha256: (p: number) =>
                createHash('sha256')
                  .update(
                    bytes.subarray(
                      bytesOf(p * table),
                      bytesOf(p * table) + bytesOf(Math.min(table, spec.rows - p * table)),
                    ),
                  )
                  .digest(),
            },
          }),
    })
  })
  const files = parts.map((p) => Buffer.concat(p))
  return {
    files,
    reader: readerOf(
      tensors,
      files.map((f, i) => new MemorySource(f, `memory ${i}`)),
    ),
    expected(name, from, rows) {
      const e = tensors.get(name)!
      const unit = e.encoding.kind === 'panel' ? 16 : 1
      const row = rowBytes(e.encoding, e.cols)
      const slice = stored.get(name)!.slice(from * row, from * row + Math.ceil(rows / unit) * unit * row)
      return toCompute(e.encoding, slice, rows, e.cols)
    },
  }
}

export function readerOf(tensors: ReadonlyMap<string, TensorEntry>, sources: readonly ByteSource[]): ModelReader {
  return {
    format: 'wia',
    path: 'test',
    sources,
    tensors,
    config: {},
    metadata: {},
    tokenizerFiles: new Map(),
    adapters: [],
    identity: '',
    bytesRead: 0,
    close: async () => {
      for (const s of sources) await s.close()
    },
  }
}

/** The layouts of docs/FORMAT.md ("Row panels") and of ggml blocks (scale, then codes), written plainly. */
function toCompute(e: Encoding, stored: Uint8Array, rows: number, cols: number): Uint8Array {
  if (e.kind === 'panel') return stored
  if (e.kind === 'plain') {
    if (e.bigEndian !== true) return stored
    const size = e.dtype === 'float32' ? 4 : 2
    return stored.map((_, i) => stored[i - (i % size) + size - 1 - (i % size)]!)
  }
  if (e.kind !== 'ggml') throw new Error(e.kind)
  const blocks = cols / 32
  const block = GGML_BYTES[e.type]!
  const view = new DataView(stored.buffer, stored.byteOffset, stored.length)
  const half = (at: number): number => {
    const bits = view.getUint16(at, e.bigEndian !== true)
    const m = bits & 1023
    const exponent = (bits >> 10) & 31
    return (bits >> 15 ? -1 : 1) * (exponent === 0 ? m * 2 ** -24 : (1024 + m) * 2 ** (exponent - 25))
  }
  if (e.type === 'Q5_1') {
    const values = new Float32Array(rows * cols)
    values.forEach((_, i) => {
      const from = Math.floor(i / 32) * 24
      const c = i % 32
      const nibble = (stored[from + 8 + (c % 16)]! >> (c < 16 ? 0 : 4)) & 15
      const fifth = (view.getUint32(from + 4, e.bigEndian !== true) >>> c) & 1
      values[i] = half(from) * (nibble + 16 * fifth) + half(from + 2)
    })
    return new Uint8Array(values.buffer)
  }
  const four = e.type === 'Q4_0' || e.type === 'Q4_1'
  const codeBytes = four ? 256 : 512
  // Bytes of what lies in rows behind the codes of a block: scales, minima.
  const after = e.type === 'MXFP4' ? [4] : e.type === 'Q4_1' ? [2, 2] : [2]
  const panelBlock = codeBytes + 16 * after.reduce((sum, n) => sum + n, 0)
  const codesAt = e.type === 'MXFP4' ? 1 : 2 * after.length
  const e2m1 = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12]
  const out = new Uint8Array(Math.ceil(rows / 16) * blocks * panelBlock)
  for (let r = 0; r < rows; r++)
    for (let b = 0; b < blocks; b++) {
      const from = (r * blocks + b) * block
      const to = (Math.floor(r / 16) * blocks + b) * panelBlock
      const lane = r % 16
      const [lo, hi] = e.bigEndian === true ? [1, 0] : [0, 1]
      if (e.type === 'MXFP4')
        new DataView(out.buffer).setFloat32(to + codeBytes + 4 * lane, 2 ** (stored[from]! - 128), true)
      else
        after.forEach((_, k) => {
          out[to + codeBytes + 32 * k + 2 * lane] = stored[from + 2 * k + lo]!
          out[to + codeBytes + 32 * k + 2 * lane + 1] = stored[from + 2 * k + hi]!
        })
      for (let c = 0; c < 32; c++) {
        const eight = to + Math.floor(c / 4) * 64 + lane * 4 + (c % 4)
        if (e.type === 'Q8_0') {
          out[eight] = stored[from + 2 + c]!
          continue
        }
        const code = (stored[from + codesAt + (c % 16)]! >> (c < 16 ? 0 : 4)) & 15
        if (e.type === 'MXFP4') {
          out[eight] = e2m1[code]!
          continue
        }
        const at = to + Math.floor(c / 8) * 64 + lane * 4 + (c % 4)
        out[at] = out[at]! | (c % 8 < 4 ? code : code << 4)
      }
    }
  return out
}

/** The model in files of a temporary folder. */
export async function onDisk(model: Model): Promise<{ reader: ModelReader; paths: string[]; remove(): Promise<void> }> {
  const folder = mkdtempSync(join(tmpdir(), 'sluice-pager-'))
  const paths = model.files.map((f, i) => {
    const path = join(folder, `shard-${i}.bin`)
    writeFileSync(path, f)
    return path
  })
  const sources = await Promise.all(paths.map((p) => openFile(p, { mode: 'pread' })))
  const reader = readerOf(model.reader.tensors, sources)
  return {
    reader,
    paths,
    remove: async () => {
      await reader.close()
      rmSync(folder, { recursive: true })
    },
  }
}

/** A source that notes reads, and may fail or wait. */
export function watched(
  inner: ByteSource,
  onRead: (offset: number, length: number) => void | Promise<void>,
): ByteSource {
  return {
    size: inner.size,
    id: inner.id,
    kind: 'watched',
    alignment: inner.alignment,
    async read(offset: number, length: number, options?: ReadOptions) {
      await onRead(offset, length)
      return inner.read(offset, length, options)
    },
    close: () => inner.close(),
  }
}

/** What the compute threads must find, page by page. */
export interface Expected {
  places: { offset: number; bytes: number }[]
  expected: Uint8Array<SharedArrayBuffer>
}

export function expectedPages(model: Model, pager: WeightPager): Expected {
  const places: { offset: number; bytes: number }[] = []
  const chunks: Uint8Array[] = []
  let offset = 0
  for (const m of pager.matrices)
    for (let i = 0; i < m.pageCount; i++) {
      const from = i * m.rowsPerPage
      const bytes = model.expected(m.name, from, Math.min(m.rowsPerPage, m.rows - from))
      places.push({ offset, bytes: bytes.length })
      chunks.push(bytes)
      offset += bytes.length
    }
  const expected = new Uint8Array(new SharedArrayBuffer(offset))
  chunks.forEach((c, i) => {
    expected.set(c, places[i]!.offset)
  })
  return { places, expected }
}

export interface Outcome {
  seen: number
  stallNs: number
  left?: { pass: number; page: number }
  wrong?: { pass: number; page: number }
  overwritten?: { pass: number; page: number }
  error?: string
}

export interface Job extends Expected {
  shared: SharedPages
  memories: WebAssembly.Memory[]
  firstPass: number
  passes: number
  seed: number
  /** Longest nap between acquiring and releasing a page. */
  pauseMs: number
}

/** Compute threads of the tests, started once. */
export function startConsumers(count: number): {
  run(threads: number, job: Job): Promise<Outcome[]>
  stop(): Promise<unknown>
} {
  const workers = Array.from({ length: count }, () => new Worker(new URL('./consumer.mjs', import.meta.url)))
  return {
    run: (threads, job) =>
      Promise.all(
        workers.slice(0, threads).map(
          (worker, i) =>
            new Promise<Outcome>((resolve, reject) => {
              worker.once('error', reject)
              worker.once('message', (outcome: Outcome) => {
                worker.removeListener('error', reject)
                resolve(outcome)
              })
              worker.postMessage({ ...job, seed: job.seed + i })
            }),
        ),
      ),
    stop: () => Promise.all(workers.map((w) => w.terminate())),
  }
}
