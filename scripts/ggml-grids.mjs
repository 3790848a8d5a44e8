// Writes src/quant/ggml-iq-grids.ts: the lattice points of ggml's IQ1, IQ2 and IQ3 types, packed, from a ggml-common.h.
//   node scripts/ggml-grids.mjs path/to/ggml-common.h
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'

// Name, bytes of a point, the numbers a byte can be (code 0, 1, …), bits of a code here.
const GRIDS = [
  ['IQ2_XXS', 'iq2xxs_grid', 8, [8, 25, 43], 2],
  ['IQ2_XS', 'iq2xs_grid', 8, [8, 25, 43], 2],
  ['IQ2_S', 'iq2s_grid', 8, [8, 25, 43], 2],
  ['IQ3_XXS', 'iq3xxs_grid', 4, [4, 12, 20, 28, 36, 44, 52, 62], 4],
  ['IQ3_S', 'iq3s_grid', 4, [1, 3, 5, 7, 9, 11, 13, 15], 4],
  ['IQ1_S', 'iq1s_grid', 8, [-1, 0, 1], 2],
]

const header = readFileSync(process.argv[2], 'utf8')
const parts = GRIDS.map(([name, symbol, width, numbers, bits]) => {
  const table = new RegExp(`GGML_TABLE_BEGIN\\(\\w+, ${symbol}, \\w+\\)([^]*?)GGML_TABLE_END`).exec(header)[1]
  const bytes = table.match(/0x[0-9a-fA-F]+/g).flatMap((word) => {
    const point = Buffer.alloc(8)
    point.writeBigUInt64LE(BigInt(word))
    return [...point.subarray(0, width)].map((b) => (b << 24) >> 24)
  })
  const perByte = 8 / bits
  const packed = Buffer.alloc(bytes.length / perByte)
  bytes.forEach((b, i) => {
    const code = numbers.indexOf(b)
    if (code < 0) throw new Error(`${symbol}: ${b} is not a number of this grid`)
    packed[Math.floor(i / perByte)] |= code << ((i % perByte) * bits)
  })
  const lines = packed.toString('base64').match(/.{1,104}/g)
  return `  ${name}: packed(
    ${width},
    [${numbers.join(', ')}],
    ${bits},
${lines.map((l, i) => `    ${i === 0 ? '' : '  '}'${l}'`).join(' +\n')},
  ),`
})
writeFileSync(
  join(import.meta.dirname, '../src/quant/ggml-iq-grids.ts'),
  `// Lattice points that ggml's IQ1, IQ2 and IQ3 types choose from: numbers of ggml-common.h (ggml, MIT licence), packed to 2 or 4 bits each.
// Made by scripts/ggml-grids.mjs.

export interface IqGrid {
  /** Columns of a point. */
  readonly width: 4 | 8
  /** Numbers of point p at width·p. */
  readonly points: Int8Array
}

interface Packed {
  readonly width: 4 | 8
  readonly numbers: readonly number[]
  readonly bits: 2 | 4
  readonly base64: string
}

const packed = (width: 4 | 8, numbers: readonly number[], bits: 2 | 4, base64: string): Packed => ({
  width,
  numbers,
  bits,
  base64,
})

const made = new Map<string, IqGrid>()

/** The points of a type. IQ1_M has those of IQ1_S. Unpacked on first use. */
export function iqGrid(name: keyof typeof GRIDS): IqGrid {
  const known = made.get(name)
  if (known !== undefined) return known
  const { width, numbers, bits, base64 } = GRIDS[name]
  const bytes = Buffer.from(base64, 'base64')
  const perByte = 8 / bits
  const points = new Int8Array(bytes.length * perByte)
  for (let i = 0; i < points.length; i++)
    points[i] = numbers[(bytes[Math.floor(i / perByte)]! >> ((i % perByte) * bits)) & ((1 << bits) - 1)]!
  const grid = { width, points }
  made.set(name, grid)
  return grid
}

const GRIDS = {
${parts.join('\n')}
} satisfies Record<string, Packed>
`,
)
