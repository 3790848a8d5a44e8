// All kernel sets over one memory, and a place to put numbers.
import { setFlagsFromString } from 'node:v8'
import { expect } from 'vitest'
import type { Kernels } from '#sluice/kernels/kernels.js'
import { createScalarKernels } from '#sluice/kernels/scalar/scalar.js'
import { compileKernels, createWasmKernels } from '#sluice/kernels/wasm/wasm.js'
import { ARENA_RESERVED_BYTES } from '#sluice/memory/memory.js'

setFlagsFromString('--experimental-wasm-relaxed-simd')
const modules = { baseline: compileKernels('wasm-baseline'), relaxed: compileKernels('wasm-relaxed') }

export class Sets {
  readonly memory: WebAssembly.Memory
  readonly scalar: Kernels
  readonly baseline: Kernels
  readonly relaxed: Kernels
  #next: number

  /** `start`: where allocation begins, for addresses past 2^31. */
  constructor(bytes = 4 * 2 ** 20, start = ARENA_RESERVED_BYTES) {
    const pages = Math.ceil((start + bytes) / 65536)
    this.memory = new WebAssembly.Memory({ initial: pages, maximum: 65536, shared: true })
    this.#next = start
    this.scalar = createScalarKernels(this.memory)
    this.baseline = createWasmKernels({
      set: 'wasm-baseline',
      module: modules.baseline,
      memory: this.memory,
      thread: 0,
    })
    this.relaxed = createWasmKernels({ set: 'wasm-relaxed', module: modules.relaxed, memory: this.memory, thread: 63 })
  }

  get all(): Kernels[] {
    return [this.scalar, this.baseline, this.relaxed]
  }

  /** Address of `bytes` new bytes at a multiple of 64 plus `misalign`, surrounded by 0xa5 that nobody may write or use. */
  alloc(bytes: number, misalign = 0): number {
    const address = this.#next + 64 + misalign
    this.#next = Math.ceil((address + bytes + 64) / 64) * 64
    if (this.#next > this.memory.buffer.byteLength) throw new Error('test memory is full')
    new Uint8Array(this.memory.buffer, address - 64, bytes + 128).fill(0xa5)
    return address
  }

  put(data: Uint8Array | Float32Array | Uint32Array, misalign = 0): number {
    const address = this.alloc(data.byteLength, misalign)
    new Uint8Array(this.memory.buffer).set(new Uint8Array(data.buffer, data.byteOffset, data.byteLength), address)
    return address
  }

  floats(address: number, count: number): Float32Array {
    return new Float32Array(this.memory.buffer, address, count)
  }

  bytes(address: number, count: number): Uint8Array {
    return new Uint8Array(this.memory.buffer, address, count)
  }

  /** What `run` writes into `bytes` zero bytes, as a copy, with a check that it wrote nowhere beside them. */
  result(bytes: number, run: (out: number) => void): Uint8Array {
    const mark = this.#next
    const out = this.alloc(bytes)
    this.bytes(out, bytes).fill(0)
    run(out)
    for (const at of [out - 64, out + bytes])
      if (this.bytes(at, 64).some((b) => b !== 0xa5)) throw new Error('a kernel wrote outside its output')
    const copy = this.bytes(out, bytes).slice()
    this.#next = mark
    return copy
  }

  /** Forgets all allocations. */
  reset(start = ARENA_RESERVED_BYTES): void {
    this.#next = start
  }
}

/** Reproducible numbers: uniform in [0, 1). */
export function seeded(seed: number): () => number {
  let s = seed >>> 0
  return () => {
    s = (s + 0x6d2b79f5) >>> 0
    let t = Math.imul(s ^ (s >>> 15), 1 | s)
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32
  }
}

/** float32 rows [tokens, stride], zero from `cols` on. */
export function activations(
  random: () => number,
  tokens: number,
  cols: number,
  stride: number,
  size = 1,
): Float32Array {
  const x = new Float32Array(tokens * stride)
  for (let t = 0; t < tokens; t++) for (let c = 0; c < cols; c++) x[t * stride + c] = (random() * 2 - 1) * size
  return x
}

export const asFloats = (bytes: Uint8Array) => new Float32Array(bytes.buffer, bytes.byteOffset, bytes.byteLength / 4)

/** The same bytes; a NaN is a NaN, whatever its sign and payload. (expect alone takes seconds over large arrays.) */
export function expectSame(got: Uint8Array | Float32Array, expected: Uint8Array | Float32Array): void {
  const raw = (a: Uint8Array | Float32Array) => Buffer.from(a.buffer, a.byteOffset, a.byteLength)
  if (raw(got).equals(raw(expected))) return
  if (got instanceof Float32Array) expect(got).toEqual(expected)
  else expect(asFloats(got)).toEqual(asFloats(expected as Uint8Array))
}
