// ggml Q4_K and Q5_K: 256 columns, a sub-scale s and a sub-minimum m for every 32. value = (d·s)·q - (dmin·m)
//
// float16 d, float16 dmin, 12 bytes of sub-scales and -minima (6 bits each), [Q5_K: 32 bytes of fifth bits (column 32k + i: bit k of
// byte i)], 128 bytes of nibbles: byte 32h + i holds columns 64h + i (low) and 64h + 32 + i (high), h = 0…3.
// Sub-scale j < 4: low 6 bits of byte j; sub-minimum: low 6 bits of byte j + 4. For j ≥ 4: low 4 bits in the low (scale) or high (minimum)
// nibble of byte j + 4, high 2 bits at the top of byte j - 4 (scale) or j (minimum).
import { type BlockNumbers, f16, type PackedBlock } from './ggml-packed.ts'

function subScales(bytes: Uint8Array, at: number, { scales, minima }: BlockNumbers, bigEndian: boolean): void {
  const d = f16(bytes, at, bigEndian)
  const dmin = f16(bytes, at + 2, bigEndian)
  const p = at + 4
  for (let j = 0; j < 4; j++) {
    const a = bytes[p + j]!
    const b = bytes[p + 4 + j]!
    const c = bytes[p + 8 + j]!
    scales[j] = d * (a & 63)
    minima[j] = -(dmin * (b & 63))
    scales[j + 4] = d * ((c & 15) | ((a >>> 6) << 4))
    minima[j + 4] = -(dmin * ((c >>> 4) | ((b >>> 6) << 4)))
  }
}

function nibbles(bytes: Uint8Array, at: number, codes: Int8Array): void {
  for (let h = 0; h < 4; h++)
    for (let i = 0; i < 32; i++) {
      const byte = bytes[at + 32 * h + i]!
      codes[64 * h + i] = byte & 15
      codes[64 * h + 32 + i] = byte >>> 4
    }
}

export const Q4_K: PackedBlock = {
  type: 'Q4_K',
  columns: 256,
  bytes: 144,
  group: 32,
  minima: true,
  unpack(bytes, at, out, bigEndian) {
    subScales(bytes, at, out, bigEndian)
    nibbles(bytes, at + 16, out.codes)
  },
}

export const Q5_K: PackedBlock = {
  type: 'Q5_K',
  columns: 256,
  bytes: 176,
  group: 32,
  minima: true,
  unpack(bytes, at, out, bigEndian) {
    subScales(bytes, at, out, bigEndian)
    const { codes } = out
    nibbles(bytes, at + 48, codes)
    for (let i = 0; i < 32; i++) {
      const fifth = bytes[at + 16 + i]!
      for (let k = 0; k < 8; k++) if (((fifth >>> k) & 1) === 1) codes[32 * k + i] = codes[32 * k + i]! + 16
    }
  },
}
