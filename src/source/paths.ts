// Where a path that stands in a file may lead: into its package, or to the siblings of the opened index. Nowhere else, links included.
import { lstat, realpath } from 'node:fs/promises'
import { dirname, isAbsolute, join, resolve, sep } from 'node:path'
import { ModelFormatError } from '../base/errors.ts'
import { MAX_NAME_LENGTH } from '../base/limits.ts'
import { errnoOf, fsError } from './fserror.ts'

export interface InsideOptions {
  /**
   * The manifest or index file that was opened (relative to the root, or absolute). When it is a link, the folder it really
   * lies in is allowed too: a hub cache is a folder of links into ../../blobs.
   */
  index?: string
  /** More folders that targets may lie in, by the caller's explicit choice. */
  extraRoots?: readonly string[]
}

function forbidden(root: string, relative: string, why: string, cause?: unknown): ModelFormatError {
  return new ModelFormatError('PATH_FORBIDDEN', {
    what: `a path leaves the folder it may use: ${why}`,
    where: root,
    got: JSON.stringify(relative),
    remedy:
      'Files of a model lie inside its folder. If you trust this one, allow the other folder explicitly (extraRoots).',
    details: { root, path: relative, why },
    cause,
  })
}

/**
 * The rule for the text of a path: relative, '/' between parts, no '..', and nothing that any system reads as a drive, share, stream
 * or URL. Returns the parts. Throws PATH_FORBIDDEN. Touches no file.
 */
export function checkRelative(root: string, relative: string): string[] {
  const refuse = (why: string) => forbidden(root, relative, why)
  if (typeof relative !== 'string') throw refuse('it is not text')
  if (relative.length > MAX_NAME_LENGTH) throw refuse('it is too long')
  if (!relative.isWellFormed()) throw refuse('it is not valid Unicode')
  // biome-ignore lint/suspicious/noControlCharactersInRegex: NUL and control characters are what is refused
  if (/[\u0000-\u001f\u007f]/.test(relative)) throw refuse('it has control characters')
  if (relative.includes('\\')) throw refuse('it has a backslash')
  if (relative.includes(':')) throw refuse('it has a colon (URL, drive or stream)')
  if (relative.startsWith('/') || isAbsolute(relative)) throw refuse('it is absolute')
  const parts = relative.split('/').filter((p) => p !== '' && p !== '.')
  if (parts.includes('..')) throw refuse("it has '..'")
  if (parts.length === 0) throw refuse('it names no file')
  return parts
}

async function realFolder(folder: string): Promise<string> {
  try {
    return await realpath(folder)
  } catch (error) {
    throw fsError(error, folder, 'resolve')
  }
}

/** Folders that targets may lie in, links resolved. */
async function allowedRoots(root: string, options: InsideOptions): Promise<string[]> {
  const roots = [await realFolder(root)]
  if (options.index !== undefined) roots.push(dirname(await realFolder(resolve(root, options.index))))
  for (const extra of options.extraRoots ?? []) roots.push(await realFolder(extra))
  return roots
}

function isInside(target: string, roots: readonly string[]): boolean {
  return roots.some((r) => target.startsWith(r.endsWith(sep) ? r : r + sep))
}

/**
 * The real path of an existing file that `relative`, a path found in a file of the package `root`, names.
 * Throws PATH_FORBIDDEN when the text breaks the rules, when links lead in a circle, or when its target lies under none of the
 * allowed folders; SOURCE_IO when there is no such file.
 */
export async function resolveInside(root: string, relative: string, options: InsideOptions = {}): Promise<string> {
  const parts = checkRelative(root, relative)
  const roots = await allowedRoots(root, options)
  let target: string
  try {
    target = await realpath(join(root, ...parts))
  } catch (error) {
    if (errnoOf(error) === 'ELOOP') throw forbidden(root, relative, 'its links lead in a circle', error)
    throw fsError(error, join(root, ...parts), 'open')
  }
  if (!isInside(target, roots)) throw forbidden(root, relative, `it leads to ${target}`)
  return target
}

/**
 * The same for a file that is going to be written, and need not exist: no folder on the way, and not the file itself, may be a link
 * out of the allowed folders, nor a link to nothing (writing through it would create its target).
 */
export async function resolveForWriting(root: string, relative: string, options: InsideOptions = {}): Promise<string> {
  const parts = checkRelative(root, relative)
  const roots = await allowedRoots(root, options)
  let at = roots[0]!
  for (const [i, part] of parts.entries()) {
    const next = join(at, part)
    try {
      await lstat(next)
    } catch (error) {
      if (errnoOf(error) === 'ENOENT') return join(at, ...parts.slice(i)) // from here on nothing exists that could be a link
      throw fsError(error, next, 'write to', 'OUTPUT_IO')
    }
    try {
      at = await realpath(next)
    } catch (error) {
      throw forbidden(root, relative, 'it goes through a link to nothing or in a circle', error)
    }
    if (!isInside(at, roots)) throw forbidden(root, relative, `it leads to ${at}`)
  }
  return at
}
