// The matrix view that every reader gives its tensors: leading axes are rows, the last axis is the columns.
import { elementCount, type Shape } from '../base/shape.ts'

/** A vector is 1 row, a scalar is 1×1. Throws FORMAT_INVALID for a shape that is not one or is too large. */
export function matrixView(shape: Shape, where: string): { readonly rows: number; readonly cols: number } {
  if (shape.length === 0) return { rows: 1, cols: 1 }
  elementCount(shape, where)
  return { rows: elementCount(shape.slice(0, -1), where), cols: shape[shape.length - 1]! }
}
