// NumPy's .npy files, version 1.0: a header of text, then elements row-major. Source: numpy/lib/format.py ("Format Version 1.0").
import type { DType } from '../base/dtype.ts'
import { ConversionError } from '../base/errors.ts'
import { elementCount, roundUp } from '../base/shape.ts'
import { bytesOf, HOST_BIG_ENDIAN, type TensorArray } from './array.ts'

const TYPES: Readonly<Partial<Record<DType, string>>> = {
  float32: 'f4',
  float64: 'f8',
  float16: 'f2',
  int64: 'i8',
  int32: 'i4',
  int16: 'i2',
  int8: 'i1',
  uint64: 'u8',
  uint32: 'u4',
  uint16: 'u2',
  uint8: 'u1',
  bool: 'b1',
  complex64: 'c8',
}

/** NumPy aligns the data, so that it can be mapped. */
const ALIGNMENT = 64
const PREFIX = 10

/**
 * Everything before the elements, in this machine's byte order. float16 is written from its bits, as TensorArray has them.
 * Throws QUANT_UNSUPPORTED for types NumPy does not have (bfloat16, fp8).
 */
export function npyHeader(dtype: DType, shape: readonly number[]): Uint8Array {
  const type = TYPES[dtype]
  if (type === undefined)
    throw new ConversionError('QUANT_UNSUPPORTED', {
      what: 'NumPy has no such type',
      expected: Object.keys(TYPES),
      got: dtype,
      remedy: 'Convert to float32.',
    })
  const order = type.endsWith('1') ? '|' : HOST_BIG_ENDIAN ? '>' : '<'
  const tuple = `(${shape.join(', ')}${shape.length === 1 ? ',' : ''})`
  const text = `{'descr': '${order}${type}', 'fortran_order': False, 'shape': ${tuple}, }`
  const out = new Uint8Array(roundUp(PREFIX + text.length + 1, ALIGNMENT)).fill(0x20)
  out.set([0x93, ...Buffer.from('NUMPY', 'latin1'), 1, 0])
  new DataView(out.buffer).setUint16(8, out.length - PREFIX, true)
  out.set(Buffer.from(text, 'latin1'), PREFIX)
  out[out.length - 1] = 0x0a
  return out
}

/** A whole file in pieces. Throws INTERNAL when the chunks have more or fewer elements than the shape. */
export async function* npyStream(
  dtype: DType,
  shape: readonly number[],
  chunks: AsyncIterable<TensorArray> | Iterable<TensorArray>,
): AsyncGenerator<Uint8Array> {
  yield npyHeader(dtype, shape)
  const wanted = elementCount(shape) * (dtype === 'complex64' ? 2 : 1)
  let got = 0
  for await (const chunk of chunks) {
    got += chunk.length
    yield bytesOf(chunk)
  }
  if (got !== wanted)
    throw new ConversionError('INTERNAL', { what: 'array has another length than its shape', expected: wanted, got })
}
