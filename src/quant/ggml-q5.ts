// ggml Q5_0 and Q5_1: 32 columns; float16 scale d (Q5_1: and float16 minimum m), a 32-bit field with the fifth bit of column c at
// bit c, then 16 bytes of nibbles as in Q4_0. Q5_0: value = d·(q - 16). Q5_1: value = d·q + m.
import { f16, type PackedBlock, u32 } from './ggml-packed.ts'

/** The field of fifth bits at `at`, nibbles behind it. */
function fiveBits(bytes: Uint8Array, at: number, codes: Int8Array, offset: number, bigEndian: boolean): void {
  const fifth = u32(bytes, at, bigEndian)
  for (let j = 0; j < 16; j++) {
    const byte = bytes[at + 4 + j]!
    codes[j] = ((byte & 15) | (((fifth >>> j) & 1) << 4)) - offset
    codes[j + 16] = ((byte >>> 4) | (((fifth >>> (j + 16)) & 1) << 4)) - offset
  }
}

export const Q5_0: PackedBlock = {
  type: 'Q5_0',
  columns: 32,
  bytes: 22,
  group: 32,
  minima: false,
  unpack(bytes, at, { codes, scales }, bigEndian) {
    scales[0] = f16(bytes, at, bigEndian)
    fiveBits(bytes, at + 2, codes, 16, bigEndian)
  },
}

export const Q5_1: PackedBlock = {
  type: 'Q5_1',
  columns: 32,
  bytes: 24,
  group: 32,
  minima: true,
  unpack(bytes, at, { codes, scales, minima }, bigEndian) {
    scales[0] = f16(bytes, at, bigEndian)
    minima[0] = f16(bytes, at + 2, bigEndian)
    fiveBits(bytes, at + 4, codes, 0, bigEndian)
  },
}
