// A file read with read(2) through the page cache: works everywhere, never faults.
import type { Addon } from './addon.ts'
import { DropBehind } from './dropbehind.ts'
import type { OpenFile } from './file.ts'
import { fsError } from './fserror.ts'
import { checkRange, destination } from './range.ts'
import type { AdviseHint, ByteSource, FileDescriptor, ReadOptions } from './source.ts'
import { REFUSED, run, runSync, STEP_BYTES, type Steps } from './steps.ts'

function* steps(file: OpenFile, offset: number, out: Uint8Array): Steps {
  let done = 0
  while (done < out.byteLength) {
    const length = Math.min(out.byteLength - done, STEP_BYTES)
    const got = yield { buffer: out, at: done, length, position: offset + done }
    if (got === REFUSED) throw fsError({ code: 'EINVAL' }, file.path, `read ${length} bytes at ${offset + done}`)
    if (got === 0) throw file.shortReadError(offset + done)
    done += got
  }
}

/** Made by openFile. */
export class PreadSource implements ByteSource {
  readonly kind = 'pread'
  readonly alignment = 1
  readonly size: number
  readonly id: string
  readonly descriptor: FileDescriptor
  /** Whether reads really forget the page cache they filled: asked for, and the addon is there to do it. */
  readonly dropBehind: boolean
  readonly advise?: (offset: number, length: number, hint: AdviseHint) => void
  readonly #file: OpenFile
  readonly #drop: DropBehind | undefined

  constructor(file: OpenFile, addon: Addon | undefined, dropBehind: boolean) {
    this.#file = file
    this.size = file.size
    this.id = file.path
    this.descriptor = file.descriptor('pread', dropBehind)
    if (addon !== undefined) {
      this.advise = (offset, length, hint) => {
        if (!file.closed) addon.fadvise(file.fd, offset, length, hint)
      }
      if (dropBehind) this.#drop = new DropBehind(addon, file)
    }
    this.dropBehind = this.#drop !== undefined
  }

  async read(offset: number, length: number, options?: ReadOptions): Promise<Uint8Array> {
    checkRange(this.id, this.size, offset, length)
    const out = destination(this.id, length, options?.into)
    await run(this.#file, steps(this.#file, offset, out), options?.signal)
    this.#drop?.after(offset, length)
    return out
  }

  readSync(offset: number, length: number, into?: Uint8Array): Uint8Array {
    checkRange(this.id, this.size, offset, length)
    const out = destination(this.id, length, into)
    runSync(this.#file, steps(this.#file, offset, out))
    this.#drop?.after(offset, length)
    return out
  }

  close(): Promise<void> {
    return this.#file.close()
  }
}
