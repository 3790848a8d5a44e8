// What every codec checks before it touches a buffer, and how it refuses a value.
import { ConversionError, ModelFormatError, SluiceError } from '../base/errors.ts'
import { mulSafe } from '../base/shape.ts'

/** rows·cols, after refusing what is not a count. */
export function matrixElements(rows: number, cols: number, format: string): number {
  for (const n of [rows, cols])
    if (!Number.isSafeInteger(n) || n < 0)
      throw new ModelFormatError('FORMAT_INVALID', { what: `matrix of ${rows} × ${cols} has no size`, where: format })
  return mulSafe(rows, cols, format)
}

/** Refuses encoded bytes that end before the matrix does, and a float32 array that is too small for it. */
export function checkMatrix(format: string, stored: number, needed: number, floats: number, elements: number): void {
  if (stored < needed)
    throw new ModelFormatError('FORMAT_INVALID', {
      what: 'matrix is longer than its bytes',
      where: format,
      expected: `${needed} bytes`,
      got: stored,
      details: { requiredBytes: needed },
    })
  if (floats < elements)
    throw new SluiceError('INTERNAL', {
      what: 'float32 array is too small',
      where: format,
      expected: elements,
      got: floats,
    })
}

/** Throws QUANT_RANGE for the value at `index` of a row-major matrix. */
export function refuseValue(format: string, values: ArrayLike<number>, index: number, cols: number): never {
  const row = Math.floor(index / cols)
  const column = index - row * cols
  const value = values[index]!
  throw new ConversionError('QUANT_RANGE', {
    what: `value cannot be represented in ${format}`,
    where: `row ${row}, column ${column}`,
    got: String(value),
    details: { row, column, value },
  })
}

/** Index of the first NaN or infinity in values[from, to), or -1. */
export function findNonFinite(values: Float32Array, from: number, to: number): number {
  for (let i = from; i < to; i++) if (!Number.isFinite(values[i])) return i
  return -1
}
