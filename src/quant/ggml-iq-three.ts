// ggml IQ3_XXS and IQ3_S: 256 columns; four columns at a time are a point of a grid with signs.
//
// IQ3_XXS, 98 bytes: float16 d, 64 bytes of point numbers, 8 fields of 32 bits (four sign codes of 7 bits, s at bit 28), one for 32 columns.
//   value = (d·(2s + 1)/4)·±number
// IQ3_S, 110 bytes: float16 d, 64 bytes of point numbers, 8 bytes with their ninth bits, 32 bytes of signs, 4 bytes of s, a nibble for 32
// columns. value = (d·(2s + 1))·±number
import { iqGrid } from './ggml-iq-grids.ts'
import { SIGNS, signedPoint } from './ggml-iq-two.ts'
import { f16, type PackedBlock } from './ggml-packed.ts'

export const IQ3_XXS: PackedBlock = {
  type: 'IQ3_XXS',
  columns: 256,
  bytes: 98,
  group: 32,
  minima: false,
  unpack(view, at, { codes, scales }, bigEndian) {
    const { points } = iqGrid('IQ3_XXS')
    const d = f16(view, at, bigEndian) / 4
    for (let g = 0; g < 8; g++) {
      const field = view.getUint32(at + 66 + 4 * g, !bigEndian)
      scales[g] = d * (2 * (field >>> 28) + 1)
      for (let l = 0; l < 8; l++) {
        const signs = SIGNS[(field >>> (7 * (l >> 1))) & 127]! >> (4 * (l & 1))
        signedPoint(points, view.getUint8(at + 2 + 8 * g + l), 4, signs, codes, 32 * g + 4 * l)
      }
    }
  },
}

export const IQ3_S: PackedBlock = {
  type: 'IQ3_S',
  columns: 256,
  bytes: 110,
  group: 32,
  minima: false,
  unpack(view, at, { codes, scales }, bigEndian) {
    const { points } = iqGrid('IQ3_S')
    const d = f16(view, at, bigEndian)
    for (let g = 0; g < 8; g++) {
      scales[g] = d * (2 * ((view.getUint8(at + 106 + (g >> 1)) >>> (4 * (g & 1))) & 15) + 1)
      const ninth = view.getUint8(at + 66 + g)
      for (let l = 0; l < 8; l++) {
        const signs = view.getUint8(at + 74 + 4 * g + (l >> 1)) >> (4 * (l & 1))
        const point = view.getUint8(at + 2 + 8 * g + l) | (((ninth >>> l) & 1) << 8)
        signedPoint(points, point, 4, signs, codes, 32 * g + 4 * l)
      }
    }
  },
}
