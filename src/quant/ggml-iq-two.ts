// ggml IQ2_XXS, IQ2_XS and IQ2_S: 256 columns; eight columns at a time are a point of a grid with signs. value = (d·(2s + 1)/8)·±number
//
// IQ2_XXS, 66 bytes: float16 d; for every 32 columns two 32-bit fields: four point numbers of 8 bits, then four sign codes of 7 bits and
// s at bit 28.
// IQ2_XS, 74 bytes: float16 d; 32 fields of 16 bits (point number 9 bits, sign code 7 bits); 8 bytes of s, a nibble for 16 columns.
// IQ2_S, 82 bytes: float16 d; 32 bytes of point numbers, 32 bytes of signs, 8 bytes of high bits of the point numbers (two for each), 8 bytes
// of s, a nibble for 16 columns.
// A sign code of 7 bits has an eighth that makes the number of set bits even; bit i negates column i.
import { iqGrid } from './ggml-iq-grids.ts'
import { f16, type PackedBlock } from './ggml-packed.ts'

/** All eight signs of a code of seven. */
export const SIGNS = Uint8Array.from({ length: 128 }, (_, code) => {
  let odd = 0
  for (let bits = code; bits !== 0; bits >>= 1) odd ^= bits & 1
  return code | (odd << 7)
})

/** Writes `width` numbers of a point at codes[to], negated where `signs` has a bit. */
export function signedPoint(
  points: Int8Array,
  point: number,
  width: number,
  signs: number,
  codes: Int8Array,
  to: number,
): void {
  for (let j = 0; j < width; j++) {
    const number = points[point * width + j]!
    codes[to + j] = (signs >> j) & 1 ? -number : number
  }
}

export const IQ2_XXS: PackedBlock = {
  type: 'IQ2_XXS',
  columns: 256,
  bytes: 66,
  group: 32,
  minima: false,
  unpack(view, at, { codes, scales }, bigEndian) {
    const { points } = iqGrid('IQ2_XXS')
    const d = f16(view, at, bigEndian) / 8
    for (let g = 0; g < 8; g++) {
      const numbers = view.getUint32(at + 2 + 8 * g, !bigEndian)
      const rest = view.getUint32(at + 6 + 8 * g, !bigEndian)
      scales[g] = d * (2 * (rest >>> 28) + 1)
      for (let l = 0; l < 4; l++) {
        const signs = SIGNS[(rest >>> (7 * l)) & 127]!
        signedPoint(points, (numbers >>> (8 * l)) & 255, 8, signs, codes, 32 * g + 8 * l)
      }
    }
  },
}

export const IQ2_XS: PackedBlock = {
  type: 'IQ2_XS',
  columns: 256,
  bytes: 74,
  group: 16,
  minima: false,
  unpack(view, at, { codes, scales }, bigEndian) {
    const { points } = iqGrid('IQ2_XS')
    nibbleScales(view, at + 66, f16(view, at, bigEndian) / 8, scales)
    for (let l = 0; l < 32; l++) {
      const field = view.getUint16(at + 2 + 2 * l, !bigEndian)
      signedPoint(points, field & 511, 8, SIGNS[field >>> 9]!, codes, 8 * l)
    }
  },
}

export const IQ2_S: PackedBlock = {
  type: 'IQ2_S',
  columns: 256,
  bytes: 82,
  group: 16,
  minima: false,
  unpack(view, at, { codes, scales }, bigEndian) {
    const { points } = iqGrid('IQ2_S')
    nibbleScales(view, at + 74, f16(view, at, bigEndian) / 8, scales)
    for (let l = 0; l < 32; l++) {
      const high = (view.getUint8(at + 66 + (l >> 2)) >>> (2 * (l & 3))) & 3
      signedPoint(points, view.getUint8(at + 2 + l) | (high << 8), 8, view.getUint8(at + 34 + l), codes, 8 * l)
    }
  },
}

/** 16 scales d·(2s + 1) from 8 bytes, low nibble first. */
function nibbleScales(view: DataView, at: number, d: number, scales: Float32Array): void {
  for (let g = 0; g < 16; g++) scales[g] = d * (2 * ((view.getUint8(at + (g >> 1)) >>> (4 * (g & 1))) & 15) + 1)
}
