// Numbers of docs/FORMAT.md that reader and writer share: alignment, caps, page sizes, and how many bytes an encoding takes.
import type { DType } from '../../base/dtype.ts'
import { encodedBytes } from '../../quant/codec.ts'
import { type Encoding, PANEL_ROWS } from '../../quant/scheme.ts'

export const FORMAT_VERSION = '1.0.0'
export const FORMAT_MAJOR = 1
export const FORMAT_MINOR = 0

export const MANIFEST_FILE = 'manifest.json'
export const ARCHITECTURE_FILE = 'architecture.json'
export const CONFIG_FILE = 'config/model.json'
export const PAGES_FILE = 'weights/pages.sha256'
export const SHARD_PATTERN = /^weights\/[^/]+\.bin$/
/** Folders that files named in the manifest may lie in. */
export const SIDE_FOLDERS = ['config', 'metadata', 'tokenizer', 'adapters'] as const

export const BLOCK_QUANT = 'wia.block_quant'
export const EXTRA_DTYPES = 'wia.extra_dtypes'
/** Extensions this version knows. */
export const KNOWN_EXTENSIONS: ReadonlySet<string> = new Set([BLOCK_QUANT, EXTRA_DTYPES])

/** Ranges of this many bytes or more start at PAGE_ALIGN, smaller ones at SMALL_ALIGN. */
export const SMALL_BYTES = 65536
export const PAGE_ALIGN = 4096
export const SMALL_ALIGN = 64

export const DEFAULT_SHARD_BYTES = 1024 ** 3
/** Largest shard unless asked for more. */
export const MAX_PLAIN_SHARD_BYTES = 2 ** 31 - PAGE_ALIGN
export const DEFAULT_PAGE_BYTES = 1024 ** 2
export const MAX_PAGE_BYTES = 4 * 1024 ** 2
export const MAX_INLINE_BYTES = 1024 ** 2
/** Side files: a package with a hundred adapters has a few hundred. */
export const MAX_FILES = 10_000

export const STANDARD_DTYPES: ReadonlySet<DType> = new Set<DType>([
  'float32',
  'float16',
  'bfloat16',
  'int64',
  'int32',
  'int16',
  'int8',
  'uint8',
  'bool',
  'complex64',
])

/** Encodings a package holds. */
export type StoredEncoding = Extract<Encoding, { kind: 'plain' | 'panel' }>

/** Bytes of 16 rows: the smallest page. */
export function groupBytes(encoding: StoredEncoding, cols: number): number {
  return encodedBytes(encoding, PANEL_ROWS, cols)
}

export function alignmentOf(length: number): number {
  return length >= SMALL_BYTES ? PAGE_ALIGN : SMALL_ALIGN
}
