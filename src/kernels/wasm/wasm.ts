// Kernels as WebAssembly: one instance a thread and memory, all over shared memories.
import { SluiceError } from '../../base/errors.ts'
import { ARENA_RESERVED_BYTES } from '../../memory/memory.ts'
import { checkGgmlColumns, checkMatrix, checkPanelMatrix, quantizedStride } from '../compute.ts'
import type { KernelSetName, Kernels } from '../kernels.ts'
import { moduleBase64 as baseline } from './baseline.wasm.ts'
import { moduleBase64 as relaxed } from './relaxed.wasm.ts'

export type WasmSetName = Exclude<KernelSetName, 'scalar'>

/** Threads that can have an instance over one memory. */
export const MAX_THREADS = 64
/** Stacks lie in the upper half of the reserved bytes, thread 0 highest. */
const STACK_BYTES = ARENA_RESERVED_BYTES / 2 / MAX_THREADS

const MODULES: Readonly<Record<WasmSetName, string>> = { 'wasm-baseline': baseline, 'wasm-relaxed': relaxed }

/** Bytes of a set's module. */
export function kernelBytes(set: WasmSetName): Uint8Array<ArrayBuffer> {
  const text = atob(MODULES[set])
  const bytes = new Uint8Array(text.length)
  for (let i = 0; i < bytes.length; i++) bytes[i] = text.charCodeAt(i)
  return bytes
}

/** Compiles a set; the module can be posted to other threads. Throws KERNEL_UNAVAILABLE when the engine refuses it. */
export function compileKernels(set: WasmSetName): WebAssembly.Module {
  try {
    return new WebAssembly.Module(kernelBytes(set))
  } catch (cause) {
    throw new SluiceError('KERNEL_UNAVAILABLE', { what: `this engine does not compile kernel set ${set}`, cause })
  }
}

export interface WasmKernelOptions {
  set: WasmSetName
  /** compileKernels(set), from this or another thread. */
  module: WebAssembly.Module
  /** Shared, at least ARENA_RESERVED_BYTES long. */
  memory: WebAssembly.Memory
  /** Index of the calling thread, 0…63: no two threads over one memory may have the same. */
  thread: number
}

type Export = (...args: number[]) => void

/** Binds a set to a memory. Two instances with the same thread number must not run at the same time. */
export function createWasmKernels({ set, module, memory, thread }: WasmKernelOptions): Kernels {
  if (!(Number.isInteger(thread) && thread >= 0 && thread < MAX_THREADS))
    throw new SluiceError('INTERNAL', {
      what: 'no stack for this thread',
      expected: `0…${MAX_THREADS - 1}`,
      got: thread,
    })
  if (memory.buffer.byteLength < ARENA_RESERVED_BYTES)
    throw new SluiceError('INTERNAL', {
      what: 'memory is smaller than the bytes kernels reserve',
      expected: ARENA_RESERVED_BYTES,
      got: memory.buffer.byteLength,
    })
  const { exports } = new WebAssembly.Instance(module, { env: { memory } })
  const stack = exports.__stack_pointer as WebAssembly.Global<'i32'>
  stack.value = ARENA_RESERVED_BYTES - thread * STACK_BYTES
  const wasm = exports as unknown as Record<Exclude<keyof Kernels, 'set' | 'quantizedStride'>, Export>
  return {
    set,
    decode(m, out, outStride) {
      checkMatrix(m)
      wasm.decode(m.encoding, m.address, m.rows, m.cols, m.block, m.scaleF32, m.multiplier, out, outStride)
    },
    matMul(m, x, xStride, y, yStride, tokens, accumulate, alpha) {
      checkMatrix(m)
      wasm.matMul(
        m.encoding,
        m.address,
        m.rows,
        m.cols,
        m.block,
        m.scaleF32,
        m.multiplier,
        x,
        xStride,
        y,
        yStride,
        tokens,
        accumulate,
        alpha,
      )
    },
    quantizedStride,
    quantize: wasm.quantize,
    matMulQ(m, xq, y, yStride, tokens, accumulate, alpha) {
      checkPanelMatrix(m)
      wasm.matMulQ(
        m.encoding,
        m.address,
        m.rows,
        m.cols,
        m.block,
        m.scaleF32,
        m.multiplier,
        xq,
        y,
        yStride,
        tokens,
        accumulate,
        alpha,
      )
    },
    rmsNorm: wasm.rmsNorm,
    rope: wasm.rope,
    kvAppend: wasm.kvAppend,
    attention(a) {
      wasm.attention(
        a.q,
        a.qStride,
        a.y,
        a.yStride,
        a.heads,
        a.kvHeads,
        a.headDim,
        a.headStart,
        a.headEnd,
        a.tokens,
        a.position,
        a.pages,
        a.pageTokens,
        a.kvF16,
        a.scale,
        a.window,
        a.scratch,
      )
    },
    swiglu: wasm.swiglu,
    add: wasm.add,
    softmax: wasm.softmax,
    repackQ4_0(src, dst, rows, cols) {
      checkGgmlColumns(cols)
      wasm.repackQ4_0(src, dst, rows, cols)
    },
    repackQ8_0(src, dst, rows, cols) {
      checkGgmlColumns(cols)
      wasm.repackQ8_0(src, dst, rows, cols)
    },
  }
}
