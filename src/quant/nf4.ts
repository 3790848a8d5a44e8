// The 4-bit normal float of QLoRA (arXiv:2305.14314, appendix E; the codebook of bitsandbytes): 16 values in [-1, 1], 7 is 0.

/** Value of each code, ascending. */
export const NF4 = new Float32Array([
  -1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635, -0.18477343022823334,
  -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224,
  0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0,
])

/** Midpoints: code i + 1 is nearer than i above NF4_MIDPOINTS[i]. The last one is never passed. */
const MIDPOINTS = new Float64Array(16).fill(Number.POSITIVE_INFINITY)
for (let i = 0; i < 15; i++) MIDPOINTS[i] = (NF4[i]! + NF4[i + 1]!) / 2

// 64 cells of width 1/32 over [-1, 1]: midpoints are farther apart than that, so a cell's lowest code is at most one too low.
const CELL = new Uint8Array(65)
for (let cell = 0; cell <= 64; cell++) {
  let code = 0
  while (cell / 32 - 1 > MIDPOINTS[code]!) code++
  CELL[cell] = code
}

/** Nearest code of a finite x; outside [-1, 1] the end codes. A tie goes to the lower code, as in bitsandbytes. */
export function encodeNf4(x: number): number {
  const cell = x <= -1 ? 0 : x >= 1 ? 64 : (x * 32 + 32) | 0
  const code = CELL[cell]!
  return x > MIDPOINTS[code]! ? code + 1 : code
}
