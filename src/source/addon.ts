// Finds the Node-API addon (native/addon): mappings with 64-bit offsets, reads that survive a fault, advice to the page cache.
// Everything works without it, by pread. SLUICE_NO_ADDON=1 switches it off.
import { createRequire } from 'node:module'
import { arch, platform } from 'node:process'
import { fileURLToPath } from 'node:url'
import type { AdviseHint } from './source.ts'

declare const mappingBrand: unique symbol
/** A mapping, owned by the addon. Collected without unmap() it unmaps itself. */
export interface Mapping {
  readonly [mappingBrand]: true
}

/** Sizes and offsets are bytes, up to 2^53. Functions that return a count give a negative errno instead of throwing. */
export interface Addon {
  /** Changes when a function does. */
  readonly api: number
  /** SHA-256 of the sources it was built from, first 16 digits. */
  readonly version: string
  readonly pageSize: number
  /** Maps [offset, offset + length) of an open file, copy on write. offset is a multiple of pageSize. Throws an Error with `errno`. */
  map(fd: number, offset: number, length: number): Mapping
  /** Detaches every buffer of the mapping (its views become empty), then unmaps. False while a copyAsync runs; true otherwise, also when called twice. */
  unmap(mapping: Mapping): boolean
  /** The mapped bytes themselves, at most 2^32 at once on Node 20. */
  buffer(mapping: Mapping, offset: number, length: number): ArrayBuffer
  /** Copies out.byteLength mapped bytes. A page that cannot be had (truncated file, bad disk) is −EFAULT, not a signal. */
  copy(mapping: Mapping, offset: number, out: Uint8Array): number
  /** The same in a thread of the pool. */
  copyAsync(mapping: Mapping, offset: number, out: Uint8Array): Promise<number>
  /** pread(2) of out.byteLength bytes, or up to the end of the file. `out` may be shared memory. */
  pread(fd: number, offset: number, out: Uint8Array): number
  /** posix_fadvise(2): 0 or −errno. */
  fadvise(fd: number, offset: number, length: number, hint: AdviseHint): number
  /** madvise(2) on the whole pages of a part of the mapping: 0 or −errno. */
  madvise(mapping: Mapping, offset: number, length: number, hint: AdviseHint): number
  /** Bytes of that part that are in memory (mincore), in whole pages. */
  resident(mapping: Mapping, offset: number, length: number): number
}

const API = 1
let loaded: Addon | undefined | null = null

/** Where the prebuilt addon of this machine would lie. */
export const ADDON_PATH = fileURLToPath(new URL(`../../prebuilds/${platform}-${arch}/sluice.node`, import.meta.url))

/** The addon, or undefined when there is none for this system, it does not load, or it is switched off. */
export function loadAddon(): Addon | undefined {
  if (process.env.SLUICE_NO_ADDON === '1') return undefined
  if (loaded === null) {
    try {
      const addon = createRequire(import.meta.url)(ADDON_PATH) as Addon
      loaded = addon.api === API ? addon : undefined
    } catch {
      loaded = undefined // not built for this system, another libc, --no-addons: pread does the work
    }
  }
  return loaded
}
