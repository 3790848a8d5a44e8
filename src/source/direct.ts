// A file read with O_DIRECT: from the device into the caller's memory, nothing left in the page cache.
import { constants } from 'node:fs'
import { SourceError } from '../base/errors.ts'
import { roundDown, roundUp } from '../base/shape.ts'
import { type FileIdentity, OpenFile } from './file.ts'
import { errnoOf } from './fserror.ts'
import { checkRange, destination } from './range.ts'
import type { ByteSource, FileDescriptor, ReadOptions } from './source.ts'
import { REFUSED, run, runSync, STEP_BYTES, type Steps } from './steps.ts'

/** Offset, length and address of a direct read are multiples of this: the page, at least as strict as any device asks for. */
export const DIRECT_ALIGNMENT = 4096
const BOUNCE_BYTES = 256 * 1024

// Memory aligned to a page, which only WebAssembly promises. As many as reads ever were in flight at once in this thread.
const idleBounces: Uint8Array[] = []

/** V8 reserves gigabytes of address space for any such memory: under a limit (ulimit -v) it is refused, and with it direct I/O. */
function takeBounce(path: string): Uint8Array {
  const pages = BOUNCE_BYTES / 65536
  try {
    return idleBounces.pop() ?? new Uint8Array(new WebAssembly.Memory({ initial: pages, maximum: pages }).buffer)
  } catch (cause) {
    throw new SourceError('SOURCE_MODE', {
      what: 'direct I/O needs address space that the system refuses',
      where: path,
      remedy: "Raise the limit (ulimit -v), or use mode 'pread'.",
      details: { path, mode: 'direct' },
      cause,
    })
  }
}

// Buffers whose address turned out not to be aligned: the address is nothing JavaScript can ask for, so the first read finds out.
const unaligned = new WeakSet<ArrayBufferLike>()

function* steps(file: OpenFile, offset: number, out: Uint8Array): Steps {
  const end = offset + out.byteLength
  let pos = offset
  let bounce: Uint8Array | undefined
  try {
    while (pos < end) {
      const congruent = (out.byteOffset - offset) % DIRECT_ALIGNMENT === 0 && !unaligned.has(out.buffer)
      const whole = roundDown(end - pos, DIRECT_ALIGNMENT)
      if (congruent && pos % DIRECT_ALIGNMENT === 0 && whole > 0) {
        const length = Math.min(whole, STEP_BYTES)
        const got = yield { buffer: out, at: pos - offset, length, position: pos }
        if (got === 0) throw file.shortReadError(pos)
        if (got === REFUSED) unaligned.add(out.buffer)
        else pos += got
        continue
      }
      bounce ??= takeBounce(file.path)
      const start = roundDown(pos, DIRECT_ALIGNMENT)
      // Where the middle can go straight, only the odd block at its edge is bounced. The last block of a file comes short.
      const length = congruent ? DIRECT_ALIGNMENT : Math.min(BOUNCE_BYTES, roundUp(end, DIRECT_ALIGNMENT) - start)
      const got = yield { buffer: bounce, at: 0, length, position: start }
      if (got === REFUSED) throw refused(file.path, 'EINVAL')
      const upTo = Math.min(start + got, end)
      if (upTo <= pos) throw file.shortReadError(pos)
      out.set(bounce.subarray(pos - start, upTo - start), pos - offset)
      pos = upTo
    }
  } finally {
    if (bounce !== undefined) idleBounces.push(bounce)
  }
}

function refused(path: string, errno: string, cause?: unknown): SourceError {
  return new SourceError('SOURCE_MODE', {
    what: `direct I/O is not possible here (${errno})`,
    where: path,
    remedy: "The file system does not offer it: use mode 'pread' (with dropBehind) or 'mmap'.",
    details: { path, mode: 'direct', errno },
    cause,
  })
}

/** Made by openFile. The probe in `open` has shown that the file system takes direct reads. */
export class DirectSource implements ByteSource {
  readonly kind = 'direct'
  readonly alignment = DIRECT_ALIGNMENT
  readonly size: number
  readonly id: string
  readonly descriptor: FileDescriptor
  readonly #file: OpenFile

  private constructor(file: OpenFile) {
    this.#file = file
    this.size = file.size
    this.id = file.path
    this.descriptor = file.descriptor('direct', false)
  }

  /** Throws SOURCE_MODE where the platform, the file system or the device refuses direct reads, found out by a read. */
  static open(path: string, expected?: FileIdentity): DirectSource {
    // macOS and Windows have no O_DIRECT.
    if (constants.O_DIRECT === undefined) throw refused(path, 'no O_DIRECT')
    let file: OpenFile
    try {
      file = new OpenFile(path, expected, constants.O_DIRECT)
    } catch (error) {
      const errno = errnoOf((error as Error).cause)
      throw errno === 'EINVAL' || errno === 'ENOTSUP' || errno === 'EOPNOTSUPP' ? refused(path, errno, error) : error
    }
    try {
      const probe = new Uint8Array(Math.min(file.size, 1))
      runSync(file, steps(file, 0, probe))
      return new DirectSource(file)
    } catch (error) {
      void file.close()
      throw error
    }
  }

  async read(offset: number, length: number, options?: ReadOptions): Promise<Uint8Array> {
    checkRange(this.id, this.size, offset, length)
    const out = destination(this.id, length, options?.into)
    await run(this.#file, steps(this.#file, offset, out), options?.signal)
    return out
  }

  readSync(offset: number, length: number, into?: Uint8Array): Uint8Array {
    checkRange(this.id, this.size, offset, length)
    const out = destination(this.id, length, into)
    runSync(this.#file, steps(this.#file, offset, out))
    return out
  }

  close(): Promise<void> {
    return this.#file.close()
  }
}
