// ggml rows into row panels: Q4_0 is int4 with block 32, Q8_0 is int8 with block 32, the same numbers in another order.
// Scales are copied as they are (float16, exponent 0). The last panel may have fewer than 16 rows; missing rows become zero.
import { checkMatrix } from './bounds.ts'
import { ggmlBlock, ggmlBytes } from './ggml.ts'
import { layoutBytes, panelLayout } from './panel-layout.ts'
import { PANEL_ROWS, type PanelEncoding } from './scheme.ts'

/** The panel encodings of these two. Other types: ggml-form.ts. */
const REPACKED: Readonly<Record<'Q4_0' | 'Q8_0', PanelEncoding>> = {
  Q4_0: { kind: 'panel', scheme: 'int4', block: 32, scale: 'f16', exponent: 0 },
  Q8_0: { kind: 'panel', scheme: 'int8', block: 32, scale: 'f16', exponent: 0 },
}

/** Q4_0 rows [rows, cols] from `src` to int4 panels in `dst`. */
export function repackQ4_0ToPanel(
  src: Uint8Array,
  rows: number,
  cols: number,
  dst: Uint8Array,
  bigEndian = false,
): void {
  repack('Q4_0', src, rows, cols, dst, bigEndian, (from, to) => {
    // Columns 8c+j and 8c+4+j share a byte in panels, j and j+16 in Q4_0.
    for (let c = 0; c < 4; c++)
      for (let j = 0; j < 4; j++) {
        const column = 8 * c + j
        const at = from + (column & 15)
        const shift = column < 16 ? 0 : 4
        dst[to + c * 64 + j] = ((src[at]! >>> shift) & 15) | (((src[at + 4]! >>> shift) & 15) << 4)
      }
  })
}

/** Q8_0 rows [rows, cols] from `src` to int8 panels in `dst`. */
export function repackQ8_0ToPanel(
  src: Uint8Array,
  rows: number,
  cols: number,
  dst: Uint8Array,
  bigEndian = false,
): void {
  repack('Q8_0', src, rows, cols, dst, bigEndian, (from, to) => {
    for (let c = 0; c < 8; c++) for (let j = 0; j < 4; j++) dst[to + c * 64 + j] = src[from + c * 4 + j]!
  })
}

function repack(
  type: 'Q4_0' | 'Q8_0',
  src: Uint8Array,
  rows: number,
  cols: number,
  dst: Uint8Array,
  bigEndian: boolean,
  moveCodes: (from: number, to: number) => void,
): void {
  const block = ggmlBlock(type)
  const layout = panelLayout(REPACKED[type])
  checkMatrix(type, src.length, ggmlBytes(block, rows, cols), 0, 0)
  const length = layoutBytes(layout, rows, cols)
  checkMatrix(layout.name, dst.length, length, 0, 0)
  const columns = cols / block.columns
  const low = bigEndian ? 1 : 0
  const { zeroCode, bits } = layout.scheme
  const zero = bits === 8 ? zeroCode : zeroCode | (zeroCode << 4)
  for (let row = 0, from = 0; row < rows; row++) {
    const lane = row % PANEL_ROWS
    let to = ((row - lane) / PANEL_ROWS) * columns * layout.blockBytes
    for (let b = 0; b < columns; b++, from += block.bytes, to += layout.blockBytes) {
      const scaleAt = to + layout.scalesAt + lane * 2
      dst[scaleAt] = src[from + low]!
      dst[scaleAt + 1] = src[from + 1 - low]!
      moveCodes(from + 2, to + lane * 4)
    }
  }
  for (let lane = rows % PANEL_ROWS; lane !== 0 && lane < PANEL_ROWS; lane++)
    for (let b = 0, to = length - columns * layout.blockBytes; b < columns; b++, to += layout.blockBytes) {
      for (let p = to + lane * 4; p < to + layout.scalesAt; p += 64) dst.fill(zero, p, p + 4)
      dst.fill(0, to + layout.scalesAt + lane * 2, to + layout.scalesAt + lane * 2 + 2)
    }
}
