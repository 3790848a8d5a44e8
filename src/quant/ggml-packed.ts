// ggml blocks taken apart: a code for every column, a scale for every group of columns, and a minimum where the type has them.
//   value = code·scale, or code·scale + minimum
// Scales and products are exact in float32 for every type (at most 11 bits of float16 times the bits of sub-scale and code), so a value is
// rounded once at most, in the sum: as in ggml. Layouts are those of ggml-common.h.
import { halfTable } from './half.ts'
import type { GgmlType } from './scheme.ts'

const HOST_LITTLE_ENDIAN = new Uint8Array(new Uint16Array([1]).buffer)[0] === 1

/** Room for the numbers of one block. */
export interface BlockNumbers {
  /** [columns] */
  readonly codes: Int8Array
  /** The same codes, four at a time. */
  readonly words: Int32Array
  /** [columns / group] */
  readonly scales: Float32Array
  /** [columns / group]; zeros for types without minima. */
  readonly minima: Float32Array
}

export interface PackedBlock {
  readonly type: GgmlType
  /** Columns and bytes of a block. */
  readonly columns: number
  readonly bytes: number
  /** Columns that share a scale. */
  readonly group: number
  readonly minima: boolean
  /** Takes the block at `at` apart. Fields of 16 and 32 bits are swapped in big-endian files. */
  unpack(view: DataView, at: number, out: BlockNumbers, bigEndian: boolean): void
}

export function blockNumbers(block: PackedBlock): BlockNumbers {
  const groups = block.columns / block.group
  const codes = new Int8Array(block.columns)
  return {
    codes,
    words: new Int32Array(codes.buffer),
    scales: new Float32Array(groups),
    minima: new Float32Array(groups),
  }
}

/** Decodes `blocks` blocks from the start of `bytes`. */
export function decodePacked(
  block: PackedBlock,
  bytes: Uint8Array,
  blocks: number,
  out: Float32Array,
  bigEndian: boolean,
): void {
  const { columns, group, minima } = block
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length)
  const numbers = blockNumbers(block)
  for (let b = 0; b < blocks; b++) {
    block.unpack(view, b * block.bytes, numbers, bigEndian)
    if (minima) scaleAndShift(numbers, columns, group, out, b * columns)
    else scale(numbers, columns, group, out, b * columns)
  }
}

function scale({ codes, scales }: BlockNumbers, columns: number, group: number, out: Float32Array, to: number): void {
  for (let c = 0, g = 0; c < columns; g++) {
    const s = scales[g]!
    for (const end = c + group; c < end; c += 4) {
      out[to + c] = codes[c]! * s
      out[to + c + 1] = codes[c + 1]! * s
      out[to + c + 2] = codes[c + 2]! * s
      out[to + c + 3] = codes[c + 3]! * s
    }
  }
}

function scaleAndShift(
  { codes, scales, minima }: BlockNumbers,
  columns: number,
  group: number,
  out: Float32Array,
  to: number,
): void {
  for (let c = 0, g = 0; c < columns; g++) {
    const s = scales[g]!
    const m = minima[g]!
    for (const end = c + group; c < end; c += 4) {
      out[to + c] = codes[c]! * s + m
      out[to + c + 1] = codes[c + 1]! * s + m
      out[to + c + 2] = codes[c + 2]! * s + m
      out[to + c + 3] = codes[c + 3]! * s + m
    }
  }
}

/** float16 field. */
export function f16(view: DataView, at: number, bigEndian: boolean): number {
  return halfTable()[view.getUint16(at, !bigEndian)]!
}

/** Four bytes at once, in the order of `words`: for operations that treat all bytes alike. */
export function fourBytes(view: DataView, at: number): number {
  return view.getUint32(at, HOST_LITTLE_ENDIAN)
}

/** 16 bytes of nibbles at `at`: the low ones become columns c … c+15, the high ones columns c+16 … c+31. */
export function nibbles16(view: DataView, at: number, words: Int32Array, c: number): void {
  const w = c >> 2
  for (let i = 0; i < 4; i++) {
    const four = fourBytes(view, at + 4 * i)
    words[w + i] = four & 0x0f0f0f0f
    words[w + i + 4] = (four >>> 4) & 0x0f0f0f0f
  }
}

/** 32 bytes of nibbles at `at`: the low ones become columns c … c+31, the high ones columns c+32 … c+63. */
export function nibbles32(view: DataView, at: number, words: Int32Array, c: number): void {
  const w = c >> 2
  for (let i = 0; i < 8; i++) {
    const four = fourBytes(view, at + 4 * i)
    words[w + i] = four & 0x0f0f0f0f
    words[w + i + 8] = (four >>> 4) & 0x0f0f0f0f
  }
}
