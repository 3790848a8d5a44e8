// Geometry of row panels: where codes, scales and minima lie (docs/FORMAT.md, "Row panels").
//
// A panel is 16 rows; a block is 16 rows × G columns (G = 32 or 64): codes, then 16 scales in row order, then 16 minima if the
// scheme has them. The blocks of a panel follow each other along the columns, the panels along the rows. Codes come in chunks
// of 64 bytes, in which bytes 4r…4r+3 belong to row r:
//   8 bits: chunk c covers columns 4c…4c+3, byte 4r+j = column 4c+j
//   4 bits: chunk c covers columns 8c…8c+7, byte 4r+j = column 8c+j (low nibble) and column 8c+4+j (high nibble)
//
// Value of a code, every step rounded to float32:
//   s = scale·2^exponent    m = minimum·2^exponent
//   value = s·codeValue[code]            (schemes without minima)
//   value = (s·codeValue[code]) + m      (schemes with minima)
import { ModelFormatError } from '../base/errors.ts'
import { mulSafe } from '../base/shape.ts'
import { matrixElements } from './bounds.ts'
import { E4M3, E5M2 } from './fp8.ts'
import { NF4 } from './nf4.ts'
import { PANEL_ROWS, type PanelEncoding, type PanelSchemeName } from './scheme.ts'

export interface PanelScheme {
  readonly bits: 4 | 8
  readonly minima: boolean
  /** A code whose value is 0 (for `int4m`, with a minimum of 0). Fills missing rows and columns. */
  readonly zeroCode: number
  /** Number each code stands for, before the scale. */
  readonly codeValue: Float32Array
}

const INT8 = Float32Array.from({ length: 256 }, (_, code) => (code << 24) >> 24)
const NIBBLE = Float32Array.from({ length: 16 }, (_, code) => code)

export const PANEL_SCHEMES: Readonly<Record<PanelSchemeName, PanelScheme>> = {
  int8: { bits: 8, minima: false, zeroCode: 0, codeValue: INT8 },
  int4: { bits: 4, minima: false, zeroCode: 8, codeValue: NIBBLE.map((code) => code - 8) },
  int4m: { bits: 4, minima: true, zeroCode: 0, codeValue: NIBBLE },
  nf4: { bits: 4, minima: false, zeroCode: 7, codeValue: NF4 },
  fp8_e4m3: { bits: 8, minima: false, zeroCode: 0, codeValue: E4M3.values },
  fp8_e5m2: { bits: 8, minima: false, zeroCode: 0, codeValue: E5M2.values },
}

/** Everything the loops need to know about an encoding. Bytes, counted from the start of a block. */
export interface PanelLayout {
  readonly name: string
  readonly scheme: PanelScheme
  readonly block: number
  readonly scaleBytes: 2 | 4
  /** 2^exponent. */
  readonly multiplier: number
  /** Where scales and minima begin. */
  readonly scalesAt: number
  readonly minimaAt: number
  readonly blockBytes: number
}

/** Checks an encoding and works out its layout. Throws QUANT_UNSUPPORTED naming the parameter that is not known. */
export function panelLayout(enc: PanelEncoding): PanelLayout {
  if (!Object.hasOwn(PANEL_SCHEMES, enc.scheme)) unsupported('scheme', enc.scheme, Object.keys(PANEL_SCHEMES))
  if (enc.block !== 32 && enc.block !== 64) unsupported('block', enc.block, [32, 64])
  if (enc.scale !== 'f16' && enc.scale !== 'f32') unsupported('scale', enc.scale, ['f16', 'f32'])
  if (!Number.isInteger(enc.exponent) || enc.exponent < -126 || enc.exponent > 127)
    unsupported('exponent', enc.exponent, 'an integer from -126 to 127')
  const scheme = PANEL_SCHEMES[enc.scheme]
  const scaleBytes = enc.scale === 'f16' ? 2 : 4
  const scalesAt = (PANEL_ROWS * enc.block * scheme.bits) / 8
  const minimaAt = scalesAt + PANEL_ROWS * scaleBytes
  return {
    name: `${enc.scheme} block ${enc.block}`,
    scheme,
    block: enc.block,
    scaleBytes,
    multiplier: 2 ** enc.exponent,
    scalesAt,
    minimaAt,
    blockBytes: scheme.minima ? minimaAt + PANEL_ROWS * scaleBytes : minimaAt,
  }
}

function unsupported(parameter: string, got: unknown, expected: unknown): never {
  throw new ModelFormatError('QUANT_UNSUPPORTED', {
    what: `panel ${parameter} is not known`,
    expected,
    got,
    details: { parameter },
  })
}

/** Bytes of a block (16 rows × G columns). */
export function panelBlockBytes(enc: PanelEncoding): number {
  return panelLayout(enc).blockBytes
}

/** Bytes of a panel (16 rows, all columns). */
export function panelBytes(enc: PanelEncoding, cols: number): number {
  return layoutBytes(panelLayout(enc), PANEL_ROWS, cols)
}

/** Bytes that `rows` rows of `cols` columns take: whole panels, whole blocks. */
export function layoutBytes(layout: PanelLayout, rows: number, cols: number): number {
  matrixElements(rows, cols, layout.name)
  const blocks = mulSafe(Math.ceil(rows / PANEL_ROWS), Math.ceil(cols / layout.block), layout.name)
  return mulSafe(blocks, layout.blockBytes, layout.name)
}
