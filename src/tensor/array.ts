// Typed arrays by element type. What JavaScript has no array for comes as its bits: float16, bfloat16 and fp8 as unsigned integers,
// bool as bytes of 0 and 1, complex64 as float32 pairs (real, imaginary).
import { DTYPE_BYTES, type DType } from '../base/dtype.ts'
import { ValidationError } from '../base/errors.ts'

/** The array of a dtype; float16 and bfloat16 as their bits, complex64 as pairs. */
export type TensorArray =
  | Float32Array
  | Float64Array
  | Int8Array
  | Int16Array
  | Int32Array
  | BigInt64Array
  | Uint8Array
  | Uint16Array
  | Uint32Array
  | BigUint64Array

type ArrayClass = {
  new (buffer: ArrayBufferLike, offset: number, length: number): TensorArray
  BYTES_PER_ELEMENT: number
}

const CLASSES: Readonly<Record<DType, ArrayClass>> = {
  float32: Float32Array,
  float64: Float64Array,
  float16: Uint16Array,
  bfloat16: Uint16Array,
  float8_e4m3: Uint8Array,
  float8_e5m2: Uint8Array,
  int64: BigInt64Array,
  int32: Int32Array,
  int16: Int16Array,
  int8: Int8Array,
  uint64: BigUint64Array,
  uint32: Uint32Array,
  uint16: Uint16Array,
  uint8: Uint8Array,
  bool: Uint8Array,
  complex64: Float32Array,
}

export const HOST_BIG_ENDIAN = new Uint8Array(new Uint16Array([1]).buffer)[0] === 0

/** An array of `elements` zeros. Throws TENSOR_RANGE when no array can be that long. */
export function newArray(dtype: DType, elements: number, tensor: string): TensorArray {
  try {
    return asArray(dtype, new Uint8Array(elements * DTYPE_BYTES[dtype]), elements)!
  } catch (cause) {
    throw new ValidationError('TENSOR_RANGE', {
      what: 'no array can hold so many elements here',
      where: `tensor ${tensor}`,
      got: `${elements} × ${dtype}`,
      remedy: 'Read it in parts: rows, slice or stream.',
      details: { tensor, elements, dtype },
      cause,
    })
  }
}

/** The same bytes as elements, without a copy; undefined where their address is no multiple of the element's size. */
export function asArray(dtype: DType, bytes: Uint8Array, elements: number): TensorArray | undefined {
  const Class = CLASSES[dtype]
  if (bytes.byteOffset % Class.BYTES_PER_ELEMENT !== 0) return undefined
  const length = (elements * DTYPE_BYTES[dtype]) / Class.BYTES_PER_ELEMENT
  return new Class(bytes.buffer, bytes.byteOffset, length)
}

export function bytesOf(array: TensorArray): Uint8Array {
  return new Uint8Array(array.buffer, array.byteOffset, array.byteLength)
}

/** Size of what a byte swap turns around: halves of a complex number are numbers of their own. */
export function swapSize(dtype: DType): number {
  return CLASSES[dtype].BYTES_PER_ELEMENT
}

/** Turns the bytes of every `size`-byte number around, in place. */
export function swapBytes(bytes: Uint8Array, size: number): void {
  const buffer = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength)
  if (size === 2) buffer.swap16()
  else if (size === 4) buffer.swap32()
  else if (size === 8) buffer.swap64()
}
