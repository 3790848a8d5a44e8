// Opens a package: checks the whole index against the files, reads no tensor byte (unless `eager`), and presents it as a ModelReader.
import { createHash } from 'node:crypto'
import { join } from 'node:path'
import { ValidationError } from '../../base/errors.ts'
import { publish } from '../../base/events.ts'
import { canonicalJson, type JsonObject, parseJsonObject } from '../../base/json.ts'
import { MAX_JSON_BYTES } from '../../base/limits.ts'
import { roundUp } from '../../base/shape.ts'
import { MemorySource } from '../../source/memory.ts'
import type { ByteSource } from '../../source/source.ts'
import type { ModelReader, PackagedAdapter, TensorEntry } from '../reader.ts'
import { tensorEntry } from './entry.ts'
import { type FolderOptions, locatePackage, PackageFolder, sizeMismatch } from './folder.ts'
import * as fmt from './layout.ts'
import type { ManifestHead } from './manifest.ts'
import { readIndex } from './packageindex.ts'
import { checkHash, PageTableFile, TensorPages } from './pagetable.ts'
import { invalid, tooMany } from './refuse.ts'
import type { TensorRecord } from './tensorfield.ts'
import { type Fault, verifyPackage } from './verify.ts'

/**
 * - `eager`: every hash of the package is checked at open.
 * - `lazy`: entries carry their pages and checksums; whoever reads a page first checks it.
 * - `off`: entries carry no hashes and nothing is checked but sizes and structure.
 */
export type VerifyMode = 'eager' | 'lazy' | 'off'

export interface OpenWiaOptions extends FolderOptions {
  verify?: VerifyMode
  /** Ends an eager check. */
  signal?: AbortSignal
}

/** A package is a ModelReader that also knows its own manifest. */
export interface WiaReader extends ModelReader {
  readonly format: 'wia'
  readonly verify: VerifyMode
  readonly head: ManifestHead
  /** Any file named in the manifest, hash checked unless verify is off. Throws FORMAT_INVALID when it is not listed. */
  readFile(path: string): Promise<Uint8Array>
  /**
   * Checks every hash of the package. Throws CHECKSUM_MISMATCH at the first difference, or tells all of them to `onFault`.
   * Throws REQUEST_INVALID when the package was opened with verify 'off'.
   */
  check(options?: { signal?: AbortSignal; onFault?: (fault: Fault) => void }): Promise<void>
}

/**
 * Opens a package directory or its manifest.json. O(index): reads manifest.json, architecture.json and config/model.json.
 * Throws ModelFormatError (FORMAT_*, JSON_INVALID, PATH_FORBIDDEN, CHECKSUM_MISMATCH, QUANT_UNSUPPORTED), SOURCE_*,
 * NOT_IMPLEMENTED for the single-file container, ABORTED.
 */
export async function openWia(path: string, options: OpenWiaOptions = {}): Promise<WiaReader> {
  const folder = new PackageFolder(await locatePackage(path), options)
  const verify = options.verify ?? 'lazy'
  const where = join(folder.root, fmt.MANIFEST_FILE)
  const raw = await folder.readAll(fmt.MANIFEST_FILE, MAX_JSON_BYTES)
  const { head, records, ordered } = readIndex(raw, where, folder.root)
  const table = head.pages === undefined ? undefined : new PageTableFile(folder, head.pages)
  await checkFiles(folder, head)
  const architecture = await readJson(folder, head, fmt.ARCHITECTURE_FILE, verify)
  const config = (await readJson(folder, head, fmt.CONFIG_FILE, verify)) ?? {}
  const inline = inlineSource(records.values(), where, verify)
  const sources = await openShards(folder, head)
  if (inline.source !== undefined) sources.push(inline.source)
  const tensors = entries(
    records,
    ordered,
    inline.offsets,
    head.shards.length,
    verify === 'off' ? undefined : table,
    verify,
  )

  const close = async (): Promise<void> => {
    await Promise.all(sources.map((s) => s.close()))
  }
  const readFile = (file: string): Promise<Uint8Array> => readListed(folder, head, file, verify)
  let identity: string | undefined
  const reader: WiaReader = {
    format: 'wia',
    path,
    verify,
    head,
    sources,
    tensors,
    config,
    metadata: head.metadata,
    ...(architecture === undefined ? {} : { architecture }),
    tokenizerFiles: tokenizerFiles(head, readFile),
    adapters: adapters(folder, head, readFile),
    remarks: remarksOf(head),
    sideFiles: sideFiles(head, readFile),
    bytesRead: raw.byteLength + (size(head, fmt.ARCHITECTURE_FILE) ?? 0) + (size(head, fmt.CONFIG_FILE) ?? 0),
    // Canonical form costs as much as opening does, and most callers never ask.
    get identity(): string {
      identity ??= createHash('sha256')
        .update(canonicalJson(parseJsonObject(raw, { where })))
        .digest('hex')
      return identity
    },
    readFile,
    async check(checkOptions = {}) {
      if (verify === 'off')
        throw new ValidationError('REQUEST_INVALID', {
          what: "a package opened with verify 'off' has no hashes to check",
          where: path,
        })
      await verifyPackage(reader, { folder, table, ...checkOptions })
    },
    close,
  }
  try {
    if (verify === 'eager') await reader.check(options.signal && { signal: options.signal })
  } catch (error) {
    await close()
    throw error
  }
  publish('open', () => ({ format: 'wia', path, tensors: tensors.size, bytesRead: reader.bytesRead }))
  return reader
}

function size(head: ManifestHead, file: string): number | undefined {
  return head.files.get(file)?.bytes
}

/** Both directions: what is listed exists with its size; a weights file that exists is listed. */
async function checkFiles(folder: PackageFolder, head: ManifestHead): Promise<void> {
  const expected = new Map<string, number>()
  for (const [path, record] of head.files) expected.set(path, record.bytes)
  if (head.pages !== undefined) expected.set(head.pages.file, head.pages.count * 32)
  for (const [path, bytes] of expected) {
    const got = await folder.size(path)
    if (got !== bytes) sizeMismatch(join(folder.root, path), bytes, got)
  }
  const shards = new Set(head.shards.map((s) => s.file))
  for (const name of await folder.list('weights'))
    if (name.endsWith('.bin') && !shards.has(`weights/${name}`))
      invalid('a weights file is not listed in the manifest', join(folder.root, 'weights', name), {
        remedy: 'Files of two models may be mixed up: copy the package again into an empty folder.',
      })
}

async function openShards(folder: PackageFolder, head: ManifestHead): Promise<ByteSource[]> {
  const sources: ByteSource[] = []
  try {
    for (const shard of head.shards) {
      const source = await folder.open(shard.file, folder.mode)
      sources.push(source)
      if (source.size !== shard.bytes) sizeMismatch(join(folder.root, shard.file), shard.bytes, source.size)
    }
  } catch (error) {
    await Promise.all(sources.map((s) => s.close()))
    throw error
  }
  return sources
}

async function readListed(
  folder: PackageFolder,
  head: ManifestHead,
  file: string,
  verify: VerifyMode,
): Promise<Uint8Array> {
  const record = head.files.get(file)
  if (record === undefined) invalid('file is not listed in the manifest', join(folder.root, file))
  const bytes = await folder.readAll(file, record.bytes, record.bytes)
  if (verify !== 'off') checkHash(bytes, record.sha256, join(folder.root, file))
  return bytes
}

async function readJson(
  folder: PackageFolder,
  head: ManifestHead,
  file: string,
  verify: VerifyMode,
): Promise<JsonObject | undefined> {
  const bytes = size(head, file)
  if (bytes === undefined) return undefined
  const where = join(folder.root, file)
  if (bytes > MAX_JSON_BYTES) tooMany('JSON is too large', where, MAX_JSON_BYTES, bytes)
  return parseJsonObject(await readListed(folder, head, file, verify), { where })
}

/** All inline tensors one after the other in one memory source, 64-byte aligned; their checksums are checked here. */
function inlineSource(records: Iterable<TensorRecord>, where: string, verify: VerifyMode) {
  const offsets = new Map<string, number>()
  const parts: TensorRecord[] = []
  let bytes = 0
  for (const r of records) {
    if (r.inline === undefined) continue
    if (verify !== 'off') checkHash(r.inline, r.checksum, `${where}, tensor ${r.name}`)
    offsets.set(r.name, bytes)
    parts.push(r)
    bytes += roundUp(r.inline.byteLength, fmt.SMALL_ALIGN)
  }
  if (parts.length === 0) return { offsets }
  const all = new Uint8Array(bytes)
  for (const r of parts) all.set(r.inline!, offsets.get(r.name)!)
  return { offsets, source: new MemorySource(all, `${where}#inline`) }
}

/** Stored tensors in storage order, then inline ones, then aliases. */
function entries(
  records: ReadonlyMap<string, TensorRecord>,
  ordered: readonly TensorRecord[],
  inline: ReadonlyMap<string, number>,
  shards: number,
  table: PageTableFile | undefined,
  verify: VerifyMode,
): Map<string, TensorEntry> {
  const map = new Map<string, TensorEntry>()
  const hashed = verify !== 'off'
  for (const r of ordered) {
    const pages = table && new TensorPages(table, r.pageFirst!, r.pageRows!, Math.ceil(r.rows / r.pageRows!))
    map.set(r.name, tensorEntry(r, r.ranges, pages, hashed))
  }
  for (const [name, offset] of inline) {
    const r = records.get(name)!
    const range = { source: shards, offset, length: r.length, rowStart: 0, rows: r.rows }
    map.set(name, { ...tensorEntry(r, r.length === 0 ? [] : [range], undefined, hashed), inline: true })
  }
  for (const r of records.values())
    if (r.alias !== undefined) map.set(r.name, { ...map.get(r.alias)!, name: r.name, aliasOf: r.alias })
  return map
}

function tokenizerFiles(head: ManifestHead, read: (file: string) => Promise<Uint8Array>) {
  const files = new Map<string, () => Promise<Uint8Array>>()
  for (const path of head.files.keys())
    if (path.startsWith('tokenizer/')) files.set(path.slice('tokenizer/'.length), () => read(path))
  return files
}

function remarksOf({ extensionsUsed, extensions, quantization }: ManifestHead): NonNullable<ModelReader['remarks']> {
  return {
    extensions: { used: extensionsUsed, ...(extensions === undefined ? {} : { data: extensions }) },
    ...(quantization === undefined ? {} : { quantization }),
  }
}

function sideFiles(head: ManifestHead, read: (file: string) => Promise<Uint8Array>) {
  const files = new Map<string, () => Promise<Uint8Array>>()
  for (const path of head.files.keys())
    if (path !== fmt.ARCHITECTURE_FILE && path !== fmt.CONFIG_FILE && !path.startsWith('tokenizer/'))
      files.set(path, () => read(path))
  return files
}

function adapters(
  folder: PackageFolder,
  head: ManifestHead,
  readFile: (file: string) => Promise<Uint8Array>,
): PackagedAdapter[] {
  const files = new Map<string, string[]>()
  for (const path of head.files.keys()) {
    const name = /^adapters\/([^/]+)\/./.exec(path)?.[1]
    if (name !== undefined) files.set(name, [...(files.get(name) ?? []), path])
  }
  return [...files.keys()].sort().map((name) => ({
    name,
    path: join(folder.root, 'adapters', name),
    async check() {
      for (const file of files.get(name)!) await readFile(file)
    },
  }))
}
