// Attention over a paged key-value cache, and the writing of that cache.
import type { AttentionCall } from '../kernels.ts'
import { exp32, floatToHalf, halfToFactor } from './float.ts'
import { sum4, sum8 } from './sum.ts'
import type { Views } from './views.ts'

const f = Math.fround

/**
 * For each head and token: scores over positions, softmax with the maximum subtracted, weighted sum of values in order of
 * position, divided by the sum of weights at the end. Nothing depends on how tokens are divided into calls.
 */
export function attention(v: Views, a: AttentionCall): void {
  const group = a.heads / a.kvHeads
  const scores = a.scratch >>> 2
  const scale = f(a.scale)
  const lanes = new Float32Array(8)
  const out = new Float32Array(a.headDim)
  const headElements = a.pageTokens * a.headDim
  /** Element index (in cache elements from the page's start) of a head's row of keys or values. */
  const element = (kind: number, kvHead: number, slot: number) =>
    (kind * a.kvHeads + kvHead) * headElements + slot * a.headDim
  for (let head = a.headStart; head < a.headEnd; head++) {
    const kvHead = Math.floor(head / group)
    for (let t = 0; t < a.tokens; t++) {
      const last = a.position + t
      const first = a.window > 0 ? Math.max(0, last - a.window + 1) : 0
      const q = (a.q >>> 2) + t * a.qStride + head * a.headDim
      for (let p = first; p <= last; p++) {
        const page = v.u32[(a.pages >>> 2) + Math.floor(p / a.pageTokens)]!
        const at = element(0, kvHead, p % a.pageTokens)
        lanes.fill(0)
        for (let d = 0; d < a.headDim; d++)
          lanes[d & 7] = lanes[d & 7]! + f(cached(v, page, at + d, a.kvF16) * v.f32[q + d]!)
        v.f32[scores + p - first] = f(sum8(lanes) * scale)
      }
      const total = exponentials(v, scores, last - first + 1)
      out.fill(0)
      for (let p = first; p <= last; p++) {
        const page = v.u32[(a.pages >>> 2) + Math.floor(p / a.pageTokens)]!
        const at = element(1, kvHead, p % a.pageTokens)
        const weight = v.f32[scores + p - first]!
        for (let d = 0; d < a.headDim; d++) out[d] = out[d]! + f(weight * cached(v, page, at + d, a.kvF16))
      }
      const inverse = f(1 / total)
      const y = (a.y >>> 2) + t * a.yStride + head * a.headDim
      for (let d = 0; d < a.headDim; d++) v.f32[y + d] = f(out[d]! * inverse)
    }
  }
}

function cached(v: Views, page: number, element: number, kvF16: number): number {
  return kvF16 === 1 ? halfToFactor(v.data.getUint16(page + element * 2, true)) : v.f32[(page >>> 2) + element]!
}

/** Replaces n values by e^(value - maximum); returns their sum: four lanes, value i in lane i mod 4. `at` in floats. */
function exponentials(v: Views, at: number, n: number): number {
  let top = Number.NEGATIVE_INFINITY
  for (let i = 0; i < n; i++) top = Math.max(top, v.f32[at + i]!)
  const l: [number, number, number, number] = [0, 0, 0, 0]
  for (let i = 0; i < n; i++) {
    const e = exp32(f(v.f32[at + i]! - top))
    v.f32[at + i] = e
    l[i & 3] = f(l[i & 3]! + e)
  }
  return sum4(...l)
}

export function softmax(v: Views, x: number, n: number): void {
  const inverse = f(1 / exponentials(v, x >>> 2, n))
  for (let i = 0; i < n; i++) v.f32[(x >>> 2) + i] = f(v.f32[(x >>> 2) + i]! * inverse)
}

export function kvAppend(
  v: Views,
  k: number,
  values: number,
  stride: number,
  pages: number,
  pageTokens: number,
  kvF16: number,
  kvHeads: number,
  headDim: number,
  headStart: number,
  headEnd: number,
  position: number,
  tokens: number,
): void {
  for (let t = 0; t < tokens; t++) {
    const page = v.u32[(pages >>> 2) + Math.floor((position + t) / pageTokens)]!
    const slot = (position + t) % pageTokens
    for (let kind = 0; kind < 2; kind++)
      for (let head = headStart; head < headEnd; head++) {
        const from = ((kind === 0 ? k : values) >>> 2) + t * stride + head * headDim
        const to = ((kind * kvHeads + head) * pageTokens + slot) * headDim
        for (let d = 0; d < headDim; d++) {
          const value = v.f32[from + d]!
          if (kvF16 === 1) v.data.setUint16(page + (to + d) * 2, floatToHalf(value), true)
          else v.f32[(page >>> 2) + to + d] = value
        }
      }
  }
}
