// Opens GGUF models: one file, a split model by its first file, or a folder with one of them. Reads headers, no tensor byte on purpose:
// the header's length is not written down, so it is read in steps that double, at most twice its length (and 16 KiB).
import { createHash, type Hash } from 'node:crypto'
import { readdir, stat } from 'node:fs/promises'
import { basename, dirname, join, resolve } from 'node:path'
import { ModelFormatError } from '../../base/errors.ts'
import { publish } from '../../base/events.ts'
import type { JsonObject } from '../../base/json.ts'
import { fsError } from '../../source/fserror.ts'
import { type OpenMode, openFile } from '../../source/openFile.ts'
import { resolveInside } from '../../source/paths.ts'
import type { ByteSource } from '../../source/source.ts'
import { matrixView } from '../matrixview.ts'
import type { ModelReader, TensorEntry } from '../reader.ts'
import { type GgufHeader, type GgufTensor, parseGguf } from './header.ts'
import { decodeValue, metadataObject } from './metadata.ts'
import { checkPart, partOf, planSplit } from './split.ts'
import { ggmlEncoding } from './types.ts'
import { Incomplete } from './window.ts'

export interface OpenGgufOptions {
  mode?: OpenMode
  dropBehind?: boolean
  /** Replaces openFile: to count, limit or mock. Gets the real path. */
  open?: (path: string) => Promise<ByteSource>
}

const FIRST_READ = 16 * 1024
/** general.* texts up to this length go into `metadata`. */
const MAX_METADATA_TEXT = 4096

/**
 * Opens `path`. `config` has the metadata under its own keys (large arrays are decoded when first looked at; 64-bit integers beyond 2^53 are
 * decimal strings), `metadata` the texts of general.* without the prefix. Types without a decoder are listed, and refused when read.
 * Throws FORMAT_INVALID, FORMAT_UNSUPPORTED, FORMAT_LIMIT, PATH_FORBIDDEN, SOURCE_IO, SOURCE_MODE.
 */
export async function openGguf(path: string, options: OpenGgufOptions = {}): Promise<ModelReader> {
  const started = performance.now()
  const file = await locate(path)
  const opening = new Opening(options)
  try {
    const reader = await opening.reader(path, file)
    publish('open', () => ({
      path,
      format: 'gguf',
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

async function locate(path: string): Promise<string> {
  const full = resolve(path)
  try {
    if (!(await stat(full)).isDirectory()) return full
    const files = (await readdir(full)).filter((n) => n.endsWith('.gguf') && (partOf(n)?.part ?? 1) === 1)
    if (files.length === 1) return join(full, files[0]!)
    throw new ModelFormatError('FORMAT_INVALID', {
      what: files.length === 0 ? 'folder has no GGUF file' : 'folder has several models',
      where: path,
      ...(files.length === 0 ? {} : { got: files.sort(), remedy: 'Open the one you mean by its own path.' }),
    })
  } catch (error) {
    throw fsError(error, path, 'open')
  }
}

class Opening {
  readonly #open: (path: string) => Promise<ByteSource>
  readonly #sources: ByteSource[] = []
  readonly #identity: Hash = createHash('sha256')
  #bytesRead = 0

  constructor(options: OpenGgufOptions) {
    const { open, mode = 'auto', dropBehind = false } = options
    this.#open = open ?? ((file) => openFile(file, { mode, dropBehind }))
  }

  async reader(path: string, file: string): Promise<ModelReader> {
    const first = await this.#header(file, file)
    const tensors = new Map<string, TensorEntry>()
    addTensors(tensors, first, 0, file)
    const plan = planSplit(first, basename(file), file)
    if (plan !== undefined) {
      const root = dirname(file)
      for (let no = 1; no < plan.files.length; no++) {
        const name = plan.files[no]!
        const header = await this.#header(await resolveInside(root, name, { index: file }), join(root, name))
        checkPart(first, header, no, plan, join(root, name))
        addTensors(tensors, header, no, join(root, name))
      }
      if (tensors.size !== plan.tensorCount)
        throw new ModelFormatError('FORMAT_INVALID', {
          what: 'files of a split model do not have the tensors they should',
          where: path,
          expected: `split.tensors.count ${plan.tensorCount}`,
          got: tensors.size,
        })
    }
    return {
      format: 'gguf',
      path,
      sources: this.#sources,
      tensors,
      config: metadataObject(first.metadata, path),
      metadata: generalTexts(first, path),
      tokenizerFiles: new Map(),
      adapters: [],
      identity: this.#identity.digest('hex'),
      bytesRead: this.#bytesRead,
      close: () => this.close(),
    }
  }

  async close(): Promise<void> {
    for (const source of this.#sources) await source.close()
  }

  async #header(path: string, where: string): Promise<GgufHeader> {
    const source = await this.#open(path)
    this.#sources.push(source)
    let bytes = new Uint8Array(0)
    let wanted = Math.min(FIRST_READ, source.size)
    for (;;) {
      const grown = new Uint8Array(wanted)
      grown.set(bytes)
      await source.read(bytes.length, wanted - bytes.length, { into: grown.subarray(bytes.length) })
      this.#bytesRead += wanted - bytes.length
      bytes = grown
      try {
        const header = parseGguf(bytes, source.size, where)
        this.#identity.update(`${header.length}:`).update(bytes.subarray(0, header.length))
        return header
      } catch (error) {
        if (!(error instanceof Incomplete)) throw error
        // `needed` is checked against the file and the cap by the parser, and is more than there is: this loop ends.
        wanted = Math.min(source.size, Math.max(error.needed, 2 * wanted))
      }
    }
  }
}

function addTensors(into: Map<string, TensorEntry>, header: GgufHeader, source: number, where: string): void {
  for (const t of header.tensors) {
    if (into.has(t.name))
      throw new ModelFormatError('FORMAT_INVALID', {
        what: 'two files of a split model have one tensor',
        where,
        got: t.name,
        details: { tensor: t.name, file: where },
      })
    into.set(t.name, toEntry(t, header.bigEndian, source))
  }
}

function toEntry(t: GgufTensor, bigEndian: boolean, source: number): TensorEntry {
  const { rows, cols } = matrixView(t.shape, t.name)
  return {
    name: t.name,
    shape: t.shape,
    ...ggmlEncoding(t.type, bigEndian),
    rows,
    cols,
    byteLength: t.length,
    segments: [{ source, offset: t.offset, length: t.length, rowStart: 0, rows }],
  }
}

function generalTexts(header: GgufHeader, where: string): JsonObject {
  const texts = new Map<string, string>()
  for (const [key, raw] of header.metadata) {
    if (!key.startsWith('general.') || raw.bytes.length > MAX_METADATA_TEXT) continue
    const value = decodeValue(raw, `${where}, key ${key}`)
    if (typeof value === 'string') texts.set(key.slice('general.'.length), value)
  }
  return Object.fromEntries(texts)
}
