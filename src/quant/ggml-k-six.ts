// ggml Q6_K: 256 columns in 210 bytes, a signed sub-scale s for every 16. value = (d·s)·(q - 32)
//
// 128 bytes of low nibbles, 64 bytes of high bit pairs, 16 signed sub-scales, float16 d. In half h (0, 1), with i < 32: nibble byte
// 64h + i holds columns 128h + i (low) and 128h + 64 + i (high), byte 64h + 32 + i columns 128h + 32 + i and 128h + 96 + i; the pairs of
// columns 128h + 32k + i are bits 2k of byte 128 + 32h + i.
import { f16, fourBytes, type PackedBlock } from './ggml-packed.ts'

export const Q6_K: PackedBlock = {
  type: 'Q6_K',
  columns: 256,
  bytes: 210,
  group: 16,
  minima: false,
  unpack(view, at, { words, scales }, bigEndian) {
    const d = f16(view, at + 208, bigEndian)
    for (let g = 0; g < 16; g++) scales[g] = d * view.getInt8(at + 192 + g)
    for (let h = 0; h < 2; h++)
      for (let i = 0; i < 8; i++) {
        const a = fourBytes(view, at + 64 * h + 4 * i)
        const b = fourBytes(view, at + 64 * h + 32 + 4 * i)
        const pairs = fourBytes(view, at + 128 + 32 * h + 4 * i)
        const w = 32 * h + i
        words[w] = less32((a & 0x0f0f0f0f) | ((pairs & 0x03030303) << 4))
        words[w + 8] = less32((b & 0x0f0f0f0f) | ((pairs & 0x0c0c0c0c) << 2))
        words[w + 16] = less32(((a >>> 4) & 0x0f0f0f0f) | (pairs & 0x30303030))
        words[w + 24] = less32(((b >>> 4) & 0x0f0f0f0f) | ((pairs >>> 2) & 0x30303030))
      }
  },
}

/** Four numbers 0…63, each less 32, as signed bytes: flip bit 5, then copy it upwards where it is set. */
function less32(four: number): number {
  const flipped = four ^ 0x20202020
  const negative = flipped & 0x20202020
  return flipped | (negative << 1) | (negative << 2)
}
