// weights/pages.sha256: 32 bytes a page, pinned by the manifest, read when the first page is checked.
import { createHash } from 'node:crypto'
import { join } from 'node:path'
import { ModelFormatError } from '../../base/errors.ts'
import type { MaybePromise } from '../../source/source.ts'
import type { PageTable } from '../reader.ts'
import type { PackageFolder } from './folder.ts'
import type { PagesRecord } from './manifest.ts'

export function sha256Hex(bytes: Uint8Array): string {
  return createHash('sha256').update(bytes).digest('hex')
}

/** Throws CHECKSUM_MISMATCH. */
export function checkHash(bytes: Uint8Array, expected: string, where: string): void {
  const got = sha256Hex(bytes)
  if (got !== expected)
    throw new ModelFormatError('CHECKSUM_MISMATCH', {
      what: 'file does not have the SHA-256 that the manifest states',
      where,
      expected,
      got,
      remedy: 'The file was damaged or replaced: copy the package again.',
    })
}

/** The side table of one package. */
export class PageTableFile {
  readonly record: PagesRecord
  readonly #folder: PackageFolder
  #bytes: Uint8Array | undefined
  #loading: Promise<Uint8Array> | undefined

  constructor(folder: PackageFolder, record: PagesRecord) {
    this.#folder = folder
    this.record = record
  }

  /** The whole table, checked against its root. Throws CHECKSUM_MISMATCH, FORMAT_INVALID (size), SOURCE_IO. */
  load(): Promise<Uint8Array> {
    this.#loading ??= this.#read().catch((error: unknown) => {
      this.#loading = undefined
      throw error
    })
    return this.#loading
  }

  /** SHA-256 of page `page` of the package. */
  sha256(page: number): MaybePromise<Uint8Array> {
    if (this.#bytes !== undefined) return this.#bytes.subarray(page * 32, page * 32 + 32)
    return this.load().then((bytes) => bytes.subarray(page * 32, page * 32 + 32))
  }

  async #read(): Promise<Uint8Array> {
    const { file, count, sha256 } = this.record
    const bytes = await this.#folder.readAll(file, count * 32, count * 32)
    checkHash(bytes, sha256, join(this.#folder.root, file))
    this.#bytes = bytes
    return bytes
  }
}

/** The pages of one tensor. */
export class TensorPages implements PageTable {
  readonly rowsPerPage: number
  readonly count: number
  readonly #first: number
  readonly #file: PageTableFile

  constructor(file: PageTableFile, first: number, rowsPerPage: number, count: number) {
    this.#file = file
    this.#first = first
    this.rowsPerPage = rowsPerPage
    this.count = count
  }

  sha256(page: number): MaybePromise<Uint8Array> {
    if (!Number.isInteger(page) || page < 0 || page >= this.count)
      throw new ModelFormatError('TENSOR_RANGE', { what: 'no such page', expected: `< ${this.count}`, got: page })
    return this.#file.sha256(this.#first + page)
  }
}
