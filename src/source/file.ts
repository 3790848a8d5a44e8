// An open regular file: its handle, the identity it had when it was opened, and a close that waits for reads in flight.
import { closeSync, constants, fstatSync, openSync, statSync } from 'node:fs'
import { SourceError } from '../base/errors.ts'
import { fsError } from './fserror.ts'
import { closedError } from './range.ts'
import type { FileDescriptor, IoMode } from './source.ts'

/** Size, inode (with device) and modification time: what must stay the same while a model is open. */
export type FileIdentity = Pick<FileDescriptor, 'size' | 'inode' | 'mtimeNs'>

interface Stat {
  isFile(): boolean
  isDirectory(): boolean
  isFIFO(): boolean
  size: bigint
  dev: bigint
  ino: bigint
  mtimeNs: bigint
}

function requireRegular(stat: Stat, path: string): void {
  if (stat.isFile()) return
  const kind = stat.isDirectory() ? 'a folder' : stat.isFIFO() ? 'a pipe' : 'a device or socket'
  throw new SourceError('SOURCE_IO', {
    what: `cannot read models from ${kind}`,
    where: path,
    expected: 'a regular file',
    got: kind,
    remedy: stat.isDirectory() ? 'Name a file inside it.' : 'Copy the bytes to a file first.',
    details: { path },
  })
}

function identityOf(stat: Stat): FileIdentity {
  return { size: Number(stat.size), inode: `${stat.dev}:${stat.ino}`, mtimeNs: String(stat.mtimeNs) }
}

function difference(was: FileIdentity, is: FileIdentity): string | undefined {
  if (was.inode !== is.inode) return `another file is at this path now (inode ${was.inode} → ${is.inode})`
  if (was.size !== is.size) return `its size went from ${was.size} to ${is.size} bytes`
  if (was.mtimeNs !== is.mtimeNs) return 'it was written to (its modification time changed)'
  return undefined
}

/** The error of a file that is no longer what was opened. */
export function changedError(path: string, how: string): SourceError {
  return new SourceError('SOURCE_CHANGED', {
    what: `the file changed after it was opened: ${how}`,
    where: path,
    remedy: 'Leave model files alone while they are open; replace them by renaming. Open the model again.',
    details: { path },
  })
}

/** A file handle that readers share. Reads stand between begin() and end(), so that close() cannot pull the handle from under one. */
export class OpenFile {
  readonly path: string
  readonly fd: number
  readonly identity: FileIdentity
  #inFlight = 0
  #closing: Promise<void> | undefined
  #idle: (() => void) | undefined

  /**
   * Opens for reading without ever hanging on a pipe. Throws SOURCE_IO for what is not there, not readable or not a
   * regular file, SOURCE_CHANGED when it is not the file of `expected`. `flags` are added to O_RDONLY.
   */
  constructor(path: string, expected?: FileIdentity, flags = 0) {
    this.path = path
    try {
      // Asked by name first: opening a device may already have an effect. Asked again by handle: the name may be swapped in between.
      requireRegular(statSync(path, { bigint: true }), path)
      this.fd = openSync(path, constants.O_RDONLY | (constants.O_NONBLOCK ?? 0) | flags)
    } catch (error) {
      throw fsError(error, path, 'open')
    }
    try {
      const stat = fstatSync(this.fd, { bigint: true })
      requireRegular(stat, path)
      this.identity = identityOf(stat)
      const how = expected === undefined ? undefined : difference(expected, this.identity)
      if (how !== undefined) throw changedError(path, how)
      if (!Number.isSafeInteger(this.identity.size))
        throw new SourceError('SOURCE_IO', { what: 'file is larger than 2^53 bytes', where: path })
    } catch (error) {
      closeSync(this.fd)
      throw fsError(error, path, 'stat')
    }
  }

  get size(): number {
    return this.identity.size
  }

  get closed(): boolean {
    return this.#closing !== undefined
  }

  descriptor(mode: IoMode, dropBehind: boolean): FileDescriptor {
    return { kind: 'file', path: this.path, mode, ...this.identity, ...(dropBehind ? { dropBehind } : {}) }
  }

  /** A read starts. Throws SOURCE_CLOSED. */
  begin(): void {
    if (this.#closing !== undefined) throw closedError(this.path)
    this.#inFlight++
  }

  /** A read ended. */
  end(): void {
    if (--this.#inFlight === 0) this.#idle?.()
  }

  /** Throws SOURCE_CHANGED when the file is no longer what was opened. Costs one fstat (about 2 µs). */
  checkUnchanged(): void {
    let how: string | undefined
    try {
      how = difference(this.identity, identityOf(fstatSync(this.fd, { bigint: true })))
    } catch (error) {
      throw fsError(error, this.path, 'stat')
    }
    if (how !== undefined) throw changedError(this.path, how)
  }

  /** What it means that a read found nothing at `offset`, inside the size at open. */
  shortReadError(offset: number): Error {
    try {
      this.checkUnchanged()
    } catch (error) {
      return error as Error
    }
    return new SourceError('SOURCE_IO', {
      what: 'the file ends before its size says',
      where: this.path,
      expected: `${this.size} bytes`,
      got: `end of file at ${offset}`,
      details: { path: this.path, offset, size: this.size },
    })
  }

  /** Waits for reads in flight, runs `before` (unmap and the like), closes the handle. Later calls return the same promise. */
  close(before?: () => void): Promise<void> {
    this.#closing ??= this.#close(before)
    return this.#closing
  }

  async #close(before: (() => void) | undefined): Promise<void> {
    if (this.#inFlight > 0) {
      await new Promise<void>((resolve) => {
        this.#idle = resolve
      })
    }
    try {
      before?.()
    } finally {
      closeSync(this.fd)
    }
  }
}
