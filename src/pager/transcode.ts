// Turns stored bytes into the form kernels compute with, in place or from a staging area.
import { toExactForm } from '../quant/ggml-form.ts'
import type { GgmlType } from '../quant/scheme.ts'
import type { GgmlTranscode, Transcode } from './pages.ts'

/** Repack kernels, bound to the memory of the staging area. Addresses are byte offsets there. */
export interface Repack {
  repackQ4_0(src: number, dst: number, rows: number, cols: number): void
  repackQ8_0(src: number, dst: number, rows: number, cols: number): void
}

/** Bytes of a ggml block of 32 columns: a float16 scale, then codes. */
const GGML_BLOCK = { q4_0: 18, q8_0: 34 } as const

/** Reverses the bytes of every element of `size` bytes. */
export function swapElements(bytes: Uint8Array, size: 2 | 4): void {
  for (let i = 0; i + size <= bytes.length; i += size) {
    const first = bytes[i]!
    bytes[i] = bytes[i + size - 1]!
    bytes[i + size - 1] = first
    if (size === 4) {
      const second = bytes[i + 1]!
      bytes[i + 1] = bytes[i + 2]!
      bytes[i + 2] = second
    }
  }
}

/** In place: plain elements, and the scales of ggml blocks, from big- to little-endian. Other transcodes leave the bytes alone (decodePage looks at the order itself). */
export function toLittleEndian(bytes: Uint8Array, transcode: Transcode): void {
  if (transcode === 'swap2') swapElements(bytes, 2)
  else if (transcode === 'swap4') swapElements(bytes, 4)
  else if (transcode === 'q4_0be' || transcode === 'q8_0be') {
    const block = transcode === 'q4_0be' ? GGML_BLOCK.q4_0 : GGML_BLOCK.q8_0
    for (let i = 0; i < bytes.length; i += block) swapElements(bytes.subarray(i, i + 2), 2)
  }
}

/** Lays ggml rows out as panels, from one address of the staging memory to another. */
export function repackPage(
  repack: Repack,
  transcode: Transcode,
  src: number,
  dst: number,
  rows: number,
  cols: number,
): void {
  if (transcode.startsWith('q4_0')) repack.repackQ4_0(src, dst, rows, cols)
  else repack.repackQ8_0(src, dst, rows, cols)
}

/** Decodes ggml rows into their exact form, from and to any memory. */
export function decodePage(
  transcode: GgmlTranscode,
  stored: Uint8Array,
  rows: number,
  cols: number,
  to: Uint8Array,
): void {
  const [order, type] = transcode.split(':') as ['ggml' | 'ggml-be', GgmlType]
  toExactForm(type, stored, rows, cols, to, order === 'ggml-be')
}
