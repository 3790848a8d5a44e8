// ggml Q5_0 and Q5_1: 32 columns; float16 scale d (Q5_1: and float16 minimum m), a 32-bit field with the fifth bit of column c at
// bit c, then 16 bytes of nibbles as in Q4_0. Q5_0: value = d·(q - 16). Q5_1: value = d·q + m.
import { f16, nibbles16, type PackedBlock } from './ggml-packed.ts'

export const Q5_0: PackedBlock = {
  type: 'Q5_0',
  columns: 32,
  bytes: 22,
  group: 32,
  minima: false,
  unpack(view, at, { codes, words, scales }, bigEndian) {
    scales[0] = f16(view, at, bigEndian)
    const fifth = view.getUint32(at + 2, !bigEndian)
    nibbles16(view, at + 6, words, 0)
    for (let c = 0; c < 32; c++) codes[c] = codes[c]! + ((fifth >>> c) & 1) * 16 - 16
  },
}

export const Q5_1: PackedBlock = {
  type: 'Q5_1',
  columns: 32,
  bytes: 24,
  group: 32,
  minima: true,
  unpack(view, at, { codes, words, scales, minima }, bigEndian) {
    scales[0] = f16(view, at, bigEndian)
    minima[0] = f16(view, at + 2, bigEndian)
    const fifth = view.getUint32(at + 4, !bigEndian)
    nibbles16(view, at + 8, words, 0)
    for (let c = 0; c < 32; c++) codes[c] = codes[c]! + ((fifth >>> c) & 1) * 16
  },
}
