// ggml blocks taken apart: a code for every column, a scale for every group of columns, and a minimum where the type has them.
//   value = code·scale, or code·scale + minimum
// Scales and products are exact in float32 for every type (at most 11 bits of float16 times the bits of sub-scale and code), so a value is
// rounded once at most, in the sum: as in ggml. Layouts are those of ggml-common.h.
import { halfTable } from './half.ts'
import type { GgmlType } from './scheme.ts'

/** Room for the numbers of one block. */
export interface BlockNumbers {
  /** [columns] */
  readonly codes: Int8Array
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
  unpack(bytes: Uint8Array, at: number, out: BlockNumbers, bigEndian: boolean): void
}

export function blockNumbers(block: PackedBlock): BlockNumbers {
  const groups = block.columns / block.group
  return {
    codes: new Int8Array(block.columns),
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
  const { columns, group } = block
  const numbers = blockNumbers(block)
  const { codes, scales, minima } = numbers
  for (let b = 0, o = 0; b < blocks; b++) {
    block.unpack(bytes, b * block.bytes, numbers, bigEndian)
    for (let c = 0, g = 0; c < columns; g++) {
      const scale = scales[g]!
      const minimum = minima[g]!
      const end = c + group
      // Adding 0 would turn a negative zero into a positive one.
      if (block.minima) for (; c < end; c++) out[o++] = codes[c]! * scale + minimum
      else for (; c < end; c++) out[o++] = codes[c]! * scale
    }
  }
}

/** Unsigned 16-bit field. */
export function u16(bytes: Uint8Array, at: number, bigEndian: boolean): number {
  return bigEndian ? (bytes[at]! << 8) | bytes[at + 1]! : bytes[at]! | (bytes[at + 1]! << 8)
}

/** Unsigned 32-bit field. */
export function u32(bytes: Uint8Array, at: number, bigEndian: boolean): number {
  const a = u16(bytes, at, bigEndian)
  const b = u16(bytes, at + 2, bigEndian)
  return (bigEndian ? (a << 16) | b : a | (b << 16)) >>> 0
}

/** float16 field. */
export function f16(bytes: Uint8Array, at: number, bigEndian: boolean): number {
  return halfTable()[u16(bytes, at, bigEndian)]!
}
