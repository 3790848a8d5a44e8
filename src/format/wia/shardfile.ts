// One file being written: appended in order, small chunks gathered, hashed on the way, errors of the disk told as DISK_FULL or OUTPUT_IO.
import { createHash } from 'node:crypto'
import { type FileHandle, open } from 'node:fs/promises'
import { ConversionError } from '../../base/errors.ts'
import { loadAddon } from '../../source/addon.ts'
import { errnoOf } from '../../source/fserror.ts'

const BUFFER_BYTES = 1024 * 1024
/** Written bytes are synced and dropped from the page cache, which a memory cgroup charges to us, in pieces of this. */
const DROP_BYTES = 32 * 1024 * 1024

/** Turns an error of a write into one of the family. */
export function writeError(error: unknown, path: string): ConversionError {
  if (error instanceof ConversionError) return error
  const errno = errnoOf(error)
  const full = errno === 'ENOSPC' || errno === 'EDQUOT' || errno === 'EFBIG'
  return new ConversionError(full ? 'DISK_FULL' : 'OUTPUT_IO', {
    what: full ? `no space left for the output (${errno})` : `the system refused a write (${errno ?? String(error)})`,
    where: path,
    remedy: full
      ? 'Free space or choose another disk; nothing was left under the final name.'
      : 'Check the folder and its permissions.',
    details: { path, errno },
    cause: error,
  })
}

export class ShardFile {
  readonly path: string
  readonly #handle: FileHandle
  readonly #buffer = Buffer.allocUnsafe(BUFFER_BYTES)
  readonly #hash: ReturnType<typeof createHash> | undefined
  #filled = 0
  #flushed = 0
  #dropped = 0
  /** The piece that is on its way to the disk; resolves to its error. */
  #dropping: Promise<unknown> | undefined
  #open = true

  private constructor(path: string, handle: FileHandle, hashed: boolean) {
    this.path = path
    this.#handle = handle
    this.#hash = hashed ? createHash('sha256') : undefined
  }

  /** Creates; a file that is there already is an error. */
  static async create(path: string, hashed = false): Promise<ShardFile> {
    try {
      return new ShardFile(path, await open(path, 'wx', 0o644), hashed)
    } catch (error) {
      throw writeError(error, path)
    }
  }

  /** Bytes appended so far. */
  get position(): number {
    return this.#flushed + this.#filled
  }

  /** When this resolves the chunk may be reused. */
  async append(chunk: Uint8Array): Promise<void> {
    this.#hash?.update(chunk)
    if (this.#filled + chunk.byteLength > BUFFER_BYTES) await this.#flush()
    if (chunk.byteLength >= BUFFER_BYTES) return this.#write(chunk)
    this.#buffer.set(chunk, this.#filled)
    this.#filled += chunk.byteLength
  }

  /** Zeros up to `position`. */
  async padTo(position: number): Promise<void> {
    while (this.position < position) await this.append(new Uint8Array(Math.min(65536, position - this.position)))
  }

  /** Syncs and closes. Returns the SHA-256 when it was asked for. */
  async finish(): Promise<string | undefined> {
    await this.#flush()
    try {
      await this.#settle()
      await this.#handle.sync()
      this.#dropped = this.#flushed
      this.#forget()
    } catch (error) {
      throw writeError(error, this.path)
    } finally {
      await this.close()
    }
    return this.#hash?.digest('hex')
  }

  /** Closes without finishing. Safe twice. */
  async close(): Promise<void> {
    if (!this.#open) return
    this.#open = false
    await this.#dropping
    await this.#handle.close().catch(() => {})
  }

  async #flush(): Promise<void> {
    const n = this.#filled
    this.#filled = 0
    await this.#write(this.#buffer.subarray(0, n))
  }

  async #write(bytes: Uint8Array): Promise<void> {
    try {
      for (let at = 0; at < bytes.byteLength; ) {
        const { bytesWritten } = await this.#handle.write(bytes, at, bytes.byteLength - at, this.#flushed)
        at += bytesWritten
        this.#flushed += bytesWritten
      }
      if (this.#flushed - this.#dropped >= DROP_BYTES && loadAddon() !== undefined) {
        // One piece at a time: at most two are in the cache, and the disk works while the next is made.
        await this.#settle()
        this.#dropping = this.#drop().catch((error: unknown) => error)
      }
    } catch (error) {
      throw writeError(error, this.path)
    }
  }
  async #drop(): Promise<undefined> {
    this.#dropped = this.#flushed
    await this.#handle.datasync()
    this.#forget()
  }

  /** Only what is on the disk can be dropped. */
  #forget(): void {
    loadAddon()?.fadvise(this.#handle.fd, 0, this.#dropped, 'dontneed')
  }

  async #settle(): Promise<void> {
    const error = await this.#dropping
    this.#dropping = undefined
    if (error !== undefined) throw error
  }
}
