// ggml Q2_K and Q3_K: 256 columns, a sub-scale for every 16.
//
// Codes of 2 bits: byte 32h + i (h = 0, 1; i < 32) holds columns 128h + 32k + i at bits 2k, k = 0…3.
// Q2_K, 84 bytes: 16 sub-scales (low nibble scale s, high nibble minimum m), 64 bytes of codes, float16 d, float16 dmin.
//   value = (d·s)·q - (dmin·m)
// Q3_K, 110 bytes: 32 bytes of third bits (column 32k + i: bit k of byte i), 64 bytes of codes, 12 bytes of 16 sub-scales of 6 bits,
// float16 d. value = (d·(s - 32))·q, where q is the 2-bit code, less 4 if the third bit is clear.
//   Sub-scale i: low 4 bits in byte i & 7 (low nibble for i < 8, else high), high 2 bits in byte 8 + (i & 3) at bits 2·(i >> 2).
import { f16, type PackedBlock } from './ggml-packed.ts'

export const Q2_K: PackedBlock = {
  type: 'Q2_K',
  columns: 256,
  bytes: 84,
  group: 16,
  minima: true,
  unpack(bytes, at, { codes, scales, minima }, bigEndian) {
    const d = f16(bytes, at + 80, bigEndian)
    const dmin = f16(bytes, at + 82, bigEndian)
    for (let g = 0; g < 16; g++) {
      const byte = bytes[at + g]!
      scales[g] = d * (byte & 15)
      minima[g] = -(dmin * (byte >>> 4))
    }
    twoBits(bytes, at + 16, codes)
  },
}

export const Q3_K: PackedBlock = {
  type: 'Q3_K',
  columns: 256,
  bytes: 110,
  group: 16,
  minima: false,
  unpack(bytes, at, { codes, scales }, bigEndian) {
    const d = f16(bytes, at + 108, bigEndian)
    for (let g = 0; g < 16; g++) {
      const low = (bytes[at + 96 + (g & 7)]! >>> (g < 8 ? 0 : 4)) & 15
      const high = (bytes[at + 104 + (g & 3)]! >>> (2 * (g >> 2))) & 3
      scales[g] = d * ((low | (high << 4)) - 32)
    }
    twoBits(bytes, at + 32, codes)
    for (let c = 0; c < 256; c++) if (((bytes[at + (c & 31)]! >>> (c >> 5)) & 1) === 0) codes[c] = codes[c]! - 4
  },
}

function twoBits(bytes: Uint8Array, at: number, codes: Int8Array): void {
  for (let h = 0; h < 2; h++)
    for (let i = 0; i < 32; i++) {
      const byte = bytes[at + 32 * h + i]!
      for (let k = 0; k < 4; k++) codes[128 * h + 32 * k + i] = (byte >>> (2 * k)) & 3
    }
}
