// Numbers of docs/FORMAT.md that reader and writer share: alignment, caps, page sizes, and how many bytes an encoding takes.
import { DTYPE_BYTES, type DType } from '../../base/dtype.ts'
import { mulSafe } from '../../base/shape.ts'
import type { Encoding, PanelEncoding, PanelSchemeName } from '../../quant/scheme.ts'
import { PANEL_ROWS } from '../../quant/scheme.ts'

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

/** Bits of a code, by scheme. */
export const SCHEME_BITS: Readonly<Record<PanelSchemeName, 4 | 8>> = {
  int8: 8,
  int4: 4,
  int4m: 4,
  nf4: 4,
  fp8_e4m3: 8,
  fp8_e5m2: 8,
}

/** Bytes of one panel: 16 rows × all columns (FORMAT §5.1). */
export function panelBytes(e: PanelEncoding, cols: number): number {
  const codes = (PANEL_ROWS * e.block * SCHEME_BITS[e.scheme]) / 8
  const scales = PANEL_ROWS * (e.scale === 'f16' ? 2 : 4)
  return mulSafe(Math.ceil(cols / e.block), codes + scales * (e.scheme === 'int4m' ? 2 : 1), 'panel')
}

/** Stored bytes of a contiguous matrix [rows, cols]. Only `plain` and `panel` exist in packages. */
export function storedBytes(e: Exclude<Encoding, { kind: 'ggml' | 'opaque' }>, rows: number, cols: number): number {
  if (e.kind === 'plain') return mulSafe(mulSafe(rows, cols, 'tensor'), DTYPE_BYTES[e.dtype], 'tensor')
  return mulSafe(Math.ceil(rows / PANEL_ROWS), panelBytes(e, cols), 'tensor')
}

/** Bytes of 16 rows: the smallest page. */
export function groupBytes(e: Exclude<Encoding, { kind: 'ggml' | 'opaque' }>, cols: number): number {
  return storedBytes(e, PANEL_ROWS, cols)
}

export function alignmentOf(length: number): number {
  return length >= SMALL_BYTES ? PAGE_ALIGN : SMALL_ALIGN
}
