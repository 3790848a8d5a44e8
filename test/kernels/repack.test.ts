// ggml rows to panels, against blocks decoded here from ggml's definition of Q4_0 and Q8_0, and ggml's own vectors.
import fc from 'fast-check'
import { expect, test } from 'vitest'
import { computeBytes, computeOf } from '#sluice/kernels/compute.js'
import type { Kernels } from '#sluice/kernels/kernels.js'
import { half } from './matrices.ts'
import { asFloats, Sets, seeded } from './sets.ts'

const sets = new Sets()

test.each(['Q4_0', 'Q8_0'] as const)('%s: the same numbers, in every set the same bytes', (type) => {
  const blockBytes = type === 'Q4_0' ? 18 : 34
  const c = computeOf({ kind: 'ggml', type })!
  fc.assert(
    fc.property(
      fc.integer({ min: 1, max: 35 }),
      fc.integer({ min: 1, max: 5 }),
      fc.nat(3),
      fc.integer(),
      (rows, blocks, misalign, seed) => {
        sets.reset()
        const random = seeded(seed)
        const cols = blocks * 32
        const ggml = Uint8Array.from({ length: rows * blocks * blockBytes }, () => random() * 256)
        // Finite scales.
        for (let b = 0; b < rows * blocks; b++) ggml[b * blockBytes + 1]! &= 0xbf
        const values = new Float32Array(rows * cols)
        const view = new DataView(ggml.buffer)
        for (let i = 0; i < values.length; i++) {
          const block = Math.floor(i / 32) * blockBytes
          const e = i % 32
          const d = half(view.getUint16(block, true))
          const q =
            type === 'Q8_0' ? view.getInt8(block + 2 + e) : ((ggml[block + 2 + (e % 16)]! >> (e < 16 ? 0 : 4)) & 15) - 8
          values[i] = q * d
        }
        const src = sets.put(ggml, misalign)
        const bytes = computeBytes(c, rows, cols)
        const run = (k: Kernels, dst: number) =>
          type === 'Q4_0' ? k.repackQ4_0(src, dst, rows, cols) : k.repackQ8_0(src, dst, rows, cols)
        const expected = sets.result(bytes, (dst) => run(sets.scalar, dst))
        for (const k of sets.all)
          expect(
            Buffer.compare(
              sets.result(bytes, (dst) => run(k, dst)),
              expected,
            ),
          ).toBe(0)
        const address = sets.put(expected)
        const m = { ...c, address, rows, cols }
        const decoded = asFloats(sets.result(rows * cols * 4, (out) => sets.baseline.decode(m, out, cols)))
        expect(decoded.every((v, i) => v === values[i])).toBe(true)
        // Rows that do not exist are zero, whatever the place held before.
        const missing = { ...m, address: address + computeBytes(c, rows - (rows % 16 || 16), cols), rows: 16 }
        const panel = asFloats(sets.result(16 * cols * 4, (out) => sets.scalar.decode(missing, out, cols)))
        expect(panel.subarray((rows % 16 || 16) * cols).every((v) => v === 0)).toBe(true)
      },
    ),
    { numRuns: 40 },
  )
})
