// The self-test of a kernel set: every kernel on real block data against its scalar twin. Engines have miscompiled relaxed integer
// dot products (V8 of Node 20), so a set is used only after it has computed the right numbers in this process.
import { ARENA_RESERVED_BYTES } from '../memory/memory.ts'
import { blockBytes } from './compute.ts'
import { COMPUTE, type ComputeId, type Kernels, type MatrixBlock } from './kernels.ts'
import { createScalarKernels } from './scalar/scalar.ts'
import { createWasmKernels, type WasmSetName } from './wasm/wasm.ts'

const MEMORY_PAGES = 64
/** Places in the test's memory: weights, activations, and what scalar and the tested set write. */
const WEIGHTS = ARENA_RESERVED_BYTES
const INPUT = WEIGHTS + 0x80000
const QUANTIZED = INPUT + 0x40000
const EXPECTED = QUANTIZED + 0x40000
const OUTPUT_BYTES = 0x4000
const GOT = EXPECTED + OUTPUT_BYTES
/** Relaxed multiply-add rounds once where scalar rounds twice: results may differ by this share of the largest of them. */
const RELAXED_ERROR = 2e-5
/** Calls after which V8 has replaced first-tier code by optimised code, and both have been compared. */
const WARM_CALLS = 60

const PANELS: readonly ComputeId[] = [
  COMPUTE.int8,
  COMPUTE.int4,
  COMPUTE.int4m,
  COMPUTE.nf4,
  COMPUTE.fp8_e4m3,
  COMPUTE.fp8_e5m2,
]

/** Undefined when the set computes what scalar computes, else what differs. */
export function selfTest(set: WasmSetName, module: WebAssembly.Module): string | undefined {
  try {
    const memory = new WebAssembly.Memory({ initial: MEMORY_PAGES, maximum: MEMORY_PAGES, shared: true })
    const tested = createWasmKernels({ set, module, memory, thread: 0 })
    return new SelfTest(memory, tested, createScalarKernels(memory)).run()
  } catch (err) {
    return `it stopped with "${err instanceof Error ? err.message : String(err)}"`
  }
}

class SelfTest {
  readonly #memory: WebAssembly.Memory
  readonly #tested: Kernels
  readonly #scalar: Kernels
  #seed = 1

  constructor(memory: WebAssembly.Memory, tested: Kernels, scalar: Kernels) {
    this.#memory = memory
    this.#tested = tested
    this.#scalar = scalar
  }

  run(): string | undefined {
    const steps = [() => this.#plain(), () => this.#panels(), () => this.#activations(), () => this.#attention()]
    if (this.#tested.set === 'wasm-relaxed') steps.push(() => this.#warm())
    for (const step of steps) {
      const wrong = step()
      if (wrong !== undefined) return wrong
    }
    return undefined
  }

  /** Uniform in [-1, 1). */
  #random(): number {
    this.#seed = (Math.imul(this.#seed, 1664525) + 1013904223) >>> 0
    return this.#seed / 2 ** 31 - 1
  }

  #floats(address: number, count: number): Float32Array {
    const floats = new Float32Array(this.#memory.buffer, address, count)
    for (let i = 0; i < count; i++) floats[i] = this.#random()
    return floats
  }

  /** Activations of 5 tokens, 128 floats apart, zero from `cols` on. */
  #activationRows(cols: number): void {
    const x = this.#floats(INPUT, 5 * 128)
    for (let i = 0; i < x.length; i++) if (i % 128 >= cols) x[i] = 0
  }

  /** Runs both and compares what they wrote; `budget` as a share of the largest value, 0 = the same bits. */
  #compare(what: string, budget: number, run: (k: Kernels, out: number) => void): string | undefined {
    const expected = new Float32Array(this.#memory.buffer, EXPECTED, OUTPUT_BYTES / 4).fill(0)
    const got = new Float32Array(this.#memory.buffer, GOT, OUTPUT_BYTES / 4).fill(0)
    run(this.#scalar, EXPECTED)
    run(this.#tested, GOT)
    const allowed =
      this.#tested.set === 'wasm-relaxed' ? budget * expected.reduce((m, v) => Math.max(m, Math.abs(v)), 0) : 0
    for (let i = 0; i < got.length; i++)
      if (!(Object.is(got[i], expected[i]) || Math.abs(got[i]! - expected[i]!) <= allowed))
        return `${what} computes ${got[i]} where ${expected[i]} is right`
    return undefined
  }

  #plain(): string | undefined {
    for (const encoding of [COMPUTE.f32, COMPUTE.f16, COMPUTE.bf16]) {
      const cols = 45
      const weights = new Uint8Array(this.#memory.buffer, WEIGHTS, 7 * cols * 4)
      // The upper byte of each element stays below 0x40: finite in all three formats.
      for (let i = 0; i < weights.length; i++)
        weights[i] = Math.floor(
          (this.#random() + 1) * (i % 2 === 0 && (encoding !== COMPUTE.f32 || i % 4 === 0) ? 128 : 32),
        )
      this.#activationRows(cols)
      const m: MatrixBlock = { encoding, address: WEIGHTS, rows: 7, cols, block: 0, scaleF32: 0, multiplier: 1 }
      const wrong = this.#matrix(`encoding ${encoding}`, m)
      if (wrong !== undefined) return wrong
    }
    return undefined
  }

  #panels(): string | undefined {
    for (const encoding of PANELS)
      for (const block of [32, 64]) {
        const m = this.#panelMatrix(encoding, block, 21, 100)
        this.#activationRows(m.cols)
        const what = `encoding ${encoding}, block ${block}`
        const stride = this.#scalar.quantizedStride(m.cols, block)
        const wrong =
          this.#matrix(what, m) ??
          this.#compare(`quantize, ${what}`, 0, (k, out) => k.quantize(INPUT, 128, m.cols, block, 5, out)) ??
          this.#compare(`matMulQ, ${what}`, 0, (k, out) => {
            k.quantize(INPUT, 128, m.cols, block, 5, QUANTIZED)
            k.matMulQ(m, QUANTIZED, out, 64, 5, 0, 1)
            k.matMulQ(m, QUANTIZED + stride, out, 64, 1, 1, 0.5)
          })
        if (wrong !== undefined) return wrong
      }
    return undefined
  }

  /** Random codes; scales around 2^-6 (float16 for block 32, float32 for block 64). */
  #panelMatrix(encoding: ComputeId, block: number, rows: number, cols: number): MatrixBlock {
    const scaleF32 = block === 64 ? 1 : 0
    const m: MatrixBlock = { encoding, address: WEIGHTS, rows, cols, block, scaleF32, multiplier: 0.25 }
    const bytes = blockBytes(m)
    const scaleBytes = (encoding === COMPUTE.int4m ? 32 : 16) * (scaleF32 === 1 ? 4 : 2)
    const blocks = Math.ceil(rows / 16) * Math.ceil(cols / block)
    const view = new DataView(this.#memory.buffer, WEIGHTS, blocks * bytes)
    for (let b = 0; b < blocks; b++) {
      for (let i = 0; i < bytes - scaleBytes; i++) {
        const code = Math.floor((this.#random() + 1) * 128)
        // fp8: no NaN, no infinity.
        view.setUint8(b * bytes + i, encoding >= COMPUTE.fp8_e4m3 ? code & 0xbb : code)
      }
      for (let at = (b + 1) * bytes - scaleBytes; at < (b + 1) * bytes; at += scaleF32 === 1 ? 4 : 2) {
        if (scaleF32 === 1) view.setFloat32(at, this.#random() / 64, true)
        else view.setUint16(at, 0x2400 + Math.floor(this.#random() * 0x400), true)
      }
    }
    return m
  }

  #matrix(what: string, m: MatrixBlock): string | undefined {
    return (
      this.#compare(`decode, ${what}`, 0, (k, out) => k.decode(m, out, m.cols)) ??
      this.#compare(`matMul, ${what}`, RELAXED_ERROR, (k, out) => {
        k.matMul(m, INPUT, 128, out, 64, 5, 0, 1)
        k.matMul(m, INPUT, 128, out, 64, 1, 1, 0.5)
      })
    )
  }

  #activations(): string | undefined {
    this.#floats(INPUT, 4096)
    const copy = (out: number, count: number) =>
      new Float32Array(this.#memory.buffer, out, count).set(new Float32Array(this.#memory.buffer, INPUT, count))
    return (
      this.#compare('rmsNorm', 0, (k, out) => k.rmsNorm(INPUT, 128, INPUT + 8192, out, 128, 90, 1e-5, 0, 3)) ??
      this.#compare('swiglu', 0, (k, out) => k.swiglu(INPUT, INPUT + 4096, out, 128, 3, 90, 3)) ??
      this.#compare('add', 0, (k, out) => k.add(INPUT, 128, out, 128, 3, 90, 3, 0.5)) ??
      this.#compare('softmax', 0, (k, out) => {
        copy(out, 77)
        k.softmax(out, 77)
      }) ??
      this.#compare('rope', 0, (k, out) => {
        copy(out, 512)
        k.rope(out, 128, 4, 20, 20, 0, INPUT + 8192, 2)
        k.rope(out, 128, 4, 20, 12, 1, INPUT + 8192, 2)
      }) ??
      this.#compare('repackQ4_0', 0, (k, out) => k.repackQ4_0(WEIGHTS, out, 21, 96)) ??
      this.#compare('repackQ8_0', 0, (k, out) => k.repackQ8_0(WEIGHTS, out, 21, 96))
    )
  }

  #attention(): string | undefined {
    // Heads one by one; four of a group together and one alone.
    return this.#attentionHeads(4, 2) ?? this.#attentionHeads(5, 1)
  }

  #attentionHeads(heads: number, kvHeads: number): string | undefined {
    const [headDim, pageTokens, positions] = [20, 4, 11]
    this.#floats(INPUT, 16384)
    for (const kvF16 of [0, 1]) {
      const wrong = this.#compare(`attention, ${heads} heads, float16 cache ${kvF16}`, RELAXED_ERROR, (k, out) => {
        const pages = new Uint32Array(this.#memory.buffer, WEIGHTS, 3)
        // Pages in reverse order, behind the place of the result.
        for (let i = 0; i < 3; i++) pages[i] = out + 0x1000 + (3 - i) * 0x800
        k.kvAppend(INPUT, INPUT + 8192, 64, WEIGHTS, pageTokens, kvF16, kvHeads, headDim, 0, kvHeads, 0, positions)
        k.attention({
          q: INPUT,
          qStride: 128,
          y: out,
          yStride: 128,
          heads,
          kvHeads,
          headDim,
          headStart: 0,
          headEnd: heads,
          tokens: 3,
          position: positions - 3,
          pages: WEIGHTS,
          pageTokens,
          kvF16,
          scale: 0.3,
          window: kvF16 * 6,
          scratch: QUANTIZED,
        })
      })
      if (wrong !== undefined) return wrong
    }
    return undefined
  }

  /** Integer kernels again, often enough to be optimised: every result must be the first one. */
  #warm(): string | undefined {
    for (const encoding of [COMPUTE.int8, COMPUTE.int4, COMPUTE.int4m]) {
      const m = this.#panelMatrix(encoding, 32, 256, 512)
      this.#floats(INPUT, 4 * 512)
      this.#scalar.quantize(INPUT, 512, 512, 32, 4, QUANTIZED)
      this.#scalar.matMulQ(m, QUANTIZED, EXPECTED, 256, 4, 0, 1)
      const expected = new Int32Array(this.#memory.buffer, EXPECTED, 1024)
      const got = new Int32Array(this.#memory.buffer, GOT, 1024)
      for (let i = 0; i < WARM_CALLS; i++)
        for (const tokens of [4, 1]) {
          this.#tested.matMulQ(m, QUANTIZED, GOT, 256, tokens, 0, 1)
          for (let j = 0; j < tokens * 256; j++)
            if (got[j] !== expected[j]) return `matMulQ, encoding ${encoding}, differs after ${i} calls`
        }
    }
    return undefined
  }
}
