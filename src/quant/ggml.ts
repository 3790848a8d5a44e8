// ggml block formats, as GGUF files have them: rows of blocks, each block a fixed number of columns in a fixed number of bytes.
// One file a type; this one is the table of types and the codec over them.
import { ModelFormatError } from '../base/errors.ts'
import { mulSafe } from '../base/shape.ts'
import { checkMatrix, matrixElements, refuseValue } from './bounds.ts'
import { Q4_0 } from './ggml-q4-0.ts'
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

const BLOCKS: Readonly<Record<GgmlType, GgmlBlock>> = { Q8_0, Q4_0 }

/** The format of a ggml type. Throws QUANT_UNSUPPORTED for types without a decoder. */
export function ggmlBlock(type: GgmlType): GgmlBlock {
  if (!Object.hasOwn(BLOCKS, type))
    throw new ModelFormatError('QUANT_UNSUPPORTED', {
      what: 'ggml type has no decoder',
      expected: Object.keys(BLOCKS),
      got: type,
    })
  return BLOCKS[type]
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
