// Norm, rotary positions, gated activation, addition: kernels over activations alone.
import { exp32 } from './float.ts'
import { sum8 } from './sum.ts'
import type { Views } from './views.ts'

const f = Math.fround

export function rmsNorm(
  v: Views,
  x: number,
  xStride: number,
  weight: number,
  y: number,
  yStride: number,
  dim: number,
  epsilon: number,
  offset: number,
  tokens: number,
): void {
  const lanes = new Float32Array(8)
  for (let t = 0; t < tokens; t++) {
    const xt = (x >>> 2) + t * xStride
    const yt = (y >>> 2) + t * yStride
    lanes.fill(0)
    for (let i = 0; i < dim; i++) lanes[i & 7] = lanes[i & 7]! + f(v.f32[xt + i]! * v.f32[xt + i]!)
    const mean = f(sum8(lanes) / dim)
    const inverse = f(1 / f(Math.sqrt(f(mean + f(epsilon)))))
    for (let i = 0; i < dim; i++)
      v.f32[yt + i] = f(f(v.f32[xt + i]! * inverse) * f(f(offset) + v.f32[(weight >>> 2) + i]!))
  }
}

export function rope(
  v: Views,
  x: number,
  xStride: number,
  heads: number,
  headDim: number,
  rotaryDim: number,
  interleaved: number,
  table: number,
  tokens: number,
): void {
  const half = Math.floor(rotaryDim / 2)
  for (let t = 0; t < tokens; t++) {
    const angles = (table >>> 2) + t * half * 2
    for (let h = 0; h < heads; h++) {
      const base = (x >>> 2) + t * xStride + h * headDim
      for (let i = 0; i < half; i++) {
        const at = interleaved === 1 ? base + 2 * i : base + i
        const other = interleaved === 1 ? at + 1 : at + half
        const cos = v.f32[angles + 2 * i]!
        const sin = v.f32[angles + 2 * i + 1]!
        const a = v.f32[at]!
        const b = v.f32[other]!
        v.f32[at] = f(f(a * cos) - f(b * sin))
        v.f32[other] = f(f(a * sin) + f(b * cos))
      }
    }
  }
}

/** silu(g)·u = g / (1 + e^-g) · u. */
export function swiglu(
  v: Views,
  gate: number,
  up: number,
  y: number,
  stride: number,
  from: number,
  to: number,
  tokens: number,
): void {
  for (let t = 0; t < tokens; t++)
    for (let i = from; i < to; i++) {
      const at = t * stride + i
      const g = v.f32[(gate >>> 2) + at]!
      const silu = f(g / f(1 + exp32(-g)))
      v.f32[(y >>> 2) + at] = f(silu * v.f32[(up >>> 2) + at]!)
    }
}

export function add(
  v: Views,
  x: number,
  xStride: number,
  y: number,
  yStride: number,
  from: number,
  to: number,
  tokens: number,
  alpha: number,
): void {
  for (let t = 0; t < tokens; t++)
    for (let i = from; i < to; i++) {
      const at = (y >>> 2) + t * yStride + i
      v.f32[at] = f(v.f32[at]! + f(f(alpha) * v.f32[(x >>> 2) + t * xStride + i]!))
    }
}
