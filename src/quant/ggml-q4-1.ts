// ggml Q4_1: 32 columns in 20 bytes, float16 scale d, float16 minimum m, then 16 bytes; byte j holds column j in its low and
// column j+16 in its high nibble. value = d·q + m.
import { f16, nibbles16, type PackedBlock } from './ggml-packed.ts'

export const Q4_1: PackedBlock = {
  type: 'Q4_1',
  columns: 32,
  bytes: 20,
  group: 32,
  minima: true,
  unpack(view, at, { words, scales, minima }, bigEndian) {
    scales[0] = f16(view, at, bigEndian)
    minima[0] = f16(view, at + 2, bigEndian)
    nibbles16(view, at + 4, words, 0)
  },
}
