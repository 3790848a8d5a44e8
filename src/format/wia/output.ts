// The directory a package is written into: temporary until it is complete, then renamed into place, in one step for whoever looks.
import { lstatSync, mkdirSync, readdirSync, statfsSync } from 'node:fs'
import { mkdir, open, rename, rm } from 'node:fs/promises'
import { dirname, join, resolve } from 'node:path'
import { ConversionError } from '../../base/errors.ts'
import { errnoOf } from '../../source/fserror.ts'
import { MANIFEST_FILE } from './layout.ts'
import { ASIDE, clearLeftovers, temporaryName } from './leftovers.ts'
import { writeError } from './shardfile.ts'

export class OutputFolder {
  /** Final place. */
  readonly path: string
  /** Where files are written until commit(). */
  readonly temporary: string
  readonly #force: boolean
  readonly #folders = new Set<string>()

  constructor(path: string, force: boolean) {
    this.path = resolve(path)
    this.#force = force
    this.temporary = temporaryName(this.path)
  }

  /** Clears away what killed writers left, refuses a taken name, checks free space (bytes available to this user), creates the temporary folder. Throws OUTPUT_EXISTS, DISK_FULL, OUTPUT_IO. */
  create(bytes: number, freeBytes: (folder: string) => number = freeBytesOf): void {
    const parent = dirname(this.path)
    try {
      if (exists(parent)) clearLeftovers(this.path)
      this.#checkTarget()
      mkdirSync(parent, { recursive: true })
      const free = freeBytes(parent)
      if (free < bytes)
        throw new ConversionError('DISK_FULL', {
          what: 'there is not enough free space for the output',
          where: parent,
          expected: `≥ ${bytes} bytes`,
          got: free,
          remedy: 'Free space, choose another disk, or quantize to a smaller type.',
          details: { requiredBytes: bytes, freeBytes: free },
        })
      mkdirSync(this.temporary)
      this.#folders.add(this.temporary)
    } catch (error) {
      throw writeError(error, this.temporary)
    }
  }

  /** Path under the temporary folder; its folders are created. */
  async place(relative: string): Promise<string> {
    const path = join(this.temporary, relative)
    try {
      for (let folder = dirname(path); !this.#folders.has(folder); folder = dirname(folder)) {
        await mkdir(folder, { recursive: true })
        this.#folders.add(folder)
      }
    } catch (error) {
      throw writeError(error, path)
    }
    return path
  }

  /**
   * Syncs folders and renames. With `force` what stood there is moved aside first and removed last: at every moment the
   * final name is the old package, absent, or the new one, never a mixture.
   */
  async commit(): Promise<void> {
    this.#checkTarget()
    const aside = `${this.temporary}${ASIDE}`
    try {
      for (const folder of this.#folders) await syncFolder(folder)
      const replaced = exists(this.path)
      if (replaced) await rename(this.path, aside)
      try {
        await rename(this.temporary, this.path)
      } catch (error) {
        if (replaced) await rename(aside, this.path)
        throw error
      }
      await syncFolder(dirname(this.path))
      if (replaced) await rm(aside, { recursive: true, force: true })
    } catch (error) {
      throw writeError(error, this.path)
    }
  }

  async remove(): Promise<void> {
    if (this.#folders.size === 0) return // nothing was created
    await rm(this.temporary, { recursive: true, force: true })
  }

  #checkTarget(): void {
    if (!exists(this.path)) return
    const refuse = (what: string, remedy: string): never => {
      throw new ConversionError('OUTPUT_EXISTS', { what, where: this.path, remedy, details: { path: this.path } })
    }
    if (!this.#force) refuse('the output exists', 'Choose another name, or replace it with --force (option force).')
    // Overwriting removes a whole folder: only one that is a package, or empty.
    if (!lstatSync(this.path).isDirectory()) refuse('the output is not a folder', 'Remove it yourself.')
    const names = readdirSync(this.path)
    if (names.length > 0 && !names.includes(MANIFEST_FILE))
      refuse('the output is a folder that is not a package', 'Remove it yourself, or choose another name.')
  }
}

function freeBytesOf(folder: string): number {
  const { bavail, bsize } = statfsSync(folder)
  return bavail * bsize
}

function exists(path: string): boolean {
  try {
    return lstatSync(path, { throwIfNoEntry: false }) !== undefined
  } catch (error) {
    throw writeError(error, path) // a part of the path is no folder, or not ours to look into
  }
}

/** A folder's entries reach the disk only when the folder itself is synced; not every system can. */
async function syncFolder(folder: string): Promise<void> {
  try {
    const handle = await open(folder, 'r')
    try {
      await handle.sync()
    } finally {
      await handle.close()
    }
  } catch (error) {
    if (!['EISDIR', 'EPERM', 'EINVAL', 'EACCES', 'ENOTSUP'].includes(errnoOf(error) ?? '')) throw error
  }
}
