// The key/value part of a GGUF file, read by the specification (ggml-org/ggml, docs/gguf.md), for tests of what is made from it.
import { readFileSync } from 'node:fs'
import type { JsonObject, JsonValue } from '#sluice/base/json.js'

export function readGgufMetadata(path: string): JsonObject {
  const bytes = readFileSync(path)
  let at = 4 + 4 + 8
  const u64 = () => {
    at += 8
    return Number(bytes.readBigUInt64LE(at - 8))
  }
  const take = (size: number) => {
    at += size
    return at - size
  }
  const text = () => {
    const length = u64()
    return bytes.toString('utf8', take(length), at)
  }
  const value = (type: number): JsonValue => {
    switch (type) {
      case 0:
        return bytes.readUInt8(take(1))
      case 1:
        return bytes.readInt8(take(1))
      case 2:
        return bytes.readUInt16LE(take(2))
      case 3:
        return bytes.readInt16LE(take(2))
      case 4:
        return bytes.readUInt32LE(take(4))
      case 5:
        return bytes.readInt32LE(take(4))
      case 6:
        return bytes.readFloatLE(take(4))
      case 7:
        return bytes.readUInt8(take(1)) !== 0
      case 8:
        return text()
      case 9: {
        const item = bytes.readUInt32LE(take(4))
        return Array.from({ length: u64() }, () => value(item))
      }
      case 10:
        return u64()
      case 12:
        return bytes.readDoubleLE(take(8))
      default:
        throw new Error(`type ${type}`)
    }
  }
  const config: JsonObject = {}
  for (let left = u64(); left > 0; left--) {
    const key = text()
    config[key] = value(bytes.readUInt32LE(take(4)))
  }
  return config
}
