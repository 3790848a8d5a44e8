// The one door to models on disk: looks at what a path is and opens it with the reader of its format.
import { readdir, stat } from 'node:fs/promises'
import { basename, join } from 'node:path'
import { ModelFormatError } from '../base/errors.ts'
import { fsError } from '../source/fserror.ts'
import { type OpenMode, openFile } from '../source/openFile.ts'
import type { ModelFormatName, ModelReader } from './reader.ts'
import type { VerifyMode } from './wia/read.ts'

export interface OpenModelOptions {
  /** How weights are read; default 'auto'. */
  mode?: OpenMode
  /** Bulk reads forget the page cache they filled (see openFile). */
  dropBehind?: boolean
  /** For packages; other formats have no checksums. Default 'lazy'. */
  verify?: VerifyMode
  /** Ends an eager check. */
  signal?: AbortSignal
}

/**
 * Opens a package (its folder or manifest.json), safetensors (a file, an index, a folder) or a GGUF (a file, also the first of a split one; a folder with one).
 * Throws FORMAT_UNSUPPORTED for a format that is not read, and what the reader of the format throws.
 */
export async function openModel(path: string, options: OpenModelOptions = {}): Promise<ModelReader> {
  const { verify, signal, ...how } = options
  switch (await sniff(path)) {
    case 'wia': {
      const { openWia } = await import('./wia/read.ts')
      return openWia(path, { ...how, ...(verify && { verify }), ...(signal && { signal }) })
    }
    case 'safetensors': {
      const { openSafetensors } = await import('./safetensors/read.ts')
      return openSafetensors(path, how)
    }
    case 'gguf': {
      const { openGguf } = await import('./gguf/read.ts')
      return openGguf(path, how)
    }
  }
}

/** Which format a path is, by names in a folder and by the first bytes of a file. */
export async function sniff(path: string): Promise<ModelFormatName> {
  let names: string[] | undefined
  try {
    if ((await stat(path)).isDirectory()) names = await readdir(path)
  } catch (error) {
    throw fsError(error, path, 'open')
  }
  return names === undefined ? sniffFile(path) : sniffFolder(path, names)
}

function sniffFolder(path: string, names: readonly string[]): ModelFormatName {
  if (names.includes('manifest.json')) return 'wia'
  if (names.some((n) => n.endsWith('.safetensors') || n.endsWith('.safetensors.index.json'))) return 'safetensors'
  if (names.some((n) => n.endsWith('.gguf'))) return 'gguf'
  const foreign = names.find((n) => /\.(?:bin|pt|pth|onnx|h5|tflite|msgpack)$/.test(n))
  if (foreign !== undefined) notRead(join(path, foreign))
  throw new ModelFormatError('FORMAT_INVALID', {
    what: 'folder has no model',
    where: path,
    expected: 'manifest.json, *.safetensors or *.gguf',
    got: names.slice(0, 8),
  })
}

async function sniffFile(path: string): Promise<ModelFormatName> {
  const name = basename(path)
  if (name === 'manifest.json') return 'wia'
  if (name.endsWith('.safetensors') || name.endsWith('.index.json')) return 'safetensors'
  if (name.endsWith('.gguf')) return 'gguf' // a damaged one too: its reader says what is wrong
  const source = await openFile(path, { mode: 'pread' })
  try {
    const head = await source.read(0, Math.min(9, source.size))
    const magic = String.fromCharCode(...head.subarray(0, 4))
    if (magic === 'GGUF') return 'gguf'
    if (magic === 'WIA1' || magic === '1AIW') return 'wia'
    // safetensors without its ending (a blob of a hub cache): 8 bytes of header length, then the header's brace.
    if (head.length === 9 && head[8] === 0x7b && head[6] === 0 && head[7] === 0) return 'safetensors'
  } finally {
    await source.close()
  }
  return notRead(path)
}

function notRead(path: string): never {
  throw new ModelFormatError('FORMAT_UNSUPPORTED', {
    what: 'this is no model format that is read',
    where: path,
    expected: 'a package, safetensors or GGUF',
    remedy: 'Convert it to safetensors with its own tools first.',
  })
}
