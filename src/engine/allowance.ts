// What the process takes outside the arenas. The budget promises the whole process, so this is measured and then allowed for.
import { roundUp } from '../base/shape.ts'

/** Resident bytes a compute or reader thread adds: an isolate, its heap, its stack. Measured in bench/memory. */
export const THREAD_BYTES = 14 * 1024 * 1024
/** What the main thread's heap may still grow by while it generates. */
export const HEAP_GROWTH_BYTES = 40 * 1024 * 1024
/** Memory the kernel charges us that is not resident set: page tables, sockets, slab. */
export const KERNEL_BYTES = 8 * 1024 * 1024

/** Bytes to set aside for the process, given its resident set now and the threads still to be started. */
export function processAllowance(residentNow: number, threads: number): number {
  return roundUp(residentNow + threads * THREAD_BYTES + HEAP_GROWTH_BYTES + KERNEL_BYTES, 4096)
}
