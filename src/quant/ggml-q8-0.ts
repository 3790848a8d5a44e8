// ggml Q8_0: 32 columns in 34 bytes, float16 scale d then 32 signed bytes. value = d·q.
import { findNonFinite } from './bounds.ts'
import type { GgmlBlock } from './ggml.ts'
import { floatToHalf, halfTable } from './half.ts'

const COLUMNS = 32
const BYTES = 34

export const Q8_0: GgmlBlock = {
  type: 'Q8_0',
  columns: COLUMNS,
  bytes: BYTES,

  decode(bytes, blocks, out, bigEndian) {
    const halves = halfTable()
    const low = bigEndian ? 1 : 0
    for (let b = 0, p = 0, o = 0; b < blocks; b++, p += BYTES, o += COLUMNS) {
      const d = halves[bytes[p + low]! | (bytes[p + 1 - low]! << 8)]!
      for (let i = 0; i < COLUMNS; i++) out[o + i] = d * ((bytes[p + 2 + i]! << 24) >> 24)
    }
  },

  // d = absmax/127 in float32; codes come from x·(1/d) with the unrounded d, halves away from zero.
  encode(values, blocks, out, bigEndian) {
    const fround = Math.fround
    const low = bigEndian ? 1 : 0
    for (let b = 0, p = 0, o = 0; b < blocks; b++, p += BYTES, o += COLUMNS) {
      const bad = findNonFinite(values, o, o + COLUMNS)
      if (bad >= 0) return bad
      let max = 0
      for (let i = o; i < o + COLUMNS; i++) {
        const a = Math.abs(values[i]!)
        if (a > max) max = a
      }
      const d = fround(max / 127)
      const half = floatToHalf(d)
      const inverse = d === 0 ? 0 : fround(1 / d)
      if (half >= 0x7c00 || inverse === Number.POSITIVE_INFINITY) return o
      out[p + low] = half
      out[p + 1 - low] = half >>> 8
      for (let i = 0; i < COLUMNS; i++) {
        const x = fround(values[o + i]! * inverse)
        out[p + 2 + i] = x < 0 ? -Math.floor(0.5 - x) : Math.floor(x + 0.5)
      }
    }
    return -1
  },
}
