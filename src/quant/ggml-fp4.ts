// ggml's types of four-bit floats E2M1: MXFP4 (OCP microscaling, v1.0) and NVFP4. Codes here are twice the float's value, scales half.
//
// MXFP4, 32 columns in 17 bytes: a power of two (E8M0: 2^(e - 127)), then 16 bytes of nibbles as in Q4_0.
// NVFP4, 64 columns in 36 bytes: 4 scales (E4M3 without sign; 0x7f reads as 0), one for 16 columns each, then 32 bytes; byte 8s + j holds
// columns 16s + j (low) and 16s + 8 + j (high).
// ggml reads 0xff as 2^128 in MXFP4, and the top bit of an NVFP4 scale is not looked at.
import type { PackedBlock } from './ggml-packed.ts'

const E2M1 = Int8Array.of(0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12)

/** Half of each E4M3 scale: (1 + m/8)·2^(e - 7)/2; denormals m·2^-9/2. */
const HALF_E4M3 = Float32Array.from({ length: 256 }, (_, byte) => {
  if (byte === 0x7f) return 0
  const e = (byte >>> 3) & 15
  const m = byte & 7
  return e === 0 ? m * 2 ** -10 : (1 + m / 8) * 2 ** (e - 8)
})

export const MXFP4: PackedBlock = {
  type: 'MXFP4',
  columns: 32,
  bytes: 17,
  group: 32,
  minima: false,
  unpack(view, at, { codes, scales }) {
    scales[0] = 2 ** (view.getUint8(at) - 128)
    for (let j = 0; j < 16; j++) {
      const byte = view.getUint8(at + 1 + j)
      codes[j] = E2M1[byte & 15]!
      codes[j + 16] = E2M1[byte >>> 4]!
    }
  },
}

export const NVFP4: PackedBlock = {
  type: 'NVFP4',
  columns: 64,
  bytes: 36,
  group: 16,
  minima: false,
  unpack(view, at, { codes, scales }) {
    for (let s = 0; s < 4; s++) {
      scales[s] = HALF_E4M3[view.getUint8(at + s)]!
      for (let j = 0; j < 8; j++) {
        const byte = view.getUint8(at + 4 + 8 * s + j)
        codes[16 * s + j] = E2M1[byte & 15]!
        codes[16 * s + 8 + j] = E2M1[byte >>> 4]!
      }
    }
  },
}
