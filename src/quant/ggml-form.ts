// The encoding kernels compute with that holds exactly the numbers of a ggml type, and rows laid out in it.
//
// Panels hold a signed code of 4 or 8 bits (or an unsigned one of 4 bits with a minimum) and a scale for 32 or 64 columns. A type goes into
// panels when its own groups are whole multiples of such blocks and its codes are that small. Scales that are a stored float16 stay float16,
// products of a scale and a sub-scale need float32. The rest (sub-scales for 16 columns, minima with codes of 5 bits) is decoded to plain
// rows: bfloat16 where every value is one (NVFP4: at most 6 significant bits), else float32.
import { checkMatrix } from './bounds.ts'
import { ggmlBlock, ggmlBytes, packedBlock } from './ggml.ts'
import { type BlockNumbers, blockNumbers, type PackedBlock } from './ggml-packed.ts'
import { repackQ4_0ToPanel, repackQ8_0ToPanel } from './ggml-repack.ts'
import { floatToHalf } from './half.ts'
import { floatBits } from './minifloat.ts'
import { layoutBytes, type PanelLayout, panelLayout } from './panel-layout.ts'
import { plainBytes, plainCodec } from './plain.ts'
import { type GgmlType, PANEL_ROWS, type PanelEncoding, type PanelSchemeName } from './scheme.ts'

export type ExactForm = PanelEncoding | { readonly kind: 'plain'; readonly dtype: 'float32' | 'bfloat16' }

const panel = (scheme: PanelSchemeName, block: 32 | 64, scale: 'f16' | 'f32'): PanelEncoding => ({
  kind: 'panel',
  scheme,
  block,
  scale,
  exponent: 0,
})
const FLOAT32 = { kind: 'plain', dtype: 'float32' } as const
const BFLOAT16 = { kind: 'plain', dtype: 'bfloat16' } as const

export const EXACT_FORM: Readonly<Record<GgmlType, ExactForm>> = {
  Q4_0: panel('int4', 32, 'f16'),
  Q4_1: panel('int4m', 32, 'f16'),
  Q5_0: panel('int8', 32, 'f16'),
  Q5_1: FLOAT32,
  Q8_0: panel('int8', 32, 'f16'),
  Q2_K: FLOAT32,
  Q3_K: FLOAT32,
  Q4_K: panel('int4m', 32, 'f32'),
  Q5_K: FLOAT32,
  Q6_K: FLOAT32,
  IQ1_S: panel('int8', 32, 'f32'),
  IQ1_M: FLOAT32,
  IQ2_XXS: panel('int8', 32, 'f32'),
  IQ2_XS: FLOAT32,
  IQ2_S: FLOAT32,
  IQ3_XXS: panel('int8', 32, 'f32'),
  IQ3_S: panel('int8', 32, 'f32'),
  IQ4_NL: panel('int8', 32, 'f16'),
  IQ4_XS: panel('int8', 32, 'f32'),
  TQ1_0: panel('int4', 64, 'f16'),
  TQ2_0: panel('int4', 64, 'f16'),
  MXFP4: panel('int8', 32, 'f32'),
  NVFP4: BFLOAT16,
  Q1_0: panel('int4', 64, 'f16'),
  Q2_0: panel('int4', 64, 'f16'),
}

/** Bytes of rows × cols in the exact form. Throws what ggmlBytes throws. */
export function exactBytes(type: GgmlType, rows: number, cols: number): number {
  ggmlBytes(ggmlBlock(type), rows, cols)
  const form = EXACT_FORM[type]
  return form.kind === 'plain' ? plainBytes(form.dtype, rows, cols) : layoutBytes(panelLayout(form), rows, cols)
}

/**
 * Lays ggml rows [rows, cols] out in their exact form: the same numbers. A last panel of fewer than 16 rows is filled up with zeros.
 * Throws FORMAT_INVALID when `src` ends before the matrix or columns are not whole blocks.
 */
export function toExactForm(
  type: GgmlType,
  src: Uint8Array,
  rows: number,
  cols: number,
  dst: Uint8Array,
  bigEndian = false,
): void {
  if (type === 'Q4_0' || type === 'Q8_0') {
    const repack = type === 'Q4_0' ? repackQ4_0ToPanel : repackQ8_0ToPanel
    repack(src, rows, cols, dst, bigEndian)
    return
  }
  checkMatrix(type, src.length, ggmlBytes(ggmlBlock(type), rows, cols), 0, 0)
  checkMatrix(`${type} in memory`, dst.length, exactBytes(type, rows, cols), 0, 0)
  const form = EXACT_FORM[type]
  if (form.kind === 'plain') toRows(type, form.dtype, src, rows, cols, dst, bigEndian)
  else toPanels(packedBlock(type)!, panelLayout(form), src, rows, cols, dst, bigEndian)
}

/** Row by row through a float32 row. */
function toRows(
  type: GgmlType,
  dtype: 'float32' | 'bfloat16',
  src: Uint8Array,
  rows: number,
  cols: number,
  dst: Uint8Array,
  bigEndian: boolean,
): void {
  const block = ggmlBlock(type)
  const codec = plainCodec(dtype)
  const blocks = cols / block.columns
  const rowBytes = blocks * block.bytes
  const outBytes = plainBytes(dtype, 1, cols)
  const row = new Float32Array(cols)
  for (let r = 0; r < rows; r++) {
    block.decode(src.subarray(r * rowBytes, (r + 1) * rowBytes), blocks, row, bigEndian)
    codec.encode!(row, 1, cols, dst.subarray(r * outBytes, (r + 1) * outBytes))
  }
}

function toPanels(
  block: PackedBlock,
  layout: PanelLayout,
  src: Uint8Array,
  rows: number,
  cols: number,
  dst: Uint8Array,
  bigEndian: boolean,
): void {
  const numbers = blockNumbers(block)
  const view = new DataView(src.buffer, src.byteOffset, src.length)
  const length = layoutBytes(layout, rows, cols)
  // Codes are written four at a time.
  const aligned = dst.byteOffset % 4 === 0
  const out = aligned ? dst : new Uint8Array(length)
  const words = new Int32Array(out.buffer, out.byteOffset, length / 4)
  const blocks = cols / block.columns
  const panelBytes = (cols / layout.block) * layout.blockBytes
  const bytesPerBlock = (block.columns / layout.block) * layout.blockBytes
  const whole = Math.ceil(rows / PANEL_ROWS) * PANEL_ROWS
  for (let row = 0, from = 0; row < whole; row++) {
    const lane = row % PANEL_ROWS
    let to = ((row - lane) / PANEL_ROWS) * panelBytes
    if (row === rows) clear(numbers) // what fills the last panel up
    for (let b = 0; b < blocks; b++, to += bytesPerBlock) {
      if (row < rows) block.unpack(view, from, numbers, bigEndian)
      from += block.bytes
      writeBlock(block, layout, numbers, out, words, to, lane)
    }
  }
  if (!aligned) dst.set(out)
}

function clear({ codes, scales, minima }: BlockNumbers): void {
  codes.fill(0)
  scales.fill(0)
  minima.fill(0)
}

/** One row of `block.columns` columns into the panel blocks from `to` on. */
function writeBlock(
  block: PackedBlock,
  layout: PanelLayout,
  numbers: BlockNumbers,
  bytes: Uint8Array,
  dst: Int32Array,
  to: number,
  lane: number,
): void {
  const { words: codes, scales, minima } = numbers
  const { bits, zeroCode } = layout.scheme
  const flip = zeroCode * 0x01010101
  for (let c = 0, at = to; c < block.columns; c += layout.block, at += layout.blockBytes) {
    let p = at / 4 + lane
    let i = c / 4
    const end = i + layout.block / 4
    if (bits === 8) for (; i < end; i++, p += 16) dst[p] = codes[i]!
    else
      for (; i < end; i += 2, p += 16) {
        // A signed nibble plus 8 is the nibble with its top bit flipped.
        const low = (codes[i]! & 0x0f0f0f0f) ^ flip
        const high = (codes[i + 1]! & 0x0f0f0f0f) ^ flip
        dst[p] = low | (high << 4)
      }
    const group = Math.floor(c / block.group)
    writeScale(layout, scales[group]!, bytes, at + layout.scalesAt + lane * layout.scaleBytes)
    if (layout.scheme.minima) writeScale(layout, minima[group]!, bytes, at + layout.minimaAt + lane * layout.scaleBytes)
  }
}

/** Exact: float16 scales come from float16 fields. */
function writeScale(layout: PanelLayout, scale: number, dst: Uint8Array, at: number): void {
  const bits = layout.scaleBytes === 2 ? floatToHalf(scale) : floatBits(scale)
  dst[at] = bits
  dst[at + 1] = bits >>> 8
  if (layout.scaleBytes === 2) return
  dst[at + 2] = bits >>> 16
  dst[at + 3] = bits >>> 24
}
