// Checks the bytes of an open package against every hash it has.
import { createHash } from 'node:crypto'
import { join } from 'node:path'
import { ModelFormatError, throwIfAborted } from '../../base/errors.ts'
import { publishProgress } from '../../base/events.ts'
import { MAX_READ_BYTES } from '../../base/limits.ts'
import { encodedBytes } from '../../quant/codec.ts'
import type { ByteSource } from '../../source/source.ts'
import type { TensorEntry } from '../reader.ts'
import type { PackageFolder } from './folder.ts'
import type { PageTableFile } from './pagetable.ts'
import type { WiaReader } from './read.ts'
import { invalid } from './refuse.ts'

const STEP = 1024 * 1024

/** Where one page's bytes lie. A page never spans two segments. */
export interface PageRange {
  readonly source: number
  readonly offset: number
  readonly length: number
}

/** Bytes of page `page` when pages have `rowsPerPage` rows. */
export function pageRange(entry: TensorEntry, page: number, rowsPerPage: number): PageRange {
  const rowStart = page * rowsPerPage
  const rows = Math.min(rowsPerPage, entry.rows - rowStart)
  const s = entry.segments.find((g) => rowStart >= g.rowStart && rowStart < g.rowStart + g.rows)
  if (s === undefined) return invalid('no such page', `tensor ${entry.name}`, { got: page }, 'TENSOR_RANGE')
  // One page is the whole tensor, holes between strides included.
  if (rows === entry.rows) return { source: s.source, offset: s.offset, length: entry.byteLength }
  const before = encodedBytes(entry.encoding, rowStart - s.rowStart, entry.cols)
  return { source: s.source, offset: s.offset + before, length: encodedBytes(entry.encoding, rows, entry.cols) }
}

/** What one difference is told as; verify collects them, opening throws the first. */
export interface Fault {
  readonly file: string
  readonly tensor?: string
  readonly page?: number
  readonly offset?: number
  readonly expected: string
  readonly got: string
}

export function faultError(f: Fault): ModelFormatError {
  return new ModelFormatError('CHECKSUM_MISMATCH', {
    what:
      f.tensor === undefined
        ? 'file does not have the SHA-256 that the manifest states'
        : f.page === undefined
          ? 'tensor does not have its checksum'
          : 'page does not have its SHA-256',
    where: [
      f.file,
      ...(f.tensor === undefined ? [] : [`tensor ${f.tensor}`]),
      ...(f.page === undefined ? [] : [`page ${f.page}`]),
      ...(f.offset === undefined ? [] : [`offset ${f.offset}`]),
    ].join(', '),
    expected: f.expected,
    got: f.got,
    remedy: 'The file was damaged or replaced: copy the package again.',
    details: { ...f },
  })
}

/** Pages and checksum of one tensor. Reports faults in order; reads each byte once, in steps of at most 1 MiB. */
export async function verifyTensor(
  reader: Pick<WiaReader, 'sources'>,
  entry: TensorEntry,
  onFault: (fault: Fault) => void,
  signal?: AbortSignal,
): Promise<void> {
  const whole = createHash('sha256')
  const buffer = new Uint8Array(Math.min(STEP, entry.byteLength))
  const stream = async (r: PageRange, page?: ReturnType<typeof createHash>): Promise<void> => {
    const source = reader.sources[r.source]!
    for (let at = 0; at < r.length; ) {
      throwIfAborted(signal)
      const n = Math.min(STEP, r.length - at, MAX_READ_BYTES)
      const bytes = await source.read(r.offset + at, n, { into: buffer.subarray(0, n), ...(signal && { signal }) })
      whole.update(bytes)
      page?.update(bytes)
      at += n
    }
  }
  if (entry.pages === undefined) for (const s of entry.segments) await stream(s)
  else
    for (let page = 0; page < entry.pages.count; page++) {
      const range = pageRange(entry, page, entry.pages.rowsPerPage)
      const hash = createHash('sha256')
      await stream(range, hash)
      const expected = Buffer.from(await entry.pages.sha256(page)).toString('hex')
      const got = hash.digest('hex')
      const file = reader.sources[range.source]!.id
      if (got !== expected) onFault({ file, tensor: entry.name, page, offset: range.offset, expected, got })
    }
  const got = whole.digest('hex')
  if (entry.checksum !== undefined && got !== entry.checksum) {
    const s = entry.segments[0]
    const file = s === undefined ? '' : reader.sources[s.source]!.id
    onFault({ file, tensor: entry.name, expected: entry.checksum, got })
  }
}

async function hashSource(source: ByteSource, signal?: AbortSignal): Promise<string> {
  const hash = createHash('sha256')
  const buffer = new Uint8Array(Math.min(STEP, source.size))
  for (let at = 0; at < source.size; at += STEP) {
    throwIfAborted(signal)
    const n = Math.min(STEP, source.size - at)
    hash.update(await source.read(at, n, { into: buffer.subarray(0, n) }))
  }
  return hash.digest('hex')
}

export interface VerifyOptions {
  folder: PackageFolder
  table: PageTableFile | undefined
  signal?: AbortSignal | undefined
  /** Default: throw the first as CHECKSUM_MISMATCH. */
  onFault?: (fault: Fault) => void
}

/** Every hash: page table, files, shards where given, pages, tensors. Throws CHECKSUM_MISMATCH at the first fault unless onFault is given. */
export async function verifyPackage(reader: WiaReader, options: VerifyOptions): Promise<void> {
  const { folder, table, signal } = options
  const onFault =
    options.onFault ??
    ((fault: Fault): never => {
      throw faultError(fault)
    })
  await table?.load()
  for (const [path, record] of reader.head.files) {
    const source = await folder.open(path)
    try {
      const got = await hashSource(source, signal)
      if (got !== record.sha256) onFault({ file: join(folder.root, path), expected: record.sha256, got })
    } finally {
      await source.close()
    }
  }
  for (const [i, shard] of reader.head.shards.entries()) {
    if (shard.sha256 === undefined) continue
    const got = await hashSource(reader.sources[i]!, signal)
    if (got !== shard.sha256) onFault({ file: join(folder.root, shard.file), expected: shard.sha256, got })
  }
  const stored = [...reader.tensors.values()].filter((t) => t.aliasOf === undefined)
  const total = stored.reduce((n, t) => n + t.byteLength, 0)
  let done = 0
  for (const entry of stored) {
    await verifyTensor(reader, entry, onFault, signal)
    done += entry.byteLength
    publishProgress({ phase: 'verify', done, total, unit: 'bytes', detail: entry.name })
  }
}
