// Shapes and checked size arithmetic: every product of numbers from a file goes through here.
import { ModelFormatError } from './errors.ts'

export type Shape = readonly number[]

/** Product of dimensions. Throws FORMAT_INVALID past 2^53 or for a dimension that is not a count. */
export function elementCount(shape: Shape, where = 'shape'): number {
  let n = 1
  let zero = false
  for (const d of shape) {
    if (!Number.isSafeInteger(d) || d < 0)
      throw new ModelFormatError('FORMAT_INVALID', { what: 'dimension is not a count', where, got: d })
    if (d === 0) zero = true
    else n *= d
    if (n > Number.MAX_SAFE_INTEGER)
      throw new ModelFormatError('FORMAT_INVALID', { what: 'shape is too large', where, got: shape })
  }
  return zero ? 0 : n
}

/** a·b, refused past 2^53. */
export function mulSafe(a: number, b: number, where: string): number {
  const n = a * b
  if (!Number.isSafeInteger(n)) throw new ModelFormatError('FORMAT_INVALID', { what: 'size overflows', where, got: n })
  return n
}

/** a+b, refused past 2^53. */
export function addSafe(a: number, b: number, where: string): number {
  const n = a + b
  if (!Number.isSafeInteger(n)) throw new ModelFormatError('FORMAT_INVALID', { what: 'size overflows', where, got: n })
  return n
}

/** Smallest multiple of `unit` that is ≥ n. */
export function roundUp(n: number, unit: number): number {
  return Math.ceil(n / unit) * unit
}

/** Largest multiple of `unit` that is ≤ n. */
export function roundDown(n: number, unit: number): number {
  return Math.floor(n / unit) * unit
}

export function sameShape(a: Shape, b: Shape): boolean {
  return a.length === b.length && a.every((d, i) => d === b[i])
}
