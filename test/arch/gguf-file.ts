// Writes a model as a GGUF file, version 3 (ggml, docs/gguf.md): float32 tensors, metadata of strings, lists of strings, counts and numbers.
import { writeFileSync } from 'node:fs'
import type { SmallModel } from '../graph/models.ts'

const ALIGNMENT = 32
const U32 = 4
const F32 = 6
const STRING = 8
const ARRAY = 9

export function writeGguf(path: string, { config, tensors }: SmallModel): void {
  const parts: Buffer[] = []
  const number = (size: 4 | 8, value: number) => {
    const b = Buffer.alloc(size)
    if (size === 4) b.writeUInt32LE(value)
    else b.writeBigUInt64LE(BigInt(value))
    parts.push(b)
  }
  const text = (s: string) => {
    number(8, Buffer.byteLength(s))
    parts.push(Buffer.from(s))
  }
  parts.push(Buffer.from('GGUF'))
  number(4, 3)
  number(8, tensors.size)
  number(8, Object.keys(config).length)
  for (const [key, value] of Object.entries(config)) {
    text(key)
    if (typeof value === 'string') {
      number(4, STRING)
      text(value)
    } else if (Array.isArray(value)) {
      number(4, ARRAY)
      number(4, STRING)
      number(8, value.length)
      for (const v of value) text(v as string)
    } else if (Number.isInteger(value) && !/scale|base|factor/.test(key)) {
      number(4, U32)
      number(4, value as number)
    } else {
      number(4, F32)
      const b = Buffer.alloc(4)
      b.writeFloatLE(value as number)
      parts.push(b)
    }
  }
  let offset = 0
  const padded = (n: number) => Math.ceil(n / ALIGNMENT) * ALIGNMENT
  for (const [name, { shape, data }] of tensors) {
    text(name)
    number(4, shape.length)
    // GGUF lists the fastest dimension first.
    for (const n of shape.toReversed()) number(8, n)
    number(4, 0)
    number(8, offset)
    offset += padded(4 * data.length)
  }
  const header = parts.reduce((n, b) => n + b.length, 0)
  parts.push(Buffer.alloc(padded(header) - header))
  for (const { data } of tensors.values()) {
    const bytes = Buffer.from(Float32Array.from(data).buffer)
    parts.push(bytes, Buffer.alloc(padded(bytes.length) - bytes.length))
  }
  writeFileSync(path, Buffer.concat(parts))
}
