// ggml Q6_K: 256 columns in 210 bytes, a signed sub-scale s for every 16. value = (d·s)·(q - 32)
//
// 128 bytes of low nibbles, 64 bytes of high bit pairs, 16 signed sub-scales, float16 d. In half h (0, 1), with i < 32: nibble byte
// 64h + i holds columns 128h + i (low) and 128h + 64 + i (high), byte 64h + 32 + i columns 128h + 32 + i and 128h + 96 + i; the pairs of
// columns 128h + 32k + i are bits 2k of byte 128 + 32h + i.
import { f16, type PackedBlock } from './ggml-packed.ts'

export const Q6_K: PackedBlock = {
  type: 'Q6_K',
  columns: 256,
  bytes: 210,
  group: 16,
  minima: false,
  unpack(bytes, at, { codes, scales }, bigEndian) {
    const d = f16(bytes, at + 208, bigEndian)
    for (let g = 0; g < 16; g++) scales[g] = d * ((bytes[at + 192 + g]! << 24) >> 24)
    for (let h = 0; h < 2; h++)
      for (let i = 0; i < 32; i++) {
        const a = bytes[at + 64 * h + i]!
        const b = bytes[at + 64 * h + 32 + i]!
        const pairs = bytes[at + 128 + 32 * h + i]!
        const c = 128 * h + i
        codes[c] = ((a & 15) | ((pairs & 3) << 4)) - 32
        codes[c + 32] = ((b & 15) | (((pairs >>> 2) & 3) << 4)) - 32
        codes[c + 64] = ((a >>> 4) | (((pairs >>> 4) & 3) << 4)) - 32
        codes[c + 96] = ((b >>> 4) | ((pairs >>> 6) << 4)) - 32
      }
  },
}
