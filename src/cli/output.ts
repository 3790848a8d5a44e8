// Where a verb's bytes go: standard output, or a file that appears under its name only when it is complete.
import { closeSync, fsyncSync, openSync, renameSync, rmSync, writeSync } from 'node:fs'
import { SluiceError } from '../base/errors.ts'

export class Output {
  readonly #path: string | undefined
  readonly #temporary: string | undefined
  #fd: number | undefined

  constructor(path: string | undefined) {
    this.#path = path
    if (path === undefined) {
      this.#fd = 1
      return
    }
    this.#temporary = `${path}.${process.pid}.tmp`
    this.#fd = this.#try(() => openSync(this.#temporary!, 'w'))
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
    if (this.#temporary === undefined || this.#fd === undefined) return
    const fd = this.#fd
    this.#try(() => fsyncSync(fd))
    closeSync(fd)
    this.#fd = undefined
    this.#try(() => renameSync(this.#temporary!, this.#path!))
  }

  /** Removes what was not committed. Harmless after commit(). */
  discard(): void {
    if (this.#temporary === undefined || this.#fd === undefined) return
    closeSync(this.#fd)
    this.#fd = undefined
    rmSync(this.#temporary, { force: true })
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
