// Mat-mul over int8 activations. Integer dot products are exact, so every kernel set gives the same bits here.
// Layout of quantized activations: quantizedStride in ../compute.ts.
import { roundUp } from '../../base/shape.ts'
import { blockBytes, quantizedStride } from '../compute.ts'
import { COMPUTE, type MatrixBlock } from '../kernels.ts'
import { codeBytes, readCodes, readIntegers, readScales } from './codes.ts'
import { halfToFactor, nearest } from './float.ts'
import { finish } from './matmul.ts'
import type { Views } from './views.ts'

const f = Math.fround

/** Blocks whose largest magnitude is below this become zero: 127 / amax would overflow. */
const SMALLEST_AMAX = 2 ** -120
const NF4_UNIT = f(1 / 32767)

/** scale = amax / 127, code = nearest(x · (127 / amax)). A block with an infinity or NaN gets a NaN or infinite scale and spoils its results visibly. */
export function quantize(
  v: Views,
  x: number,
  xStride: number,
  cols: number,
  block: number,
  tokens: number,
  out: number,
) {
  const n = roundUp(cols, block)
  const blocks = n / block
  const stride = quantizedStride(cols, block)
  for (let t = 0; t < tokens; t++) {
    const base = out + t * stride
    for (let b = 0; b < blocks; b++) {
      const xb = (x >>> 2) + t * xStride + b * block
      let amax = 0
      for (let c = 0; c < block; c++) amax = Math.max(amax, Math.abs(v.f32[xb + c]!))
      const usable = amax >= SMALLEST_AMAX
      const inverse = usable ? f(127 / amax) : 0
      let sum = 0
      for (let c = 0; c < block; c++) {
        const scaled = nearest(f(v.f32[xb + c]! * inverse))
        const code = Number.isNaN(scaled) ? 0 : Math.max(-127, Math.min(127, scaled))
        const column = b * block + c
        v.u8[base + column] = code
        v.data.setInt16(base + n + 2 * ((column & ~3) + PAIR_PLACE[column & 3]!), code, true)
        sum += code
      }
      const tail = base + 3 * n + 4 * b
      // A NaN fails the comparison above and still has to show.
      v.f32[tail >>> 2] = usable || Number.isNaN(amax) ? f(amax / 127) : 0
      v.i32[(tail >>> 2) + blocks] = sum
    }
  }
}

/** Where column 4k + i lies among the four 16-bit codes of its group: order (0, 2, 1, 3). */
const PAIR_PLACE = [0, 2, 1, 3]

/** sum += dot·(scale·xScale), dot exact in integers (fp8: float32 in column order); minima: sum += minimum·(xScale·Σcodes). */
export function matMulQ(
  v: Views,
  m: MatrixBlock,
  xq: number,
  y: number,
  yStride: number,
  tokens: number,
  accumulate: number,
  alpha: number,
): void {
  const g = m.block
  const blocks = Math.ceil(m.cols / g)
  const n = blocks * g
  const stride = quantizedStride(m.cols, g)
  const bytes = blockBytes(m)
  const scaleAt = codeBytes(m.encoding, g)
  const float8 = m.encoding === COMPUTE.fp8_e4m3 || m.encoding === COMPUTE.fp8_e5m2
  const codes = float8 ? new Float32Array(g * 16) : new Int32Array(g * 16)
  const scales = new Float32Array(16)
  const minima = new Float32Array(16)
  const sums = new Float32Array(tokens * 16)
  for (let panel = 0; panel * 16 < m.rows; panel++) {
    sums.fill(0)
    for (let b = 0; b < blocks; b++) {
      const at = m.address + (panel * blocks + b) * bytes
      if (codes instanceof Float32Array) readCodes(v, m.encoding, at, g, codes)
      else readIntegers(v, m.encoding, at, g, codes)
      readScales(v, at + scaleAt, m.scaleF32, halfToFactor, scales)
      const hasMinima = m.encoding === COMPUTE.int4m
      if (hasMinima) readScales(v, at + scaleAt + (bytes - scaleAt) / 2, m.scaleF32, halfToFactor, minima)
      for (let t = 0; t < tokens; t++) {
        const base = xq + t * stride
        const tail = (base + 3 * n + 4 * b) >>> 2
        const xScale = v.f32[tail]!
        const xSum = f(xScale * f(v.i32[tail + blocks]!))
        for (let r = 0; r < 16; r++) {
          let dot = 0
          for (let c = 0; c < g; c++) {
            const product = codes[c * 16 + r]! * v.i8[base + b * g + c]!
            dot = float8 ? f(dot + f(product)) : dot + product
          }
          let unit = f(scales[r]! * xScale)
          if (m.encoding === COMPUTE.nf4) unit = f(unit * NF4_UNIT)
          let sum = f(sums[t * 16 + r]! + f(f(dot) * unit))
          if (hasMinima) sum = f(sum + f(minima[r]! * xSum))
          sums[t * 16 + r] = sum
        }
      }
    }
    const rows = Math.min(16, m.rows - panel * 16)
    for (let t = 0; t < tokens; t++)
      for (let r = 0; r < rows; r++)
        finish(v, (y >>> 2) + t * yStride + panel * 16 + r, accumulate, alpha, f(sums[t * 16 + r]! * f(m.multiplier)))
  }
}
