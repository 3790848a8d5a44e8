// ggml IQ1_S and IQ1_M: 256 columns; eight columns at a time are a point of a grid of -1, 0 and 1, all moved by 1/8 up or down.
//   value = (d·(2s + 1))·(number ± 1/8); here the code is 8·number ± 1 and the scale an eighth.
//
// IQ1_S, 50 bytes: float16 d, 32 bytes of point numbers, 8 fields of 16 bits, one for 32 columns: high bits of four point numbers (3 each),
// s at bit 12, bit 15 set: moved down.
// IQ1_M, 56 bytes: 32 bytes of point numbers, 16 bytes with a nibble for each (3 high bits, then 1: moved down), 4 fields of 16 bits: four s of 3
// bits, one for 16 columns, and four bits of d, lowest first.
import { iqGrid } from './ggml-iq-grids.ts'
import { f16, type PackedBlock } from './ggml-packed.ts'
import { halfTable } from './half.ts'

function point(points: Int8Array, number: number, moved: number, codes: Int8Array, to: number): void {
  for (let j = 0; j < 8; j++) codes[to + j] = 8 * points[number * 8 + j]! + moved
}

export const IQ1_S: PackedBlock = {
  type: 'IQ1_S',
  columns: 256,
  bytes: 50,
  group: 32,
  minima: false,
  unpack(view, at, { codes, scales }, bigEndian) {
    const { points } = iqGrid('IQ1_S')
    const d = f16(view, at, bigEndian) / 8
    for (let g = 0; g < 8; g++) {
      const field = view.getUint16(at + 34 + 2 * g, !bigEndian)
      scales[g] = d * (2 * ((field >>> 12) & 7) + 1)
      const moved = (field & 0x8000) === 0 ? 1 : -1
      for (let l = 0; l < 4; l++)
        point(
          points,
          view.getUint8(at + 2 + 4 * g + l) | (((field >>> (3 * l)) & 7) << 8),
          moved,
          codes,
          32 * g + 8 * l,
        )
    }
  },
}

export const IQ1_M: PackedBlock = {
  type: 'IQ1_M',
  columns: 256,
  bytes: 56,
  group: 16,
  minima: false,
  unpack(view, at, { codes, scales }, bigEndian) {
    const { points } = iqGrid('IQ1_S')
    let dBits = 0
    for (let f = 0; f < 4; f++) dBits |= (view.getUint16(at + 48 + 2 * f, !bigEndian) >>> 12) << (4 * f)
    const d = halfTable()[dBits]! / 8
    for (let g = 0; g < 16; g++) {
      const field = view.getUint16(at + 48 + 2 * (g >> 2), !bigEndian)
      scales[g] = d * (2 * ((field >>> (3 * (g & 3))) & 7) + 1)
    }
    for (let l = 0; l < 32; l++) {
      const nibble = (view.getUint8(at + 32 + (l >> 1)) >>> (4 * (l & 1))) & 15
      point(points, view.getUint8(at + l) | ((nibble & 7) << 8), (nibble & 8) === 0 ? 1 : -1, codes, 8 * l)
    }
  },
}
