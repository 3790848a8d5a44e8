// A package directory: where it is, and its files opened only through the path rules (FORMAT §7).
import { readdir, stat } from 'node:fs/promises'
import { basename, dirname, join } from 'node:path'
import { ModelFormatError, notImplemented } from '../../base/errors.ts'
import { errnoOf, fsError } from '../../source/fserror.ts'
import { type OpenMode, openFile } from '../../source/openFile.ts'
import { checkRelative, type InsideOptions, resolveInside } from '../../source/paths.ts'
import type { ByteSource } from '../../source/source.ts'
import { MANIFEST_FILE } from './layout.ts'
import { invalid } from './refuse.ts'

/** How bytes are opened; injectable so that tests and other carriers can count or replace it. */
export type OpenSource = (path: string, mode: OpenMode) => Promise<ByteSource>
export type ResolvePath = (root: string, relative: string, options: InsideOptions) => Promise<string>

export interface FolderOptions {
  /** How shards are opened; small files are always read by pread. Default 'auto'. */
  mode?: OpenMode
  /** Bulk reads of shards forget the page cache they filled (see openFile). */
  dropBehind?: boolean
  openSource?: OpenSource
  resolvePath?: ResolvePath
  extraRoots?: readonly string[]
}

/** The text rule for paths of a package: relative, '/' between parts, every part a name. Throws PATH_FORBIDDEN. */
export function checkPackagePath(root: string, path: string): void {
  if (checkRelative(root, path).join('/') !== path)
    invalid("a path has an empty part or '.'", root, { got: path }, 'PATH_FORBIDDEN')
}

export class PackageFolder {
  readonly root: string
  readonly mode: OpenMode
  readonly #openSource: OpenSource
  readonly #resolvePath: ResolvePath
  readonly #inside: InsideOptions

  constructor(root: string, options: FolderOptions = {}) {
    this.root = root
    this.mode = options.mode ?? 'auto'
    this.#openSource =
      options.openSource ?? ((path, mode) => openFile(path, { mode, dropBehind: options.dropBehind ?? false }))
    this.#resolvePath = options.resolvePath ?? resolveInside
    this.#inside = { index: MANIFEST_FILE, extraRoots: options.extraRoots ?? [] }
  }

  /** Throws PATH_FORBIDDEN; FORMAT_INVALID when a file that the manifest lists is not there. */
  async open(relative: string, mode: OpenMode = 'pread'): Promise<ByteSource> {
    checkPackagePath(this.root, relative)
    try {
      return await this.#openSource(await this.#resolvePath(this.root, relative, this.#inside), mode)
    } catch (error) {
      const cause = (error as { cause?: unknown }).cause
      if (errnoOf(cause) === 'ENOENT' || errnoOf(cause) === 'ENOTDIR')
        throw new ModelFormatError('FORMAT_INVALID', {
          what: 'a file of the package is missing',
          where: join(this.root, relative),
          remedy: 'Copy the whole package; every file named in manifest.json is needed.',
          details: { path: relative },
          cause: error,
        })
      throw error
    }
  }

  /** All bytes of a small file, whose size must be `bytes` when given and at most `cap`. */
  async readAll(relative: string, cap: number, bytes?: number): Promise<Uint8Array> {
    const source = await this.open(relative)
    try {
      if (bytes !== undefined && source.size !== bytes) sizeMismatch(join(this.root, relative), bytes, source.size)
      if (source.size > cap)
        throw new ModelFormatError('FORMAT_LIMIT', {
          what: 'file is too large',
          where: join(this.root, relative),
          expected: `≤ ${cap}`,
          got: source.size,
        })
      return await source.read(0, source.size)
    } finally {
      await source.close()
    }
  }

  /** Size of a listed file, without reading it. */
  async size(relative: string): Promise<number> {
    const source = await this.open(relative)
    await source.close()
    return source.size
  }

  /** Names in a folder of the package; none when it does not exist. */
  async list(relative: string): Promise<string[]> {
    try {
      return await readdir(join(this.root, relative))
    } catch (error) {
      if (errnoOf(error) === 'ENOENT') return []
      throw fsError(error, join(this.root, relative), 'list')
    }
  }
}

export function sizeMismatch(where: string, expected: number, got: number): never {
  return invalid('file has another size than the manifest states', where, {
    expected,
    got,
    remedy: 'The file was cut off or replaced: copy the package again.',
  })
}

/**
 * The directory of a package, from its own path or that of its manifest.json.
 * Throws NOT_IMPLEMENTED for the single-file container, FORMAT_INVALID for anything else that is no package.
 */
export async function locatePackage(path: string): Promise<string> {
  let info: Awaited<ReturnType<typeof stat>>
  try {
    info = await stat(path)
  } catch (error) {
    throw fsError(error, path, 'open')
  }
  if (info.isDirectory()) return path
  if (basename(path) === MANIFEST_FILE) return dirname(path)
  if (await isContainer(path)) notImplemented('the single-file container of WIA-AI-014', path)
  return invalid('this is not a package', path, {
    expected: `a directory with ${MANIFEST_FILE}`,
    got: 'another file',
  })
}

/** True for a file that begins with the container's magic, in either byte order. */
export async function isContainer(path: string): Promise<boolean> {
  const source = await openFile(path, { mode: 'pread' })
  try {
    if (source.size < 4) return false
    const magic = String.fromCharCode(...(await source.read(0, 4)))
    return magic === 'WIA1' || magic === '1AIW'
  } finally {
    await source.close()
  }
}
