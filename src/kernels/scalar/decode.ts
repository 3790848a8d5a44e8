// Weights to float32.
import { blockBytes, isPanel } from '../compute.ts'
import { COMPUTE, type MatrixBlock } from '../kernels.ts'
import { codeBytes, readCodes, readScales } from './codes.ts'
import { halfToFloat } from './float.ts'
import { plainAt } from './matmul.ts'
import type { Views } from './views.ts'

const f = Math.fround

/** value = scale·code (+ minimum), each step rounded to float32. */
export function decode(v: Views, m: MatrixBlock, out: number, outStride: number): void {
  if (isPanel(m.encoding)) decodePanels(v, m, out >>> 2, outStride)
  else decodeRows(v, m, out >>> 2, outStride)
}

function decodeRows(v: Views, m: MatrixBlock, out: number, outStride: number): void {
  const rowBytes = m.cols * (m.encoding === COMPUTE.f32 ? 4 : 2)
  for (let r = 0; r < m.rows; r++)
    for (let c = 0; c < m.cols; c++)
      v.f32[out + r * outStride + c] = plainAt(v, m.encoding, m.address + r * rowBytes, c, halfToFloat)
}

function decodePanels(v: Views, m: MatrixBlock, out: number, outStride: number): void {
  const g = m.block
  const blocks = Math.ceil(m.cols / g)
  const bytes = blockBytes(m)
  const scaleAt = codeBytes(m.encoding, g)
  const unit = f(m.multiplier)
  const hasMinima = m.encoding === COMPUTE.int4m
  const codes = new Float32Array(g * 16)
  const scales = new Float32Array(16)
  const minima = new Float32Array(16)
  for (let panel = 0; panel * 16 < m.rows; panel++) {
    const rows = Math.min(16, m.rows - panel * 16)
    for (let b = 0; b < blocks; b++) {
      const at = m.address + (panel * blocks + b) * bytes
      readCodes(v, m.encoding, at, g, codes)
      readScales(v, at + scaleAt, m.scaleF32, halfToFloat, scales)
      if (hasMinima) readScales(v, at + scaleAt + (bytes - scaleAt) / 2, m.scaleF32, halfToFloat, minima)
      const columns = Math.min(g, m.cols - b * g)
      for (let r = 0; r < rows; r++)
        for (let c = 0; c < columns; c++) {
          const value = f(f(scales[r]! * unit) * codes[c * 16 + r]!)
          v.f32[out + (panel * 16 + r) * outStride + b * g + c] = hasMinima ? f(value + f(minima[r]! * unit)) : value
        }
    }
  }
}
