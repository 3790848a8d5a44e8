// Row panels to float32: whole matrices, and single rows without touching other panels.
import { SluiceError } from '../base/errors.ts'
import { checkMatrix, matrixElements } from './bounds.ts'
import { halfTable } from './half.ts'
import { bitsToFloat } from './minifloat.ts'
import { encodePanels } from './panel-encode.ts'
import { layoutBytes, type PanelLayout, panelLayout } from './panel-layout.ts'
import { PANEL_ROWS, type PanelEncoding, type RowCodec } from './scheme.ts'

/** Codec of a panel encoding. Throws QUANT_UNSUPPORTED for parameters that are not known. */
export function panelCodec(enc: PanelEncoding): RowCodec {
  const layout = panelLayout(enc)
  const check = (bytes: Uint8Array, rows: number, cols: number, values: Float32Array) => {
    const elements = matrixElements(rows, cols, layout.name)
    checkMatrix(layout.name, bytes.length, layoutBytes(layout, rows, cols), values.length, elements)
  }
  return {
    rowGroup: PANEL_ROWS,
    byteLength: (rows, cols) => layoutBytes(layout, rows, cols),
    decode(bytes, rows, cols, out) {
      check(bytes, rows, cols, out)
      const panelLength = layoutBytes(layout, PANEL_ROWS, cols)
      // Panel by panel, row by row: a panel's bytes stay in the cache while its 16 rows are gathered.
      for (let row = 0; row < rows; row++) {
        const panel = Math.floor(row / PANEL_ROWS)
        decodeLane(layout, bytes, panel * panelLength, row - panel * PANEL_ROWS, cols, out, row * cols)
      }
    },
    encode(values, rows, cols, out) {
      check(out, rows, cols, values)
      encodePanels(enc.scheme, layout, values, rows, cols, out)
    },
  }
}

/** Bytes of a matrix that hold a row: its panel. `lane` is the row's place in the panel. */
export function panelOfRow(
  enc: PanelEncoding,
  cols: number,
  row: number,
): { offset: number; length: number; lane: number } {
  const length = layoutBytes(panelLayout(enc), PANEL_ROWS, cols)
  const panel = Math.floor(row / PANEL_ROWS)
  return { offset: panel * length, length, lane: row - panel * PANEL_ROWS }
}

/** Decodes one row (`lane`, 0…15) of the panel that `panel` begins with, to out[outAt … outAt+cols). */
export function decodePanelRow(
  enc: PanelEncoding,
  panel: Uint8Array,
  lane: number,
  cols: number,
  out: Float32Array,
  outAt = 0,
): void {
  const layout = panelLayout(enc)
  if (!Number.isInteger(lane) || lane < 0 || lane >= PANEL_ROWS)
    throw new SluiceError('INTERNAL', { what: 'a panel has no such row', expected: '0 to 15', got: lane })
  checkMatrix(layout.name, panel.length, layoutBytes(layout, PANEL_ROWS, cols), out.length - outAt, cols)
  decodeLane(layout, panel, 0, lane, cols, out, outAt)
}

/** A stored scale or minimum as float32, exponent applied. */
function readScale(layout: PanelLayout, halves: Float32Array, bytes: Uint8Array, at: number): number {
  const low = bytes[at]! | (bytes[at + 1]! << 8)
  const stored =
    layout.scaleBytes === 2 ? halves[low]! : bitsToFloat(low | (bytes[at + 2]! << 16) | (bytes[at + 3]! << 24))
  return Math.fround(stored * layout.multiplier)
}

function decodeLane(
  layout: PanelLayout,
  bytes: Uint8Array,
  panelAt: number,
  lane: number,
  cols: number,
  out: Float32Array,
  outAt: number,
): void {
  const { block, blockBytes, scalesAt, minimaAt, scaleBytes, scheme } = layout
  const halves = halfTable()
  const values = scheme.codeValue
  for (let col = 0, at = panelAt; col < cols; col += block, at += blockBytes) {
    const n = Math.min(block, cols - col)
    const scale = readScale(layout, halves, bytes, at + scalesAt + lane * scaleBytes)
    if (scheme.bits === 8) decodeBytes(bytes, at + lane * 4, n, values, scale, out, outAt + col)
    else if (!scheme.minima) decodeNibbles(bytes, at + lane * 4, n, values, scale, out, outAt + col)
    else {
      const minimum = readScale(layout, halves, bytes, at + minimaAt + lane * scaleBytes)
      decodeNibblesMin(bytes, at + lane * 4, n, values, scale, minimum, out, outAt + col)
    }
  }
}

// The loops below: a product of two float32 is exact in a double, so storing it rounds once.

function decodeBytes(
  bytes: Uint8Array,
  at: number,
  n: number,
  values: Float32Array,
  scale: number,
  out: Float32Array,
  outAt: number,
): void {
  let p = at
  let i = 0
  for (; i + 4 <= n; i += 4, p += 64) {
    const o = outAt + i
    out[o] = scale * values[bytes[p]!]!
    out[o + 1] = scale * values[bytes[p + 1]!]!
    out[o + 2] = scale * values[bytes[p + 2]!]!
    out[o + 3] = scale * values[bytes[p + 3]!]!
  }
  for (; i < n; i++) out[outAt + i] = scale * values[bytes[p + (i & 3)]!]!
}

function decodeNibbles(
  bytes: Uint8Array,
  at: number,
  n: number,
  values: Float32Array,
  scale: number,
  out: Float32Array,
  outAt: number,
): void {
  let p = at
  let i = 0
  for (; i + 8 <= n; i += 8, p += 64) {
    for (let j = 0; j < 4; j++) {
      const byte = bytes[p + j]!
      out[outAt + i + j] = scale * values[byte & 15]!
      out[outAt + i + j + 4] = scale * values[byte >>> 4]!
    }
  }
  for (; i < n; i++) {
    const byte = bytes[p + (i & 3)]!
    out[outAt + i] = scale * values[(i & 4) === 0 ? byte & 15 : byte >>> 4]!
  }
}

function decodeNibblesMin(
  bytes: Uint8Array,
  at: number,
  n: number,
  values: Float32Array,
  scale: number,
  minimum: number,
  out: Float32Array,
  outAt: number,
): void {
  let p = at
  let i = 0
  for (; i + 8 <= n; i += 8, p += 64) {
    for (let j = 0; j < 4; j++) {
      const byte = bytes[p + j]!
      out[outAt + i + j] = Math.fround(scale * values[byte & 15]!) + minimum
      out[outAt + i + j + 4] = Math.fround(scale * values[byte >>> 4]!) + minimum
    }
  }
  for (; i < n; i++) {
    const byte = bytes[p + (i & 3)]!
    out[outAt + i] = Math.fround(scale * values[(i & 4) === 0 ? byte & 15 : byte >>> 4]!) + minimum
  }
}
