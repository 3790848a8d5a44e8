// ggml IQ4_NL and IQ4_XS: four bits choose one of 16 numbers.
//
// IQ4_NL, 32 columns in 18 bytes: float16 d, then nibbles as in Q4_0. value = d·number[q]
// IQ4_XS, 256 columns in 136 bytes: float16 d, a 16-bit field with the two high bits of sub-scale j at 2j, 4 bytes with their low nibbles
// (sub-scale 2i low, 2i + 1 high), 128 bytes of nibbles: 16 for every 32 columns, as in IQ4_NL. value = (d·(s - 32))·number[q]
import { f16, type PackedBlock } from './ggml-packed.ts'

/** kvalues_iq4nl of ggml-common.h. */
const NUMBERS = Int8Array.of(-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)

function choose(view: DataView, at: number, codes: Int8Array, first: number): void {
  for (let j = 0; j < 16; j++) {
    const byte = view.getUint8(at + j)
    codes[first + j] = NUMBERS[byte & 15]!
    codes[first + 16 + j] = NUMBERS[byte >>> 4]!
  }
}

export const IQ4_NL: PackedBlock = {
  type: 'IQ4_NL',
  columns: 32,
  bytes: 18,
  group: 32,
  minima: false,
  unpack(view, at, { codes, scales }, bigEndian) {
    scales[0] = f16(view, at, bigEndian)
    choose(view, at + 2, codes, 0)
  },
}

export const IQ4_XS: PackedBlock = {
  type: 'IQ4_XS',
  columns: 256,
  bytes: 136,
  group: 32,
  minima: false,
  unpack(view, at, { codes, scales }, bigEndian) {
    const d = f16(view, at, bigEndian)
    const high = view.getUint16(at + 2, !bigEndian)
    for (let j = 0; j < 8; j++) {
      const low = (view.getUint8(at + 4 + (j >> 1)) >>> (4 * (j & 1))) & 15
      scales[j] = d * ((low | (((high >>> (2 * j)) & 3) << 4)) - 32)
      choose(view, at + 8 + 16 * j, codes, 32 * j)
    }
  },
}
