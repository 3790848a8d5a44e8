// The fixed orders in which kernels add up. SIMD kernels have the same lanes.
const f = Math.fround

/** Four lanes to one: (0 + 1) + (2 + 3). */
export function sum4(l0: number, l1: number, l2: number, l3: number): number {
  return f(f(l0 + l1) + f(l2 + l3))
}

/** Eight partial sums, element i in lane i mod 8; lane k + 4 is added to lane k, then as sum4. */
export function sum8(l: Float32Array): number {
  return sum4(f(l[0]! + l[4]!), f(l[1]! + l[5]!), f(l[2]! + l[6]!), f(l[3]! + l[7]!))
}
