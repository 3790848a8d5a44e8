// Reads little-endian C-order .npy files of float32: enough for goldens written by numpy.
import { readFileSync } from 'node:fs'

export interface Npy {
  shape: number[]
  data: Float32Array
}

export function readNpy(path: string): Npy {
  const bytes = readFileSync(path)
  if (bytes.subarray(0, 6).toString('latin1') !== '\x93NUMPY') throw new Error(`${path} is not npy`)
  const v1 = bytes[6] === 1
  const headerLength = v1 ? bytes.readUInt16LE(8) : bytes.readUInt32LE(8)
  const at = v1 ? 10 : 12
  const header = bytes.subarray(at, at + headerLength).toString('latin1')
  if (!header.includes("'<f4'") || !header.includes("'fortran_order': False")) throw new Error(`${path}: ${header}`)
  const shape = /'shape': \(([^)]*)\)/
    .exec(header)![1]!
    .split(',')
    .map((s) => s.trim())
    .filter(Boolean)
    .map(Number)
  const data = new Float32Array(new Uint8Array(bytes.subarray(at + headerLength)).buffer)
  return { shape, data }
}

export function maxDifference(a: Float32Array, b: Float32Array): number {
  if (a.length !== b.length) return Number.POSITIVE_INFINITY
  let max = 0
  for (let i = 0; i < a.length; i++) {
    const d = Math.abs(a[i]! - b[i]!)
    if (!(d <= max)) max = d // NaN counts
  }
  return max
}
