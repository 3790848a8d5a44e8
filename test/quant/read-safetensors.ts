// Just enough safetensors for tests of number formats: name → bytes and shape.
import { readFileSync } from 'node:fs'

export function readSafetensors(path: string): Map<string, { dtype: string; shape: number[]; bytes: Uint8Array }> {
  const file = readFileSync(path)
  const start = 8 + Number(file.readBigUInt64LE(0))
  const header = JSON.parse(file.toString('utf8', 8, start)) as Record<
    string,
    { dtype: string; shape: number[]; data_offsets: [number, number] }
  >
  const tensors = new Map<string, { dtype: string; shape: number[]; bytes: Uint8Array }>()
  for (const [name, t] of Object.entries(header)) {
    if (name === '__metadata__') continue
    const [from, to] = t.data_offsets
    tensors.set(name, {
      dtype: t.dtype,
      shape: t.shape,
      bytes: new Uint8Array(file.subarray(start + from, start + to)),
    })
  }
  return tensors
}

export function asFloats(bytes: Uint8Array): Float32Array {
  return new Float32Array(bytes.slice().buffer)
}
