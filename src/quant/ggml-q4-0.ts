// ggml Q4_0: 32 columns in 18 bytes, float16 scale d then 16 bytes; byte j holds column j in its low and column j+16 in its
// high nibble. value = d·(q - 8); d may be negative.
import { findNonFinite } from './bounds.ts'
import type { GgmlBlock } from './ggml.ts'
import { floatToHalf, halfTable } from './half.ts'

const COLUMNS = 32
const BYTES = 18

export const Q4_0: GgmlBlock = {
  type: 'Q4_0',
  columns: COLUMNS,
  bytes: BYTES,

  decode(bytes, blocks, out, bigEndian) {
    const halves = halfTable()
    const low = bigEndian ? 1 : 0
    for (let b = 0, p = 0, o = 0; b < blocks; b++, p += BYTES, o += COLUMNS) {
      const d = halves[bytes[p + low]! | (bytes[p + 1 - low]! << 8)]!
      for (let j = 0; j < 16; j++) {
        const byte = bytes[p + 2 + j]!
        out[o + j] = d * ((byte & 15) - 8)
        out[o + j + 16] = d * ((byte >>> 4) - 8)
      }
    }
  },

  // d = v/-8 in float32, v the first value of largest magnitude; code = trunc(x·(1/d) + 8.5), at most 15.
  encode(values, blocks, out, bigEndian) {
    const fround = Math.fround
    const low = bigEndian ? 1 : 0
    for (let b = 0, p = 0, o = 0; b < blocks; b++, p += BYTES, o += COLUMNS) {
      const bad = findNonFinite(values, o, o + COLUMNS)
      if (bad >= 0) return bad
      let max = 0
      let v = 0
      for (let i = o; i < o + COLUMNS; i++) {
        const a = Math.abs(values[i]!)
        if (a > max) {
          max = a
          v = values[i]!
        }
      }
      const d = fround(v / -8)
      const half = floatToHalf(d)
      const inverse = d === 0 ? 0 : fround(1 / d)
      if ((half & 0x7fff) >= 0x7c00 || !Number.isFinite(inverse)) return o
      out[p + low] = half
      out[p + 1 - low] = half >>> 8
      for (let j = 0; j < 16; j++) {
        const a = Math.min(15, fround(fround(values[o + j]! * inverse) + 8.5) | 0)
        const c = Math.min(15, fround(fround(values[o + j + 16]! * inverse) + 8.5) | 0)
        out[p + 2 + j] = a | (c << 4)
      }
    }
    return -1
  },
}
