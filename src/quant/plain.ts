// Plain dtypes (one element after another, either byte order) to float32, and float32, float16 and bfloat16 back.
//
// Decoding is exact or rounds to nearest even (float64, integers above 2^24). A finite float64 too large for float32 is
// refused, not turned into infinity. NaN and infinity are values of the float types and pass through both ways.

import { DTYPE_BYTES, type DType, isDType } from '../base/dtype.ts'
import { ModelFormatError } from '../base/errors.ts'
import { mulSafe } from '../base/shape.ts'
import { decodeBfloat16, encodeBfloat16 } from './bfloat16.ts'
import { checkMatrix, matrixElements, refuseValue } from './bounds.ts'
import { decodeFp8, E4M3, E5M2 } from './fp8.ts'
import { decodeHalf, encodeHalf } from './half.ts'
import type { RowCodec } from './scheme.ts'

const HOST_LITTLE_ENDIAN = new Uint8Array(new Uint16Array([1]).buffer)[0] === 1

/** Bytes of a plain matrix. */
export function plainBytes(dtype: DType, rows: number, cols: number): number {
  return mulSafe(matrixElements(rows, cols, dtype), DTYPE_BYTES[dtype], dtype)
}

/** Codec of a plain dtype. Throws QUANT_UNSUPPORTED for complex64 (no real value) and unknown names. */
export function plainCodec(dtype: DType, bigEndian = false): RowCodec {
  if (!isDType(dtype) || dtype === 'complex64')
    throw new ModelFormatError('QUANT_UNSUPPORTED', { what: 'dtype has no float32 values', got: dtype })
  const codec: RowCodec = {
    rowGroup: 1,
    byteLength: (rows, cols) => plainBytes(dtype, rows, cols),
    decode(bytes, rows, cols, out) {
      const count = matrixElements(rows, cols, dtype)
      checkMatrix(dtype, bytes.length, plainBytes(dtype, rows, cols), out.length, count)
      decodePlain(dtype, bytes, count, cols, out, bigEndian)
    },
  }
  if (dtype !== 'float32' && dtype !== 'float16' && dtype !== 'bfloat16') return codec
  codec.encode = (values, rows, cols, out) => {
    const count = matrixElements(rows, cols, dtype)
    checkMatrix(dtype, out.length, plainBytes(dtype, rows, cols), values.length, count)
    let overflow = -1
    if (dtype === 'float16') overflow = encodeHalf(values, count, out, bigEndian)
    else if (dtype === 'bfloat16') overflow = encodeBfloat16(values, count, out, bigEndian)
    else encodeFloat32(values, count, out, bigEndian)
    if (overflow >= 0) refuseValue(dtype, values, overflow, cols)
  }
  return codec
}

function encodeFloat32(values: Float32Array, count: number, out: Uint8Array, bigEndian: boolean): void {
  if (bigEndian !== HOST_LITTLE_ENDIAN) {
    out.set(new Uint8Array(values.buffer, values.byteOffset, count * 4))
    return
  }
  const bits = new Uint32Array(values.buffer, values.byteOffset, count)
  const view = viewOf(out)
  for (let i = 0; i < count; i++) view.setUint32(i * 4, bits[i]!, !bigEndian)
}

function decodeFloat32(bytes: Uint8Array, count: number, out: Float32Array, bigEndian: boolean): void {
  if (bigEndian !== HOST_LITTLE_ENDIAN) {
    new Uint8Array(out.buffer, out.byteOffset, count * 4).set(bytes.subarray(0, count * 4))
    return
  }
  const bits = new Uint32Array(out.buffer, out.byteOffset, count)
  const view = viewOf(bytes)
  for (let i = 0; i < count; i++) bits[i] = view.getUint32(i * 4, !bigEndian)
}

function viewOf(bytes: Uint8Array): DataView {
  return new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength)
}

function decodePlain(
  dtype: Exclude<DType, 'complex64'>,
  bytes: Uint8Array,
  count: number,
  cols: number,
  out: Float32Array,
  bigEndian: boolean,
): void {
  const little = !bigEndian
  switch (dtype) {
    case 'float32':
      decodeFloat32(bytes, count, out, bigEndian)
      return
    case 'float16':
      decodeHalf(bytes, count, out, bigEndian)
      return
    case 'bfloat16':
      decodeBfloat16(bytes, count, out, bigEndian)
      return
    case 'float8_e4m3':
      decodeFp8(E4M3, bytes, count, out)
      return
    case 'float8_e5m2':
      decodeFp8(E5M2, bytes, count, out)
      return
    case 'uint8':
      for (let i = 0; i < count; i++) out[i] = bytes[i]!
      return
    case 'int8':
      for (let i = 0; i < count; i++) out[i] = (bytes[i]! << 24) >> 24
      return
    case 'bool':
      decodeBool(bytes, count, cols, out)
      return
    case 'float64':
      decodeFloat64(viewOf(bytes), count, cols, out, little)
      return
    case 'int64':
    case 'uint64':
      decodeInt64(viewOf(bytes), count, out, little, dtype === 'int64')
      return
    case 'int16': {
      const view = viewOf(bytes)
      for (let i = 0; i < count; i++) out[i] = view.getInt16(i * 2, little)
      return
    }
    case 'uint16': {
      const view = viewOf(bytes)
      for (let i = 0; i < count; i++) out[i] = view.getUint16(i * 2, little)
      return
    }
    case 'int32': {
      const view = viewOf(bytes)
      for (let i = 0; i < count; i++) out[i] = view.getInt32(i * 4, little)
      return
    }
    case 'uint32': {
      const view = viewOf(bytes)
      for (let i = 0; i < count; i++) out[i] = view.getUint32(i * 4, little)
      return
    }
    default:
      dtype satisfies never
  }
}

function decodeBool(bytes: Uint8Array, count: number, cols: number, out: Float32Array): void {
  for (let i = 0; i < count; i++) {
    if (bytes[i]! > 1) refuseValue('bool (0 or 1)', bytes, i, cols)
    out[i] = bytes[i]!
  }
}

function decodeFloat64(view: DataView, count: number, cols: number, out: Float32Array, little: boolean): void {
  for (let i = 0; i < count; i++) {
    const x = view.getFloat64(i * 8, little)
    const f = Math.fround(x)
    out[i] = f
    if (f - f !== 0 && Number.isFinite(x)) {
      const column = i % cols
      throw new ModelFormatError('QUANT_RANGE', {
        what: 'float64 value is too large for float32',
        where: `row ${(i - column) / cols}, column ${column}`,
        got: String(x),
        details: { row: (i - column) / cols, column, value: x },
      })
    }
  }
}

function decodeInt64(view: DataView, count: number, out: Float32Array, little: boolean, signed: boolean): void {
  for (let i = 0; i < count; i++) {
    const high = signed
      ? view.getInt32(i * 8 + (little ? 4 : 0), little)
      : view.getUint32(i * 8 + (little ? 4 : 0), little)
    let low = view.getUint32(i * 8 + (little ? 0 : 4), little)
    // Past 2^53 the sum would round twice (to 53 bits, then to 24): fold the lowest 16 bits into one sticky bit first.
    if (high >= 0x200000 || high < -0x200000) low = ((low >>> 16) | ((low & 0xffff) === 0 ? 0 : 1)) * 65536
    out[i] = high * 4294967296 + low
  }
}
