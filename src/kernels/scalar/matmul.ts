// Mat-mul over float32 activations. Orders: docs/KERNELS.md, "Orders of addition".
import { blockBytes } from '../compute.ts'
import { COMPUTE, type ComputeId, type MatrixBlock } from '../kernels.ts'
import { codeBytes, readCodes, readScales } from './codes.ts'
import { bfloatToFloat, halfToFactor } from './float.ts'
import { sum4, sum8 } from './sum.ts'
import type { Views } from './views.ts'

const f = Math.fround

/** Element `i` of a plain row at `address`; `half` as in readScales. */
export function plainAt(
  v: Views,
  encoding: ComputeId,
  address: number,
  i: number,
  half: (bits: number) => number,
): number {
  if (encoding === COMPUTE.f32) return v.data.getFloat32(address + i * 4, true)
  const bits = v.data.getUint16(address + i * 2, true)
  return encoding === COMPUTE.f16 ? half(bits) : bfloatToFloat(bits)
}

/** y = alpha·sum, added to what is there when `accumulate` is 1. `index` in floats. */
export function finish(v: Views, index: number, accumulate: number, alpha: number, sum: number): void {
  const term = f(f(alpha) * sum)
  v.f32[index] = accumulate === 1 ? f(v.f32[index]! + term) : term
}

/** Plain rows: eight partial sums, column c in lane c mod 8. */
export function matMulRows(
  v: Views,
  m: MatrixBlock,
  x: number,
  xStride: number,
  y: number,
  yStride: number,
  tokens: number,
  accumulate: number,
  alpha: number,
): void {
  const rowBytes = m.cols * (m.encoding === COMPUTE.f32 ? 4 : 2)
  const row = new Float32Array(m.cols)
  const lanes = new Float32Array(8)
  for (let r = 0; r < m.rows; r++) {
    for (let c = 0; c < m.cols; c++) row[c] = plainAt(v, m.encoding, m.address + r * rowBytes, c, halfToFactor)
    for (let t = 0; t < tokens; t++) {
      const xt = (x >>> 2) + t * xStride
      lanes.fill(0)
      for (let c = 0; c < m.cols; c++) lanes[c & 7] = lanes[c & 7]! + f(row[c]! * v.f32[xt + c]!)
      finish(v, (y >>> 2) + t * yStride + r, accumulate, alpha, sum8(lanes))
    }
  }
}

/** Panels: in a block, codes times activations in column order; then scale·that, and minimum·(sum of the block's activations). */
export function matMulPanels(
  v: Views,
  m: MatrixBlock,
  x: number,
  xStride: number,
  y: number,
  yStride: number,
  tokens: number,
  accumulate: number,
  alpha: number,
): void {
  const g = m.block
  const blocks = Math.ceil(m.cols / g)
  const bytes = blockBytes(m)
  const scaleAt = codeBytes(m.encoding, g)
  const codes = new Float32Array(g * 16)
  const scales = new Float32Array(16)
  const minima = new Float32Array(16)
  const sums = new Float32Array(tokens * 16)
  for (let panel = 0; panel * 16 < m.rows; panel++) {
    sums.fill(0)
    for (let b = 0; b < blocks; b++) {
      const at = m.address + (panel * blocks + b) * bytes
      readCodes(v, m.encoding, at, g, codes)
      readScales(v, at + scaleAt, m.scaleF32, halfToFactor, scales)
      const hasMinima = m.encoding === COMPUTE.int4m
      if (hasMinima) readScales(v, at + scaleAt + (bytes - scaleAt) / 2, m.scaleF32, halfToFactor, minima)
      for (let t = 0; t < tokens; t++) {
        const xb = (x >>> 2) + t * xStride + b * g
        const total = hasMinima ? blockSum(v, xb, g) : 0
        for (let r = 0; r < 16; r++) {
          let part = 0
          for (let c = 0; c < g; c++) part = f(part + f(codes[c * 16 + r]! * v.f32[xb + c]!))
          let sum = f(sums[t * 16 + r]! + f(scales[r]! * part))
          if (hasMinima) sum = f(sum + f(minima[r]! * total))
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

/** Sum of a block's activations: four lanes, column c in lane c mod 4. */
function blockSum(v: Views, xb: number, g: number): number {
  const l: [number, number, number, number] = [0, 0, 0, 0]
  for (let c = 0; c < g; c++) l[c & 3] = f(l[c & 3]! + v.f32[xb + c]!)
  return sum4(...l)
}
