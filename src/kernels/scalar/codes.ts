// Codes, scales and minima of panel blocks (16 rows × 32 or 64 columns). The layout is docs/FORMAT.md, "Row panels":
// 64-byte chunks, four bytes a row; 4-bit chunks hold columns 8c…8c+7, 8-bit chunks columns 4c…4c+3.
import { COMPUTE, type ComputeId } from '../kernels.ts'
import { e4m3ToFloat, e5m2ToFloat } from './float.ts'
import type { Views } from './views.ts'

/** Quantiles of the normal distribution, from QLoRA (arXiv:2305.14314, appendix E), as float32. */
export const NF4 = new Float32Array([
  -1, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635, -0.18477343022823334,
  -0.09105003625154495, 0, 0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224,
  0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1,
])

/** The same as integers, for integer dot products: round(32767·value). */
export const NF4_INT = Int32Array.from(NF4, (v) => Math.round(v * 32767))

/** Calls `put(row, column, code)` for every code of a block. */
function eachCode(
  v: Views,
  encoding: ComputeId,
  address: number,
  block: number,
  put: (row: number, column: number, code: number) => void,
): void {
  const fourBit = encoding === COMPUTE.int4 || encoding === COMPUTE.int4m || encoding === COMPUTE.nf4
  const chunkColumns = fourBit ? 8 : 4
  for (let c = 0; c < block / chunkColumns; c++)
    for (let r = 0; r < 16; r++)
      for (let j = 0; j < 4; j++) {
        const byte = v.u8[address + c * 64 + r * 4 + j]!
        if (fourBit) {
          put(r, c * 8 + j, byte & 15)
          put(r, c * 8 + 4 + j, byte >> 4)
        } else put(r, c * 4 + j, byte)
      }
}

/** Codes as the floats that a scale multiplies: out[column·16 + row]. */
export function readCodes(v: Views, encoding: ComputeId, address: number, block: number, out: Float32Array): void {
  const value = CODE_VALUE[encoding]!
  eachCode(v, encoding, address, block, (r, c, code) => {
    out[c * 16 + r] = value(code)
  })
}

/** Codes as the integers of integer dot products (nf4: NF4_INT): out[column·16 + row]. Not for fp8. */
export function readIntegers(v: Views, encoding: ComputeId, address: number, block: number, out: Int32Array): void {
  const value = encoding === COMPUTE.nf4 ? (code: number) => NF4_INT[code]! : CODE_VALUE[encoding]!
  eachCode(v, encoding, address, block, (r, c, code) => {
    out[c * 16 + r] = value(code)
  })
}

const CODE_VALUE: Partial<Record<ComputeId, (code: number) => number>> = {
  [COMPUTE.int8]: (code) => (code << 24) >> 24,
  [COMPUTE.int4]: (code) => code - 8,
  [COMPUTE.int4m]: (code) => code,
  [COMPUTE.nf4]: (code) => NF4[code]!,
  [COMPUTE.fp8_e4m3]: e4m3ToFloat,
  [COMPUTE.fp8_e5m2]: e5m2ToFloat,
}

/** 16 scales or minima at `address`; `half` is how a float16 is read: halfToFloat to decode, halfToFactor to multiply. */
export function readScales(
  v: Views,
  address: number,
  scaleF32: number,
  half: (bits: number) => number,
  out: Float32Array,
): void {
  for (let r = 0; r < 16; r++)
    out[r] = scaleF32 === 1 ? v.data.getFloat32(address + r * 4, true) : half(v.data.getUint16(address + r * 2, true))
}

/** Bytes of the codes of a block. */
export function codeBytes(encoding: ComputeId, block: number): number {
  return encoding === COMPUTE.int4 || encoding === COMPUTE.int4m || encoding === COMPUTE.nf4 ? block * 8 : block * 16
}
