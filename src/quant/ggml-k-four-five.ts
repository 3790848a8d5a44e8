// ggml Q4_K and Q5_K: 256 columns, a sub-scale s and a sub-minimum m for every 32. value = (d·s)·q - (dmin·m)
//
// float16 d, float16 dmin, 12 bytes of sub-scales and -minima (6 bits each), [Q5_K: 32 bytes of fifth bits (column 32k + i: bit k of
// byte i)], 128 bytes of nibbles: byte 32h + i holds columns 64h + i (low) and 64h + 32 + i (high), h = 0…3.
// Sub-scale j < 4: low 6 bits of byte j; sub-minimum: low 6 bits of byte j + 4. For j ≥ 4: low 4 bits in the low (scale) or high (minimum)
// nibble of byte j + 4, high 2 bits at the top of byte j - 4 (scale) or j (minimum).
import { type BlockNumbers, f16, fourBytes, nibbles32, type PackedBlock } from './ggml-packed.ts'

function subScales(view: DataView, at: number, { scales, minima }: BlockNumbers, bigEndian: boolean): void {
  const d = f16(view, at, bigEndian)
  const dmin = f16(view, at + 2, bigEndian)
  const p = at + 4
  for (let j = 0; j < 4; j++) {
    const a = view.getUint8(p + j)
    const b = view.getUint8(p + 4 + j)
    const c = view.getUint8(p + 8 + j)
    scales[j] = d * (a & 63)
    minima[j] = -(dmin * (b & 63))
    scales[j + 4] = d * ((c & 15) | ((a >>> 6) << 4))
    minima[j + 4] = -(dmin * ((c >>> 4) | ((b >>> 6) << 4)))
  }
}

function nibbles(view: DataView, at: number, words: Int32Array): void {
  for (let h = 0; h < 4; h++) nibbles32(view, at + 32 * h, words, 64 * h)
}

export const Q4_K: PackedBlock = {
  type: 'Q4_K',
  columns: 256,
  bytes: 144,
  group: 32,
  minima: true,
  unpack(view, at, out, bigEndian) {
    subScales(view, at, out, bigEndian)
    nibbles(view, at + 16, out.words)
  },
}

export const Q5_K: PackedBlock = {
  type: 'Q5_K',
  columns: 256,
  bytes: 176,
  group: 32,
  minima: true,
  unpack(view, at, out, bigEndian) {
    subScales(view, at, out, bigEndian)
    const { words } = out
    nibbles(view, at + 48, words)
    for (let i = 0; i < 8; i++) {
      const fifths = fourBytes(view, at + 16 + 4 * i)
      for (let k = 0; k < 8; k++) words[8 * k + i] = words[8 * k + i]! | (((fifths >>> k) & 0x01010101) << 4)
    }
  },
}
