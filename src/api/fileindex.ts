// The index of one safetensors or GGUF file from any source of bytes, and rows as numbers. No node: import: this part runs in a browser.
//
//   const source = new BlobSource(file)                      // from <input type="file">
//   const index = await readIndex(source)
//   const row = await readRows(source, index.tensors.get('model.norm.weight')!, 0, 1)

import type { DType } from '../base/dtype.ts'
import { ModelFormatError, ValidationError } from '../base/errors.ts'
import type { JsonObject } from '../base/json.ts'
import { mulSafe } from '../base/shape.ts'
import { parseGguf } from '../format/gguf/header.ts'
import { metadataObject } from '../format/gguf/metadata.ts'
import { ggmlEncoding } from '../format/gguf/types.ts'
import { Incomplete } from '../format/gguf/window.ts'
import { matrixView } from '../format/matrixview.ts'
import { headerLength, PREFIX_BYTES, parseHeader } from '../format/safetensors/header.ts'
import { codecOf } from '../quant/codec.ts'
import type { Encoding } from '../quant/scheme.ts'
import type { ByteSource } from '../source/source.ts'

/** One tensor of a file. */
export interface FileTensor {
  readonly name: string
  /** Slowest axis first, in every format. */
  readonly shape: readonly number[]
  /** What an element is to a reader; block-quantized ones decode to float32. */
  readonly dtype: DType
  readonly encoding: Encoding
  /** Matrix view: all leading axes as rows, the last one as columns. A vector is one row. */
  readonly rows: number
  readonly cols: number
  /** Bytes from the start of the file. */
  readonly offset: number
  /** Stored bytes. */
  readonly length: number
}

/** What the header of a file says. */
export interface FileIndex {
  readonly format: 'safetensors' | 'gguf'
  /** In storage order. */
  readonly tensors: ReadonlyMap<string, FileTensor>
  /** `__metadata__` of a safetensors file, all keys of a GGUF. */
  readonly metadata: JsonObject
  /** Bytes read to learn this. */
  readonly bytesRead: number
}

const GGUF_MAGIC = 0x46554747 // "GGUF", little-endian
const FIRST_READ = 16 * 1024

/**
 * Reads the header of a safetensors or GGUF file and no tensor. Every length is checked against the file's size first.
 * Throws FORMAT_INVALID, FORMAT_UNSUPPORTED, FORMAT_LIMIT, JSON_INVALID, and what the source throws.
 */
export async function readIndex(source: ByteSource): Promise<FileIndex> {
  const head = await source.read(0, Math.min(PREFIX_BYTES, source.size))
  const isGguf = head.length >= 4 && new DataView(head.buffer, head.byteOffset).getUint32(0, true) === GGUF_MAGIC
  return isGguf ? ggufIndex(source) : safetensorsIndex(source, head)
}

async function safetensorsIndex(source: ByteSource, prefix: Uint8Array): Promise<FileIndex> {
  const length = headerLength(prefix, source.size, source.id)
  const header = parseHeader(await source.read(PREFIX_BYTES, length), source.size, source.id)
  const tensors = header.tensors.map((t): [string, FileTensor] => {
    const { rows, cols } = matrixView(t.shape, t.name)
    return [t.name, { ...t, encoding: { kind: 'plain', dtype: t.dtype }, rows, cols }]
  })
  return {
    format: 'safetensors',
    tensors: new Map(tensors),
    metadata: { ...header.metadata },
    bytesRead: PREFIX_BYTES + length,
  }
}

async function ggufIndex(source: ByteSource): Promise<FileIndex> {
  // The header's length is not written down: read, and read more while the parser asks for it. It checks what it asks for.
  for (let wanted = Math.min(source.size, FIRST_READ); ; ) {
    try {
      const header = parseGguf(await source.read(0, wanted), source.size, source.id)
      const tensors = header.tensors.map((t): [string, FileTensor] => {
        const { rows, cols } = matrixView(t.shape, t.name)
        const { encoding, dtype } = ggmlEncoding(t.type, header.bigEndian)
        return [
          t.name,
          { name: t.name, shape: t.shape, dtype, encoding, rows, cols, offset: t.offset, length: t.length },
        ]
      })
      const metadata = metadataObject(header.metadata, source.id)
      return { format: 'gguf', tensors: new Map(tensors), metadata, bytesRead: wanted }
    } catch (error) {
      if (!(error instanceof Incomplete)) throw error
      wanted = Math.min(source.size, Math.max(error.needed, 2 * wanted))
    }
  }
}

/**
 * Rows [from, to) of a tensor's matrix view as float32 [to − from, cols]; only their bytes are read.
 * Throws TENSOR_RANGE, QUANT_UNSUPPORTED for blocks without a decoder, FORMAT_INVALID when the file's bytes do not fit the shape, and what the source throws.
 */
export async function readRows(
  source: ByteSource,
  tensor: FileTensor,
  from = 0,
  to = tensor.rows,
): Promise<Float32Array> {
  const { name, rows, cols } = tensor
  if (!Number.isSafeInteger(from) || !Number.isSafeInteger(to) || from < 0 || from > to || to > rows)
    throw new ValidationError('TENSOR_RANGE', {
      what: 'rows do not exist',
      where: `tensor ${name}`,
      expected: `0 ≤ from ≤ to ≤ ${rows}`,
      got: `${from}:${to}`,
      details: { tensor: name, rows, from, to },
    })
  const codec = codecOf(tensor.encoding)
  if (codec.byteLength(rows, cols) !== tensor.length)
    throw new ModelFormatError('FORMAT_INVALID', {
      what: 'stored bytes do not fit the shape',
      where: `tensor ${name}`,
      expected: codec.byteLength(rows, cols),
      got: tensor.length,
    })
  const start = codec.byteLength(from, cols)
  const bytes = await source.read(tensor.offset + start, codec.byteLength(to, cols) - start)
  const out = new Float32Array(mulSafe(to - from, cols, name))
  codec.decode(bytes, to - from, cols, out)
  return out
}
