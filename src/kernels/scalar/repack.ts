// ggml rows to row panels: the same codes and scales in another order. Block formats: ggml's Q4_0 (float16 scale, 16 bytes: byte
// i holds element i low, element i + 16 high) and Q8_0 (float16 scale, 32 signed bytes).
import type { Views } from './views.ts'

const BLOCK = 32

/** Element `e` of a Q4_0 block at `at`, as its 4-bit code. */
function q4At(v: Views, at: number, e: number): number {
  const byte = v.u8[at + 2 + (e & 15)]!
  return e < 16 ? byte & 15 : byte >> 4
}

export function repackQ4_0(v: Views, src: number, dst: number, rows: number, cols: number): void {
  const blocks = cols / BLOCK
  for (let panel = 0; panel * 16 < rows; panel++)
    for (let b = 0; b < blocks; b++) {
      const to = dst + (panel * blocks + b) * 288
      for (let r = 0; r < 16; r++) {
        const row = panel * 16 + r
        const from = src + (row * blocks + b) * 18
        const exists = row < rows
        for (let c = 0; c < 4; c++)
          for (let j = 0; j < 4; j++)
            v.u8[to + c * 64 + r * 4 + j] = exists ? q4At(v, from, c * 8 + j) | (q4At(v, from, c * 8 + 4 + j) << 4) : 0
        v.u8[to + 256 + r * 2] = exists ? v.u8[from]! : 0
        v.u8[to + 257 + r * 2] = exists ? v.u8[from + 1]! : 0
      }
    }
}

export function repackQ8_0(v: Views, src: number, dst: number, rows: number, cols: number): void {
  const blocks = cols / BLOCK
  for (let panel = 0; panel * 16 < rows; panel++)
    for (let b = 0; b < blocks; b++) {
      const to = dst + (panel * blocks + b) * 544
      for (let r = 0; r < 16; r++) {
        const row = panel * 16 + r
        const from = src + (row * blocks + b) * 34
        const exists = row < rows
        for (let e = 0; e < BLOCK; e++) v.u8[to + (e >> 2) * 64 + r * 4 + (e & 3)] = exists ? v.u8[from + 2 + e]! : 0
        v.u8[to + 512 + r * 2] = exists ? v.u8[from]! : 0
        v.u8[to + 513 + r * 2] = exists ? v.u8[from + 1]! : 0
      }
    }
}
