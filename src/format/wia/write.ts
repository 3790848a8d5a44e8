// Writes a package: streams tensors into shards, hashes pages and tensors on the way, and shows the result under its name only when it is complete.
import { createHash } from 'node:crypto'
import { ConversionError, throwIfAborted } from '../../base/errors.ts'
import { publishProgress } from '../../base/events.ts'
import { canonicalJson, type JsonObject } from '../../base/json.ts'
import { encodedBytes } from '../../quant/codec.ts'
import type { ModelWriter, PlannedTensor } from '../writer.ts'
import { checkPackagePath } from './folder.ts'
import * as fmt from './layout.ts'
import { type ExtensionOptions, encodeManifest, type Finished, rehearseManifest, shardName } from './makemanifest.ts'
import { checkMetadata } from './metadata.ts'
import { OutputFolder } from './output.ts'
import { sha256Hex } from './pagetable.ts'
import { type PackagePlan, type PlacedTensor, planPackage } from './plan.ts'
import { invalid } from './refuse.ts'
import { ShardFile, writeError } from './shardfile.ts'

type Chunks = AsyncIterable<Uint8Array> | Iterable<Uint8Array>

/** Bytes of a side file: at hand, or fetched when it is its turn. */
export type SideFile = Uint8Array | (() => Promise<Uint8Array> | AsyncIterable<Uint8Array>)

export interface WiaWriterOptions {
  /** Keys of FORMAT §3; model_name and version are required. No clock is read: created_date is the caller's. */
  metadata: JsonObject
  /** architecture.json */
  architecture?: JsonObject
  /** config/model.json */
  config?: JsonObject
  /** By name under tokenizer/. */
  tokenizerFiles?: ReadonlyMap<string, SideFile>
  /** By path: config/…, metadata/…, adapters/<name>/… */
  sideFiles?: ReadonlyMap<string, SideFile>
  /** Quantization manifest (FORMAT §8); what is left out is filled in from the tensors. */
  quantization?: JsonObject
  extensions?: ExtensionOptions
  /** Largest shard, default 1 GiB. */
  maxShardBytes?: number
  /** Aimed-at page, default 1 MiB, at most 4 MiB. */
  pageBytes?: number
  /** Also state the SHA-256 of whole shards (one more pass of hashing). */
  shardChecksums?: boolean
  /** Replace a package (or an empty folder) of that name. */
  force?: boolean
  signal?: AbortSignal
  /** Bytes available in a folder; default: what the file system says. */
  freeBytes?: (folder: string) => number
}

/**
 * A writer for `outDir`. plan() throws what a tensor breaks (FORMAT_INVALID …), OUTPUT_EXISTS, DISK_FULL, REQUEST_INVALID; put() and finish() throw
 * DISK_FULL, OUTPUT_IO, ABORTED, FORMAT_INVALID (bytes that are not as planned), and then have removed what they wrote.
 */
export function createWiaWriter(outDir: string, options: WiaWriterOptions): ModelWriter {
  return new WiaWriter(outDir, options)
}

class WiaWriter implements ModelWriter {
  readonly #options: WiaWriterOptions
  readonly #output: OutputFolder
  readonly #side: Map<string, SideFile>
  readonly #finished = new Map<string, Finished>()
  readonly #shardHashes: (string | undefined)[] = []
  #plan: PackagePlan | undefined
  /** Tensors that put() expects, in order. */
  #queue: PlacedTensor[] = []
  #next = 0
  #shard: ShardFile | undefined
  #pages = new Uint8Array(0)
  #state: 'new' | 'planned' | 'busy' | 'done' | 'failed' = 'new'

  constructor(outDir: string, options: WiaWriterOptions) {
    checkMetadata(options.metadata, 'metadata')
    checkSizes(options)
    this.#options = options
    this.#output = new OutputFolder(outDir, options.force ?? false)
    this.#side = sideFiles(outDir, options)
  }

  plan(tensors: readonly PlannedTensor[]): { bytes: number; shards: number } {
    if (this.#state !== 'new') misuse('plan() is called twice')
    const { maxShardBytes = fmt.DEFAULT_SHARD_BYTES, pageBytes = fmt.DEFAULT_PAGE_BYTES } = this.#options
    const plan = planPackage(tensors, { maxShardBytes, pageBytes })
    let bytes = plan.shards.reduce((a, b) => a + b, 0) + plan.pages * 32 + plan.tensors.length * 256
    for (const t of plan.tensors) if (t.isInline) bytes += t.length * 2
    for (const file of this.#side.values()) if (file instanceof Uint8Array) bytes += file.byteLength
    rehearseManifest({ ...this.#options, plan, files: {} }, this.#output.path)
    this.#output.create(bytes, this.#options.freeBytes)
    this.#plan = plan
    this.#queue = plan.tensors.filter((t) => t.alias === undefined)
    this.#pages = new Uint8Array(plan.pages * 32)
    this.#state = 'planned'
    return { bytes, shards: plan.shards.length }
  }

  async put(name: string, chunks: Chunks, options: { readonly exponent?: number } = {}): Promise<void> {
    await this.#guard(async () => {
      const t = this.#queue[this.#next]
      if (t?.name !== name)
        misuse('put() is called out of plan order', { expected: t === undefined ? 'finish()' : t.name, got: name })
      if (options.exponent !== undefined && t.encoding.kind !== 'panel')
        misuse('an exponent for a tensor without row panels', { got: t.name })
      const done = t.isInline ? await this.#putInline(t, chunks) : await this.#putStored(t, chunks)
      this.#finished.set(name, { ...done, ...options })
      this.#next++
      publishProgress({ phase: 'write', done: this.#next, total: this.#queue.length, unit: 'tensors', detail: name })
    })
  }

  async finish(): Promise<void> {
    await this.#guard(async () => {
      const plan = this.#plan!
      if (this.#next < this.#queue.length)
        misuse('finish() is called before all tensors were put', { expected: this.#queue[this.#next]!.name })
      await this.#finishShard()
      if (plan.pages > 0) await this.#writeFile(fmt.PAGES_FILE, this.#pages)
      const files: { [path: string]: { bytes: number; sha256: string } } = {}
      for (const [path, file] of [...this.#side].sort(([a], [b]) => (a < b ? -1 : 1)))
        files[path] = await this.#writeFile(path, file)
      const parts = {
        plan,
        finished: this.#finished,
        shardHashes: this.#shardHashes,
        pagesSha256: sha256Hex(this.#pages),
      }
      const bytes = encodeManifest({ ...this.#options, ...parts, files }, this.#output.path)
      await this.#writeFile(fmt.MANIFEST_FILE, bytes)
      throwIfAborted(this.#options.signal)
      await this.#output.commit()
    })
    this.#state = 'done'
  }

  async abort(): Promise<void> {
    if (this.#state === 'done') return
    this.#state = 'failed'
    await this.#shard?.close()
    this.#shard = undefined
    await this.#output.remove()
  }

  /** One operation at a time; a failure removes everything. */
  async #guard(run: () => Promise<void>): Promise<void> {
    if (this.#state !== 'planned') misuse(`the writer is ${this.#state === 'new' ? 'not planned yet' : this.#state}`)
    this.#state = 'busy'
    try {
      await run()
      if (this.#state !== 'busy') misuse('the writer was aborted meanwhile')
      this.#state = 'planned'
    } catch (error) {
      await this.abort()
      throw error
    }
  }

  async #putInline(t: PlacedTensor, chunks: Chunks): Promise<Finished> {
    const bytes = new Uint8Array(t.length)
    let filled = 0
    for await (const chunk of chunks) {
      filled += checkChunk(t, chunk, filled)
      bytes.set(chunk, filled - chunk.byteLength)
    }
    if (filled !== t.length) wrongLength(t, filled)
    return { checksum: sha256Hex(bytes), inline: bytes }
  }

  async #putStored(t: PlacedTensor, chunks: Chunks): Promise<Finished> {
    const whole = createHash('sha256')
    const pageLength = t.pageRows! >= t.rows ? t.length : encodedBytes(t.encoding, t.pageRows!, t.cols)
    let page = createHash('sha256')
    let filled = 0
    let segment = -1
    let segmentEnd = 0
    for await (const chunk of chunks) {
      throwIfAborted(this.#options.signal)
      checkChunk(t, chunk, filled)
      for (let at = 0; at < chunk.byteLength; ) {
        if (filled === segmentEnd) {
          const range = t.ranges[++segment]!
          await this.#seek(range.source, range.offset)
          segmentEnd += range.length
        }
        // Segments end where pages end, so the page boundary is never past the segment's.
        const pageEnd = Math.min(t.length, (Math.floor(filled / pageLength) + 1) * pageLength)
        const part = chunk.subarray(at, at + Math.min(chunk.byteLength - at, pageEnd - filled))
        whole.update(part)
        page.update(part)
        await this.#shard!.append(part)
        at += part.byteLength
        filled += part.byteLength
        if (filled === pageEnd) {
          this.#pages.set(page.digest(), (t.pageFirst! + Math.ceil(filled / pageLength) - 1) * 32)
          page = createHash('sha256')
        }
      }
    }
    if (filled !== t.length) wrongLength(t, filled)
    return { checksum: whole.digest('hex') }
  }

  /** Opens the shard if it is the next one, and pads up to the offset. */
  async #seek(shard: number, offset: number): Promise<void> {
    // Finished shards have their entry in shardHashes; the open one is the next.
    if (this.#shard !== undefined && shard > this.#shardHashes.length) await this.#finishShard()
    if (this.#shard === undefined) {
      const path = await this.#output.place(shardName(shard))
      this.#shard = await ShardFile.create(path, this.#options.shardChecksums ?? false)
    }
    await this.#shard.padTo(offset)
  }

  async #finishShard(): Promise<void> {
    if (this.#shard === undefined) return
    const shard = this.#shard
    await shard.padTo(this.#plan!.shards[this.#shardHashes.length]!)
    this.#shardHashes.push(await shard.finish())
    this.#shard = undefined
  }

  async #writeFile(path: string, file: SideFile): Promise<{ bytes: number; sha256: string }> {
    const out = await ShardFile.create(await this.#output.place(path), true)
    try {
      const content = typeof file === 'function' ? await file() : file
      if (content instanceof Uint8Array) await out.append(content)
      else for await (const chunk of content) await out.append(chunk)
      const bytes = out.position
      return { bytes, sha256: (await out.finish())! }
    } catch (error) {
      await out.close()
      throw (error as { code?: string }).code?.startsWith('E') ? writeError(error, out.path) : error
    }
  }
}

function checkSizes({ maxShardBytes, pageBytes }: WiaWriterOptions): void {
  if (maxShardBytes !== undefined && !(Number.isSafeInteger(maxShardBytes) && maxShardBytes >= fmt.PAGE_ALIGN))
    misuse('maxShardBytes is out of range', { expected: `≥ ${fmt.PAGE_ALIGN}`, got: maxShardBytes })
  if (
    pageBytes !== undefined &&
    !(Number.isSafeInteger(pageBytes) && pageBytes >= 1 && pageBytes <= fmt.MAX_PAGE_BYTES)
  )
    misuse('pageBytes is out of range', { expected: `1…${fmt.MAX_PAGE_BYTES}`, got: pageBytes })
}

function sideFiles(outDir: string, options: WiaWriterOptions): Map<string, SideFile> {
  const files = new Map<string, SideFile>()
  const add = (path: string, file: SideFile): void => {
    checkPackagePath(outDir, path)
    if (path !== fmt.ARCHITECTURE_FILE && !fmt.SIDE_FOLDERS.some((f) => path.startsWith(`${f}/`)))
      invalid(
        'a side file lies in another place',
        outDir,
        { expected: `${fmt.SIDE_FOLDERS.join('/ ')}/`, got: path },
        'PATH_FORBIDDEN',
      )
    if (files.has(path)) invalid('a side file is given twice', outDir, { got: path })
    files.set(path, file)
  }
  if (options.architecture) add(fmt.ARCHITECTURE_FILE, Buffer.from(canonicalJson(options.architecture)))
  if (options.config) add(fmt.CONFIG_FILE, Buffer.from(canonicalJson(options.config)))
  for (const [name, file] of options.tokenizerFiles ?? []) add(`tokenizer/${name}`, file)
  for (const [path, file] of options.sideFiles ?? []) add(path, file)
  return files
}

function checkChunk(t: PlacedTensor, chunk: Uint8Array, filled: number): number {
  if (!(chunk instanceof Uint8Array)) misuse('a chunk is not a Uint8Array', { got: typeof chunk })
  if (filled + chunk.byteLength > t.length) wrongLength(t, filled + chunk.byteLength)
  return chunk.byteLength
}

function wrongLength(t: PlacedTensor, got: number): never {
  return invalid('tensor data is not as long as planned', `tensor ${t.name}`, { expected: t.length, got })
}

function misuse(what: string, facts: { expected?: unknown; got?: unknown } = {}): never {
  throw new ConversionError('REQUEST_INVALID', { what, ...facts })
}
