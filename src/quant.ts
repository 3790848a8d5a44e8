// Entry point 'sluice/quant': number formats as plain functions on bytes. Runs in Node and in browsers.
//
//   const encoding = { kind: 'panel', scheme: 'int4', block: 32, scale: 'f16', exponent: 0 }
//   const codec = codecOf(encoding)
//   const bytes = new Uint8Array(encodedBytes(encoding, rows, cols))
//   codec.encode(values, rows, cols, bytes)

export type { DType } from './base/dtype.ts'
export { decodeBfloat16, encodeBfloat16 } from './quant/bfloat16.ts'
export { codecOf, encodedBytes } from './quant/codec.ts'
export { type QuantError, QuantErrorMeter } from './quant/error.ts'
export { decodeFp8, E4M3, E5M2, encodeFp8, type Fp8Format } from './quant/fp8.ts'
export { decodeHalf, encodeHalf } from './quant/half.ts'
export { dequantizeLinear, type LinearParams, quantizeLinear } from './quant/linear.ts'
export { encodeNf4, NF4 } from './quant/nf4.ts'
export {
  decodeNestedAbsmax,
  decodeNf4Packed,
  encodeNestedAbsmax,
  encodeNf4Packed,
  type NestedAbsmax,
} from './quant/nf4-double.ts'
export { absMaxOf, choosePanelExponent } from './quant/panel-scale.ts'
export {
  type Encoding,
  type GgmlType,
  type OpaqueEncoding,
  PANEL_ROWS,
  type PanelEncoding,
  type PanelSchemeName,
  type RowCodec,
} from './quant/scheme.ts'
