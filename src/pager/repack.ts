// Kernels that lay foreign blocks out anew, bound to the memory of the staging area.
import type { KernelSetName } from '../kernels/kernels.ts'
import { createScalarKernels } from '../kernels/scalar/scalar.ts'
import type { Repack } from './transcode.ts'

/** Every set moves the same codes and scales to the same places, so the choice is one of speed alone. */
export async function repackFor(_set: KernelSetName, memory: WebAssembly.Memory): Promise<Repack> {
  return createScalarKernels(memory)
}
