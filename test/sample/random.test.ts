import { expect, test } from 'vitest'
import { Random, splitmix64 } from '#sluice/sample/random.js'

// Made by compiling the authors' C files (xoshiro128starstar.c, splitmix64.c) and printing the first outputs.
test('xoshiro128** from the state 1, 2, 3, 4', () => {
  const random = new Random([1, 2, 3, 4])
  expect(Array.from({ length: 10 }, () => random.uint32())).toEqual([
    11520, 0, 5927040, 70819200, 2031721883, 1637235492, 1287239034, 3734860849, 3729100597, 4258142804,
  ])
})

test('splitmix64 from the seed 1234567', () => {
  expect(splitmix64(1234567n, 5)).toEqual([
    6457827717110365317n,
    3203168211198807973n,
    9817491932198370423n,
    4593380528125082431n,
    16408922859458223821n,
  ])
})

test('numbers lie in [0, 1), and have the mean and variance of a uniform variable', () => {
  const random = Random.seeded(7)
  const n = 100_000
  let sum = 0
  let squares = 0
  for (let i = 0; i < n; i++) {
    const x = random.next()
    expect(x >= 0 && x < 1).toBe(true)
    sum += x
    squares += (x - 0.5) ** 2
  }
  // Five standard errors.
  expect(Math.abs(sum / n - 1 / 2)).toBeLessThan(5 * Math.sqrt(1 / 12 / n))
  expect(Math.abs(squares / n - 1 / 12)).toBeLessThan(5 * Math.sqrt(1 / 180 / n))
})

test('seeds differ, also negative and large ones, and repeat', () => {
  const first = (seed: number) => Random.seeded(seed).next()
  const seeds = [0, 1, -1, 2, 2 ** 32, 2 ** 53 - 1, -(2 ** 53 - 1)]
  expect(new Set(seeds.map(first)).size).toBe(seeds.length)
  for (const seed of seeds) expect(first(seed)).toBe(first(seed))
})
