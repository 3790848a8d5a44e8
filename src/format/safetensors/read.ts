// Opens safetensors models: one file, an index over shards, a Hugging Face folder, a hub cache of links. Reads headers, no tensor byte.
import { createHash } from 'node:crypto'
import { ModelFormatError } from '../../base/errors.ts'
import { publish } from '../../base/events.ts'
import { type JsonObject, type JsonValue, parseJsonObject } from '../../base/json.ts'
import { MAX_JSON_BYTES } from '../../base/limits.ts'
import { type OpenMode, openFile } from '../../source/openFile.ts'
import { resolveInside } from '../../source/paths.ts'
import type { ByteSource } from '../../source/source.ts'
import { matrixView } from '../matrixview.ts'
import type { ModelReader, TensorEntry } from '../reader.ts'
import { type HeaderTensor, headerLength, PREFIX_BYTES, parseHeader, type SafetensorsHeader } from './header.ts'
import { type Located, locate, SIDE_FILES, shown } from './locate.ts'
import { checkIndex, parseIndex, type ShardIndex } from './shardindex.ts'

export interface OpenSafetensorsOptions {
  mode?: OpenMode
  dropBehind?: boolean
  /** Replaces openFile: to count, limit or mock. Gets the real path. */
  open?: (path: string) => Promise<ByteSource>
}

/** Tokenizer files above this are not what they say. */
const MAX_SIDE_BYTES = MAX_JSON_BYTES

/**
 * Opens `path`: a .safetensors file, a .safetensors.index.json, or a folder with one of them. A missing config.json is an empty `config`.
 * A `quantization_config` in it is left for the architecture to refuse: tensors are read as they are stored.
 * Throws FORMAT_INVALID, FORMAT_UNSUPPORTED, FORMAT_LIMIT, JSON_INVALID, PATH_FORBIDDEN, SOURCE_IO, SOURCE_MODE.
 */
export async function openSafetensors(path: string, options: OpenSafetensorsOptions = {}): Promise<ModelReader> {
  const started = performance.now()
  const located = await locate(path)
  const opening = new Opening(located, options)
  try {
    const reader = await opening.reader(path)
    publish('open', () => ({
      path,
      format: 'safetensors',
      tensors: reader.tensors.size,
      bytesRead: reader.bytesRead,
      ms: performance.now() - started,
    }))
    return reader
  } catch (error) {
    await opening.close()
    throw error
  }
}

/** What is open so far, what was read, and the hash over it. */
class Opening {
  readonly #located: Located
  readonly #open: (path: string) => Promise<ByteSource>
  readonly #sources: ByteSource[] = []
  readonly #identity = createHash('sha256')
  #bytesRead = 0

  constructor(located: Located, options: OpenSafetensorsOptions) {
    this.#located = located
    const { open, mode = 'auto', dropBehind = false } = options
    this.#open = open ?? ((file) => openFile(file, { mode, dropBehind }))
  }

  async reader(path: string): Promise<ModelReader> {
    const located = this.#located
    let index: ShardIndex | undefined
    if (located.kind === 'index')
      index = parseIndex(await this.#readJson(located.file, MAX_JSON_BYTES), shown(located, located.file))
    const shards = new Map<string, SafetensorsHeader>()
    for (const file of index?.files ?? [located.file]) shards.set(file, await this.#openShard(file))
    if (index !== undefined) checkIndex(index, shards, shown(located, located.file))

    const tensors = new Map<string, TensorEntry>()
    const metadata = new Map<string, JsonValue>(Object.entries(index?.metadata ?? {}))
    for (const [source, header] of [...shards.values()].entries()) {
      for (const t of header.tensors) tensors.set(t.name, toEntry(t, source))
      for (const [key, value] of Object.entries(header.metadata)) if (!metadata.has(key)) metadata.set(key, value)
    }
    const config: JsonObject = located.siblings.has('config.json')
      ? parseJsonObject(await this.#readJson('config.json', MAX_JSON_BYTES), {
          where: shown(located, 'config.json'),
        })
      : {}
    const sources = this.#sources
    return {
      format: 'safetensors',
      path,
      sources,
      tensors,
      config,
      metadata: Object.fromEntries(metadata),
      tokenizerFiles: new Map(
        SIDE_FILES.filter((name) => located.siblings.has(name)).map((name) => [
          name,
          () => this.#readSide(name, MAX_SIDE_BYTES),
        ]),
      ),
      adapters: [],
      identity: this.#identity.digest('hex'),
      bytesRead: this.#bytesRead,
      close: () => this.close(),
    }
  }

  async close(): Promise<void> {
    for (const source of this.#sources) await source.close()
  }

  #resolve(file: string): Promise<string> {
    return resolveInside(this.#located.root, file, { index: this.#located.file })
  }

  async #openShard(file: string): Promise<SafetensorsHeader> {
    const source = await this.#open(await this.#resolve(file))
    this.#sources.push(source)
    const where = shown(this.#located, file)
    const prefix = await source.read(0, Math.min(PREFIX_BYTES, source.size))
    const length = headerLength(prefix, source.size, where)
    const json = await source.read(PREFIX_BYTES, length)
    this.#count(prefix)
    this.#count(json)
    return parseHeader(json, source.size, where)
  }

  async #readJson(file: string, maxBytes: number): Promise<Uint8Array> {
    const bytes = await this.#readSide(file, maxBytes)
    this.#count(bytes)
    return bytes
  }

  #count(bytes: Uint8Array): void {
    this.#bytesRead += bytes.length
    this.#identity.update(`${bytes.length}:`).update(bytes)
  }

  async #readSide(file: string, maxBytes: number): Promise<Uint8Array> {
    // Side files are small and read once: no mapping, no direct I/O.
    const source = await openFile(await this.#resolve(file), { mode: 'pread' })
    try {
      if (source.size > maxBytes)
        throw new ModelFormatError('FORMAT_LIMIT', {
          what: 'file is too large',
          where: shown(this.#located, file),
          expected: `≤ ${maxBytes} bytes`,
          got: source.size,
        })
      return await source.read(0, source.size)
    } finally {
      await source.close()
    }
  }
}

function toEntry(t: HeaderTensor, source: number): TensorEntry {
  const { rows, cols } = matrixView(t.shape, t.name)
  return {
    name: t.name,
    shape: t.shape,
    dtype: t.dtype,
    encoding: { kind: 'plain', dtype: t.dtype },
    rows,
    cols,
    byteLength: t.length,
    segments: [{ source, offset: t.offset, length: t.length, rowStart: 0, rows }],
  }
}
