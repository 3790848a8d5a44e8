// Kernels that lay foreign blocks out anew, bound to the memory of the staging area.
import { createKernels, type KernelSelection } from '../kernels/select.ts'
import { MAX_THREADS } from '../kernels/wasm/wasm.ts'
import type { Repack } from './transcode.ts'

/** What createKernels takes: plain data and a module, can be posted. */
export type RepackKernels = Pick<KernelSelection, 'set' | 'module'>

/** The thread number of the reader's kernel instance. Compute threads stay below it. */
export const READER_KERNEL_THREAD = MAX_THREADS - 1

/** Binds the kernels to one memory. */
export function repackFor(kernels: RepackKernels, memory: WebAssembly.Memory): Repack {
  return createKernels(kernels, memory, READER_KERNEL_THREAD)
}
