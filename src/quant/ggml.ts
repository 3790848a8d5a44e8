// ggml block formats, as GGUF files have them: rows of blocks, each block a fixed number of columns in a fixed number of bytes.
// One file a type; this one is the table of types and the codec over them.
import { ModelFormatError } from '../base/errors.ts'
import { mulSafe } from '../base/shape.ts'
import { checkMatrix, matrixElements, refuseValue } from './bounds.ts'
import { MXFP4, NVFP4 } from './ggml-fp4.ts'
import { IQ1_M, IQ1_S } from './ggml-iq-one.ts'
import { IQ3_S, IQ3_XXS } from './ggml-iq-three.ts'
import { IQ2_S, IQ2_XS, IQ2_XXS } from './ggml-iq-two.ts'
import { IQ4_NL, IQ4_XS } from './ggml-iq4.ts'
import { Q4_K, Q5_K } from './ggml-k-four-five.ts'
import { Q6_K } from './ggml-k-six.ts'
import { Q2_K, Q3_K } from './ggml-k-two-three.ts'
import { Q1_0, Q2_0, TQ1_0, TQ2_0 } from './ggml-low-bit.ts'
import { decodePacked, type PackedBlock } from './ggml-packed.ts'
import { Q4_0 } from './ggml-q4-0.ts'
import { Q4_1 } from './ggml-q4-1.ts'
import { Q5_0, Q5_1 } from './ggml-q5.ts'
import { Q8_0 } from './ggml-q8-0.ts'
import type { GgmlType, RowCodec } from './scheme.ts'

/** A block format: pure functions over runs of blocks. */
export interface GgmlBlock {
  readonly type: GgmlType
  /** Columns and bytes of a block. */
  readonly columns: number
  readonly bytes: number
  /** Decodes `blocks` blocks from the start of `bytes` to `out`. Only 16- and 32-bit fields are swapped in big-endian files. */
  decode(bytes: Uint8Array, blocks: number, out: Float32Array, bigEndian: boolean): void
  /**
   * Encodes as ggml's reference quantizer does, to the same bytes. Returns the index of the first value that cannot be
   * represented (NaN, infinity, a block whose scale overflows float16), or -1.
   */
  encode?(values: Float32Array, blocks: number, out: Uint8Array, bigEndian: boolean): number
}

/** Types that are read through their codes and scales. Q4_0 and Q8_0 have loops of their own, and encoders. */
const PACKED: Readonly<Record<Exclude<GgmlType, 'Q4_0' | 'Q8_0'>, PackedBlock>> = {
  Q4_1,
  Q5_0,
  Q5_1,
  Q2_K,
  Q3_K,
  Q4_K,
  Q5_K,
  Q6_K,
  IQ1_S,
  IQ1_M,
  IQ2_XXS,
  IQ2_XS,
  IQ2_S,
  IQ3_XXS,
  IQ3_S,
  IQ4_NL,
  IQ4_XS,
  TQ1_0,
  TQ2_0,
  MXFP4,
  NVFP4,
  Q1_0,
  Q2_0,
}

const BLOCKS: ReadonlyMap<string, GgmlBlock> = new Map<string, GgmlBlock>([
  ['Q8_0', Q8_0],
  ['Q4_0', Q4_0],
  ...Object.values(PACKED).map((p): [string, GgmlBlock] => [
    p.type,
    {
      type: p.type,
      columns: p.columns,
      bytes: p.bytes,
      decode: (bytes, blocks, out, bigEndian) => decodePacked(p, bytes, blocks, out, bigEndian),
    },
  ]),
])

/** Codes and scales of a type, or undefined for Q4_0 and Q8_0. */
export function packedBlock(type: GgmlType): PackedBlock | undefined {
  return type === 'Q4_0' || type === 'Q8_0' ? undefined : PACKED[type]
}

/** True for types with a decoder. IQ2_XXS of big-endian files has none: ggml's own reader and writer disagree on its byte order. */
export function isGgmlType(name: string, bigEndian = false): name is GgmlType {
  return BLOCKS.has(name) && !(bigEndian && name === 'IQ2_XXS')
}

/** The format of a ggml type. Throws QUANT_UNSUPPORTED for types without a decoder. */
export function ggmlBlock(type: GgmlType): GgmlBlock {
  const block = BLOCKS.get(type)
  if (block === undefined)
    throw new ModelFormatError('QUANT_UNSUPPORTED', {
      what: 'ggml type has no decoder',
      expected: [...BLOCKS.keys()],
      got: type,
    })
  return block
}

/** Bytes of a matrix. Rows are whole blocks: FORMAT_INVALID for another number of columns. */
export function ggmlBytes(block: GgmlBlock, rows: number, cols: number): number {
  matrixElements(rows, cols, block.type)
  if (cols % block.columns !== 0)
    throw new ModelFormatError('FORMAT_INVALID', {
      what: 'columns are not whole ggml blocks',
      where: block.type,
      expected: `a multiple of ${block.columns}`,
      got: cols,
    })
  return mulSafe(rows, (cols / block.columns) * block.bytes, block.type)
}

export function ggmlCodec(type: GgmlType, bigEndian = false): RowCodec {
  const block = ggmlBlock(type)
  const check = (bytes: Uint8Array, rows: number, cols: number, values: Float32Array) => {
    const elements = matrixElements(rows, cols, type)
    checkMatrix(type, bytes.length, ggmlBytes(block, rows, cols), values.length, elements)
    return elements / block.columns
  }
  const codec: RowCodec = {
    rowGroup: 1,
    byteLength: (rows, cols) => ggmlBytes(block, rows, cols),
    decode(bytes, rows, cols, out) {
      block.decode(bytes, check(bytes, rows, cols, out), out, bigEndian)
    },
  }
  const encode = block.encode
  if (encode === undefined) return codec
  codec.encode = (values, rows, cols, out) => {
    const refused = encode(values, check(out, rows, cols, values), out, bigEndian)
    if (refused >= 0) refuseValue(type, values, refused, cols)
  }
  return codec
}
