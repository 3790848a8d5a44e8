// GGUF files built by hand, field by field after ggml's docs/gguf.md, so that tests need no file of others.

export interface Options {
  version?: number
  bigEndian?: boolean
  alignment?: number
}

/** Value types by number. A value is written as the type says. */
export type Meta = readonly [key: string, type: number, value: unknown]

export interface Tensor {
  name: string
  /** As the file has it: innermost first. */
  ne: readonly number[]
  type: number
  bytes: Uint8Array
  /** Instead of the right one. */
  offset?: number
}

export const U32 = 4
export const STRING = 8
export const ARRAY = 9

export class Bytes {
  #bytes = new Uint8Array(1024)
  #length = 0
  readonly little: boolean

  constructor(bigEndian = false) {
    this.little = !bigEndian
  }

  get length(): number {
    return this.#length
  }

  view(n: number): DataView {
    while (this.#length + n > this.#bytes.length) {
      const grown = new Uint8Array(this.#bytes.length * 2)
      grown.set(this.#bytes)
      this.#bytes = grown
    }
    this.#length += n
    return new DataView(this.#bytes.buffer, this.#length - n, n)
  }

  raw(bytes: Uint8Array): this {
    const v = this.view(bytes.length)
    new Uint8Array(v.buffer, v.byteOffset, bytes.length).set(bytes)
    return this
  }

  u32(n: number): this {
    this.view(4).setUint32(0, n, this.little)
    return this
  }

  u64(n: number | bigint): this {
    this.view(8).setBigUint64(0, BigInt.asUintN(64, BigInt(n)), this.little)
    return this
  }

  string(s: string): this {
    const bytes = new TextEncoder().encode(s)
    return this.u64(bytes.length).raw(bytes)
  }

  value(type: number, value: unknown): this {
    const little = this.little
    if (type === STRING) return this.string(value as string)
    if (type === ARRAY) {
      const [element, items] = value as [number, unknown[]]
      this.u32(element).u64(items.length)
      for (const item of items) this.value(element, item)
      return this
    }
    if (type === 10 || type === 11) return this.u64(value as bigint)
    const n = Number(value)
    if (type === 0 || type === 1 || type === 7) this.view(1).setUint8(0, n & 255)
    else if (type === 2 || type === 3) this.view(2).setUint16(0, n & 65535, little)
    else if (type === 4 || type === 5) this.view(4).setUint32(0, n >>> 0, little)
    else if (type === 6) this.view(4).setFloat32(0, n, little)
    else if (type === 12) this.view(8).setFloat64(0, n, little)
    else this.u32(0)
    return this
  }

  pad(unit: number): this {
    this.view((unit - (this.#length % unit)) % unit)
    return this
  }

  done(): Uint8Array {
    return this.#bytes.slice(0, this.#length)
  }
}

export function gguf(metadata: readonly Meta[], tensors: readonly Tensor[], options: Options = {}): Uint8Array {
  const { version = 3, bigEndian = false, alignment = 32 } = options
  const b = new Bytes(bigEndian)
  b.raw(new TextEncoder().encode('GGUF')).u32(version).u64(tensors.length).u64(metadata.length)
  for (const [key, type, value] of metadata) b.string(key).u32(type).value(type, value)
  let offset = 0
  for (const t of tensors) {
    b.string(t.name).u32(t.ne.length)
    for (const n of t.ne) b.u64(n)
    b.u32(t.type).u64(t.offset ?? offset)
    offset += Math.ceil(t.bytes.length / alignment) * alignment
  }
  b.pad(alignment)
  for (const t of tensors) b.raw(t.bytes).pad(alignment)
  return b.done()
}
