// The codec of any encoding, and how many bytes a matrix takes in it.

import { isDType } from '../base/dtype.ts'
import { ModelFormatError } from '../base/errors.ts'
import { mulSafe } from '../base/shape.ts'
import { ggmlBlock, ggmlBytes, ggmlCodec } from './ggml.ts'
import { panelCodec } from './panel.ts'
import { layoutBytes, panelLayout } from './panel-layout.ts'
import { plainBytes, plainCodec } from './plain.ts'
import type { Encoding, RowCodec } from './scheme.ts'

/** Throws QUANT_UNSUPPORTED for a kind, dtype, scheme, type or parameter that has no codec. */
export function codecOf(encoding: Encoding): RowCodec {
  switch (encoding.kind) {
    case 'plain':
      return plainCodec(encoding.dtype, encoding.bigEndian)
    case 'panel':
      return panelCodec(encoding)
    case 'ggml':
      return ggmlCodec(encoding.type, encoding.bigEndian)
    case 'opaque':
      return refuseOpaque(encoding.type)
    default:
      return unknownKind(encoding)
  }
}

/** Stored bytes of a rows × cols matrix. Throws FORMAT_INVALID past 2^53 or for columns that a ggml type cannot have. */
export function encodedBytes(encoding: Encoding, rows: number, cols: number): number {
  switch (encoding.kind) {
    case 'plain':
      if (!isDType(encoding.dtype))
        throw new ModelFormatError('QUANT_UNSUPPORTED', { what: 'dtype is not known', got: encoding.dtype })
      return plainBytes(encoding.dtype, rows, cols)
    case 'panel':
      return layoutBytes(panelLayout(encoding), rows, cols)
    case 'ggml':
      return ggmlBytes(ggmlBlock(encoding.type), rows, cols)
    case 'opaque':
      return mulSafe(rows, Math.ceil(cols / encoding.block) * encoding.blockBytes, encoding.type)
    default:
      return unknownKind(encoding)
  }
}

/** The error of every use of blocks as numbers that have no decoder. */
export function refuseOpaque(type: string, tensor?: string): never {
  throw new ModelFormatError('QUANT_UNSUPPORTED', {
    what: `quantization ${type} has no decoder`,
    ...(tensor === undefined ? {} : { where: `tensor ${tensor}` }),
    remedy: 'Use a model in another type: F32, F16, BF16, Q8_0, Q4_0, Q4_K and 20 more can be read.',
    details: { type, tensor },
  })
}

function unknownKind(encoding: never): never {
  throw new ModelFormatError('QUANT_UNSUPPORTED', {
    what: 'encoding is not known',
    expected: ['plain', 'panel', 'ggml'],
    got: (encoding as { kind?: unknown }).kind,
  })
}
