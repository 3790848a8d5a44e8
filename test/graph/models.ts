// Reads the small models of the data folder with a parser of its own: safetensors (F32, F16, BF16) and GGUF (F32, F16) whole into memory.
import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import type { JsonObject, JsonValue } from '#sluice/base/json.js'
import type { Weight } from './interpreter.ts'

export interface SmallModel {
  readonly config: JsonObject
  readonly format: 'safetensors' | 'gguf'
  readonly tensors: Map<string, Weight>
}

function half(bits: number): number {
  const [sign, exponent, fraction] = [bits & 0x8000 ? -1 : 1, (bits >> 10) & 31, bits & 1023]
  if (exponent === 0) return sign * fraction * 2 ** -24
  return sign * (1 + fraction / 1024) * 2 ** (exponent - 15)
}

function decode(bytes: Buffer, type: string): Float32Array {
  const size = type === 'F32' ? 4 : 2
  const out = new Float32Array(bytes.length / size)
  const bits = new DataView(new ArrayBuffer(4))
  for (let i = 0; i < out.length; i++) {
    if (type === 'F32') out[i] = bytes.readFloatLE(4 * i)
    else if (type === 'F16') out[i] = half(bytes.readUInt16LE(2 * i))
    else if (type === 'BF16') {
      bits.setUint32(0, bytes.readUInt16LE(2 * i) * 65536)
      out[i] = bits.getFloat32(0)
    } else throw new Error(`type ${type}`)
  }
  return out
}

export function readSafetensors(file: string): Map<string, Weight> {
  const bytes = readFileSync(file)
  const n = Number(bytes.readBigUInt64LE(0))
  const header = JSON.parse(bytes.subarray(8, 8 + n).toString()) as Record<
    string,
    { dtype: string; shape: number[]; data_offsets: [number, number] }
  >
  const tensors = new Map<string, Weight>()
  for (const [name, t] of Object.entries(header)) {
    if (name === '__metadata__') continue
    const [from, to] = t.data_offsets
    tensors.set(name, { shape: t.shape, data: decode(bytes.subarray(8 + n + from, 8 + n + to), t.dtype) })
  }
  return tensors
}

export function readCheckpoint(folder: string): SmallModel {
  const tensors = new Map<string, Weight>()
  for (const file of readdirSync(folder)
    .filter((f) => f.endsWith('.safetensors'))
    .sort())
    for (const [name, weight] of readSafetensors(join(folder, file))) tensors.set(name, weight)
  return {
    config: JSON.parse(readFileSync(join(folder, 'config.json'), 'utf8')) as JsonObject,
    format: 'safetensors',
    tensors,
  }
}

/** Version 3, little-endian. */
export function readGgufModel(file: string): SmallModel {
  const bytes = readFileSync(file)
  let at = 8
  const skip = (n: number) => {
    at += n
    return at - n
  }
  const u32 = () => bytes.readUInt32LE(skip(4))
  const u64 = () => Number(bytes.readBigUInt64LE(skip(8)))
  const text = () => {
    const n = u64()
    return bytes.subarray(at, skip(n) + n).toString()
  }
  const value = (type: number): JsonValue => {
    if (type === 8) return text()
    if (type === 9) {
      const of = u32()
      return Array.from({ length: u64() }, () => value(of))
    }
    if (type === 10) return u64()
    if (type === 6) return bytes.readFloatLE(skip(4))
    if (type === 4 || type === 5) return type === 4 ? u32() : bytes.readInt32LE(skip(4))
    if (type === 7) return bytes[skip(1)] === 1
    throw new Error(`metadata type ${type}`)
  }
  const [count, keys] = [u64(), u64()]
  const config: JsonObject = {}
  for (let i = 0; i < keys; i++) {
    const key = text()
    config[key] = value(u32())
  }
  const infos = Array.from({ length: count }, () => {
    const name = text()
    const shape = Array.from({ length: u32() }, u64).reverse()
    return { name, shape, type: u32(), offset: u64() }
  })
  const start = Math.ceil(at / 32) * 32
  const tensors = new Map<string, Weight>()
  for (const { name, shape, type, offset } of infos) {
    const size = shape.reduce((a, b) => a * b, 1) * (type === 0 ? 4 : 2)
    tensors.set(name, {
      shape,
      data: decode(bytes.subarray(start + offset, start + offset + size), type === 0 ? 'F32' : 'F16'),
    })
  }
  return { config, format: 'gguf', tensors }
}

/** A float32 .npy, C order. */
export function readNpy(file: string): Weight {
  const bytes = readFileSync(file)
  const n = bytes.readUInt16LE(8)
  const header = bytes.subarray(10, 10 + n).toString()
  if (!header.includes("'<f4'") || !header.includes("'fortran_order': False")) throw new Error(header)
  const shape = /\(([^)]*)\)/
    .exec(header)![1]!
    .split(',')
    .filter((s) => s.trim() !== '')
    .map(Number)
  return { shape, data: decode(bytes.subarray(10 + n), 'F32') }
}

export function largestDifference(a: ArrayLike<number>, b: ArrayLike<number>): number {
  if (a.length !== b.length) throw new Error(`lengths ${a.length} and ${b.length}`)
  let worst = 0
  // NaN must not pass as small.
  for (let i = 0; i < a.length; i++)
    worst = Math.max(worst, Number.isNaN(a[i]! - b[i]!) ? Infinity : Math.abs(a[i]! - b[i]!))
  return worst
}
