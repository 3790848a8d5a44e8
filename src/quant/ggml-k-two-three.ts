// ggml Q2_K and Q3_K: 256 columns, a sub-scale for every 16.
//
// Codes of 2 bits: byte 32h + i (h = 0, 1; i < 32) holds columns 128h + 32k + i at bits 2k, k = 0…3.
// Q2_K, 84 bytes: 16 sub-scales (low nibble scale s, high nibble minimum m), 64 bytes of codes, float16 d, float16 dmin.
//   value = (d·s)·q - (dmin·m)
// Q3_K, 110 bytes: 32 bytes of third bits (column 32k + i: bit k of byte i), 64 bytes of codes, 12 bytes of 16 sub-scales of 6 bits,
// float16 d. value = (d·(s - 32))·q, where q is the 2-bit code, less 4 if the third bit is clear.
//   Sub-scale i: low 4 bits in byte i & 7 (low nibble for i < 8, else high), high 2 bits in byte 8 + (i & 3) at bits 2·(i >> 2).
import { f16, fourBytes, type PackedBlock } from './ggml-packed.ts'

export const Q2_K: PackedBlock = {
  type: 'Q2_K',
  columns: 256,
  bytes: 84,
  group: 16,
  minima: true,
  unpack(view, at, { words, scales, minima }, bigEndian) {
    const d = f16(view, at + 80, bigEndian)
    const dmin = f16(view, at + 82, bigEndian)
    for (let g = 0; g < 16; g++) {
      const byte = view.getUint8(at + g)
      scales[g] = d * (byte & 15)
      minima[g] = -(dmin * (byte >>> 4))
    }
    twoBits(view, at + 16, words)
  },
}

export const Q3_K: PackedBlock = {
  type: 'Q3_K',
  columns: 256,
  bytes: 110,
  group: 16,
  minima: false,
  unpack(view, at, { words, scales }, bigEndian) {
    const d = f16(view, at + 108, bigEndian)
    for (let g = 0; g < 16; g++) {
      const low = (view.getUint8(at + 96 + (g & 7)) >>> (g < 8 ? 0 : 4)) & 15
      const high = (view.getUint8(at + 104 + (g & 3)) >>> (2 * (g >> 2))) & 3
      scales[g] = d * ((low | (high << 4)) - 32)
    }
    twoBits(view, at + 32, words)
    for (let i = 0; i < 8; i++) {
      const thirds = fourBytes(view, at + 4 * i)
      for (let k = 0; k < 8; k++) {
        // A clear third bit: less 4, which for 0…3 sets all the bits above them.
        const clear = ~(thirds >>> k) & 0x01010101
        words[8 * k + i] = words[8 * k + i]! | (clear * 0xfc)
      }
    }
  },
}

function twoBits(view: DataView, at: number, words: Int32Array): void {
  for (let h = 0; h < 2; h++)
    for (let i = 0; i < 8; i++) {
      const four = fourBytes(view, at + 32 * h + 4 * i)
      for (let k = 0; k < 4; k++) words[32 * h + 8 * k + i] = (four >>> (2 * k)) & 0x03030303
    }
}
