// Row panels read element by element, from the description of the layout alone: what the fast code is compared with.
import type { PanelEncoding } from '#sluice/quant/scheme.js'

export const SCHEMES = ['int8', 'int4', 'int4m', 'nf4', 'fp8_e4m3', 'fp8_e5m2'] as const

/** binary16 by its definition. */
function half(code: number): number {
  const sign = code & 0x8000 ? -1 : 1
  const exponent = (code >> 10) & 31
  const mantissa = code & 1023
  if (exponent === 31) return mantissa === 0 ? sign * Number.POSITIVE_INFINITY : Number.NaN
  return sign * (exponent === 0 ? mantissa * 2 ** -24 : (1024 + mantissa) * 2 ** (exponent - 25))
}

function fp8(code: number, mantissaBits: number, bias: number): number {
  const sign = code & 0x80 ? -1 : 1
  const exponent = (code & 0x7f) >> mantissaBits
  const mantissa = code & ((1 << mantissaBits) - 1)
  const unit = 2 ** -mantissaBits
  return sign * (exponent === 0 ? mantissa * unit * 2 ** (1 - bias) : (1 + mantissa * unit) * 2 ** (exponent - bias))
}

// QLoRA, appendix E.
const NF4 = [
  -1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635, -0.18477343022823334,
  -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224,
  0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0,
]

/** Value of element (row, col). */
export function panelValue(enc: PanelEncoding, bytes: Uint8Array, cols: number, row: number, col: number): number {
  const eight = enc.scheme === 'int8' || enc.scheme.startsWith('fp8')
  const codeBytes = 16 * enc.block * (eight ? 1 : 0.5)
  const scaleBytes = enc.scale === 'f16' ? 2 : 4
  const blockBytes = codeBytes + 16 * scaleBytes * (enc.scheme === 'int4m' ? 2 : 1)
  const blocksPerPanel = Math.ceil(cols / enc.block)
  const start = (Math.floor(row / 16) * blocksPerPanel + Math.floor(col / enc.block)) * blockBytes
  const lane = row % 16
  const c = col % enc.block
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength)
  const stored = (at: number) => (enc.scale === 'f16' ? half(view.getUint16(at, true)) : view.getFloat32(at, true))
  const scale = Math.fround(stored(start + codeBytes + lane * scaleBytes) * 2 ** enc.exponent)
  let code: number
  if (eight) code = bytes[start + Math.floor(c / 4) * 64 + lane * 4 + (c % 4)]!
  else {
    const byte = bytes[start + Math.floor(c / 8) * 64 + lane * 4 + (c % 4)]!
    code = c % 8 < 4 ? byte & 15 : byte >> 4
  }
  switch (enc.scheme) {
    case 'int8':
      return Math.fround(scale * (code > 127 ? code - 256 : code))
    case 'int4':
      return Math.fround(scale * (code - 8))
    case 'int4m': {
      const minimum = Math.fround(stored(start + codeBytes + 16 * scaleBytes + lane * scaleBytes) * 2 ** enc.exponent)
      return Math.fround(Math.fround(scale * code) + minimum)
    }
    case 'nf4':
      return Math.fround(scale * Math.fround(NF4[code]!))
    case 'fp8_e4m3':
      return (code & 0x7f) === 0x7f ? Number.NaN : Math.fround(scale * fp8(code, 3, 7))
    case 'fp8_e5m2':
      if ((code & 0x7f) > 0x7c) return Number.NaN
      return Math.fround(
        scale * ((code & 0x7f) === 0x7c ? Number.POSITIVE_INFINITY * (code & 0x80 ? -1 : 1) : fp8(code, 2, 15)),
      )
  }
}
