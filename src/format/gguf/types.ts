// ggml's tensor types by their number in the file: name, columns and bytes of a block. Source: ggml.h (enum ggml_type) and ggml-common.h.
import type { DType } from '../../base/dtype.ts'
import { ModelFormatError } from '../../base/errors.ts'
import { isGgmlType } from '../../quant/ggml.ts'
import type { Encoding } from '../../quant/scheme.ts'

export interface GgmlTensorType {
  readonly name: string
  /** Columns of a block; rows are whole blocks. */
  readonly block: number
  readonly blockBytes: number
  /** Element type of plain ones. */
  readonly dtype?: DType
}

const plain = (name: string, dtype: DType, blockBytes: number): GgmlTensorType => ({
  name,
  block: 1,
  blockBytes,
  dtype,
})
const blocks = (name: string, block: number, blockBytes: number): GgmlTensorType => ({ name, block, blockBytes })

/** Missing numbers are of types that ggml removed (Q4_2, Q4_3, Q4_0_4_4 …). */
const TYPES: ReadonlyMap<number, GgmlTensorType> = new Map([
  [0, plain('F32', 'float32', 4)],
  [1, plain('F16', 'float16', 2)],
  [2, blocks('Q4_0', 32, 18)],
  [3, blocks('Q4_1', 32, 20)],
  [6, blocks('Q5_0', 32, 22)],
  [7, blocks('Q5_1', 32, 24)],
  [8, blocks('Q8_0', 32, 34)],
  [9, blocks('Q8_1', 32, 36)],
  [10, blocks('Q2_K', 256, 84)],
  [11, blocks('Q3_K', 256, 110)],
  [12, blocks('Q4_K', 256, 144)],
  [13, blocks('Q5_K', 256, 176)],
  [14, blocks('Q6_K', 256, 210)],
  [15, blocks('Q8_K', 256, 292)],
  [16, blocks('IQ2_XXS', 256, 66)],
  [17, blocks('IQ2_XS', 256, 74)],
  [18, blocks('IQ3_XXS', 256, 98)],
  [19, blocks('IQ1_S', 256, 50)],
  [20, blocks('IQ4_NL', 32, 18)],
  [21, blocks('IQ3_S', 256, 110)],
  [22, blocks('IQ2_S', 256, 82)],
  [23, blocks('IQ4_XS', 256, 136)],
  [24, plain('I8', 'int8', 1)],
  [25, plain('I16', 'int16', 2)],
  [26, plain('I32', 'int32', 4)],
  [27, plain('I64', 'int64', 8)],
  [28, plain('F64', 'float64', 8)],
  [29, blocks('IQ1_M', 256, 56)],
  [30, plain('BF16', 'bfloat16', 2)],
  [34, blocks('TQ1_0', 256, 54)],
  [35, blocks('TQ2_0', 256, 66)],
  [39, blocks('MXFP4', 32, 17)],
  [40, blocks('NVFP4', 64, 36)],
  [41, blocks('Q1_0', 128, 18)],
  [42, blocks('Q2_0', 64, 18)],
])

/** Throws FORMAT_UNSUPPORTED for a number ggml does not have, or has no more. */
export function ggmlType(id: number, where: string): GgmlTensorType {
  const type = TYPES.get(id)
  if (type === undefined)
    throw new ModelFormatError('FORMAT_UNSUPPORTED', {
      what: 'ggml tensor type is not known',
      where,
      expected: [...TYPES].map(([n, t]) => `${n} ${t.name}`),
      got: id,
      details: { type: id },
    })
  return type
}

/** How a tensor of that type is stored; `opaque` where no decoder exists. */
export function ggmlEncoding(type: GgmlTensorType, bigEndian: boolean): { encoding: Encoding; dtype: DType } {
  const order = bigEndian && !(type.block === 1 && type.blockBytes === 1) ? { bigEndian } : {}
  if (type.dtype !== undefined) return { encoding: { kind: 'plain', dtype: type.dtype, ...order }, dtype: type.dtype }
  if (isGgmlType(type.name, bigEndian))
    return { encoding: { kind: 'ggml', type: type.name, ...order }, dtype: 'float32' }
  const { name, block, blockBytes } = type
  return { encoding: { kind: 'opaque', type: name, block, blockBytes, ...order }, dtype: 'float32' }
}
