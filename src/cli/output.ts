// Where a verb's bytes go: standard output, a device or pipe, or a file that appears under its name only when it is complete.
import { closeSync, constants, fsyncSync, openSync, renameSync, rmSync, statSync, writeSync } from 'node:fs'
import { SluiceError } from '../base/errors.ts'

export class Output {
  readonly #path: string | undefined
  readonly #temporary: string | undefined
  #fd: number | undefined

  /** Opens at once, so that a place that cannot be written is refused before the work. Throws OUTPUT_IO, DISK_FULL. */
  constructor(path: string | undefined) {
    this.#path = path
    if (path === undefined) {
      this.#fd = 1
      return
    }
    if (path === '') this.#refuse('the output has no name')
    const there = this.#try(() => statSync(path, { throwIfNoEntry: false }))
    if (there?.isDirectory()) this.#refuse('the output is a folder')
    if (there !== undefined && !there.isFile()) {
      // A device, a pipe: written to as it is. Renaming a file over it would replace it (/dev/null for the whole machine).
      this.#fd = this.#try(() => openSync(path, constants.O_WRONLY | (constants.O_NONBLOCK ?? 0)))
      return
    }
    this.#temporary = `${path}.${process.pid}.tmp`
    this.#fd = this.#try(() => openSync(this.#temporary!, 'wx'))
    process.once('exit', this.#atExit)
  }

  write(bytes: Uint8Array): void {
    for (let at = 0; at < bytes.length; ) {
      try {
        at += writeSync(this.#fd!, bytes, at, bytes.length - at)
      } catch (cause) {
        const { code } = cause as NodeJS.ErrnoException
        if (code === 'EAGAIN')
          Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 5) // a pipe that is full
        else this.#fail(cause)
      }
    }
  }

  /** Everything was written: the file gets its name. */
  commit(): void {
    const fd = this.#fd
    const temporary = this.#temporary
    if (fd === undefined || fd === 1) return
    if (temporary === undefined) {
      this.discard()
      return
    }
    this.#try(() => fsyncSync(fd))
    this.#try(() => renameSync(temporary, this.#path!))
    closeSync(fd)
    this.#fd = undefined
    process.off('exit', this.#atExit)
  }

  /** Removes what was not committed. Harmless after commit(). */
  discard(): void {
    if (this.#fd === undefined || this.#fd === 1) return
    closeSync(this.#fd)
    this.#fd = undefined
    process.off('exit', this.#atExit)
    if (this.#temporary !== undefined) rmSync(this.#temporary, { force: true })
  }

  readonly #atExit = () => this.discard()

  #refuse(what: string): never {
    throw new SluiceError('OUTPUT_IO', { what, where: this.#path ?? '', remedy: 'Name a file.' })
  }

  #try<T>(work: () => T): T {
    try {
      return work()
    } catch (cause) {
      return this.#fail(cause)
    }
  }

  #fail(cause: unknown): never {
    const { code, message } = cause as NodeJS.ErrnoException
    if (code === 'EPIPE') throw new SluiceError('ABORTED', { what: 'the reader of the output is gone', cause })
    if (code === 'ENOSPC')
      throw new SluiceError('DISK_FULL', {
        what: 'no space left',
        where: this.#path ?? 'standard output',
        remedy: 'Free some space and run again.',
        cause,
      })
    throw new SluiceError('OUTPUT_IO', {
      what: 'cannot write',
      where: this.#path ?? 'standard output',
      got: message,
      cause,
    })
  }
}
