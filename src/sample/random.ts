// Seeded random numbers that are the same on every machine: xoshiro128** 1.1 (Blackman and Vigna, public domain,
// prng.di.unimi.it/xoshiro128starstar.c), its state filled by splitmix64 as its authors advise.

const MASK = (1n << 64n) - 1n

/** splitmix64 (Steele, Lea, Flood; prng.di.unimi.it/splitmix64.c): `count` outputs after `seed`. */
export function splitmix64(seed: bigint, count: number): bigint[] {
  let x = seed & MASK
  return Array.from({ length: count }, () => {
    x = (x + 0x9e3779b97f4a7c15n) & MASK
    let z = x
    z = ((z ^ (z >> 30n)) * 0xbf58476d1ce4e5b9n) & MASK
    z = ((z ^ (z >> 27n)) * 0x94d049bb133111ebn) & MASK
    return z ^ (z >> 31n)
  })
}

const rotl = (x: number, k: number): number => (x << k) | (x >>> (32 - k))

export class Random {
  readonly #s: Uint32Array

  /** `state`: four 32-bit words, not all zero. */
  constructor(state: readonly [number, number, number, number]) {
    this.#s = Uint32Array.from(state)
  }

  /** `seed`: any integer with |seed| ≤ 2^53. */
  static seeded(seed: number): Random {
    const [a, b] = splitmix64(BigInt(seed), 2) as [bigint, bigint]
    const low = (v: bigint): number => Number(v & 0xffffffffn)
    return new Random([low(a), low(a >> 32n), low(b), low(b >> 32n)])
  }

  /** The next 32 random bits, as an integer from 0. */
  uint32(): number {
    const s = this.#s as unknown as [number, number, number, number]
    const result = Math.imul(rotl(Math.imul(s[1], 5), 7), 9) >>> 0
    const t = s[1] << 9
    s[2] ^= s[0]
    s[3] ^= s[1]
    s[1] ^= s[2]
    s[0] ^= s[3]
    s[2] ^= t
    s[3] = rotl(s[3], 11)
    return result
  }

  /** Uniform in [0, 1), 53 bits. */
  next(): number {
    const high = this.uint32() >>> 5
    const low = this.uint32() >>> 6
    return (high * 0x4000000 + low) / 0x20000000000000
  }
}
