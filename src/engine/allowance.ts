// What the process takes outside the arenas. The budget promises the whole process, so this is measured and then allowed for.
// Measured on Node 20, x64, with the shipped model: see the figure at each constant. bench/budget.mjs checks the sum in control groups.
import { roundUp } from '../base/shape.ts'

const MiB = 1024 * 1024

/** Resident bytes a compute or reader thread adds: an isolate, its heap, its stack, its compiled code. Measured 10.7 MiB a compute thread, 13 the reader. */
export const THREAD_BYTES = 13 * MiB
/**
 * What the main thread may still grow by: starting the engine and 3,000 tokens of generation took 28 MiB, garbage of logits included; logits that
 * are collected for a caller (running.ts) take up to 8 more.
 */
export const HEAP_GROWTH_BYTES = 40 * MiB
/** Memory the kernel charges us that is not resident set: sockets, slab, page tables of the process itself. */
export const KERNEL_BYTES = 8 * MiB
/** Page tables of the arenas: 8 bytes for every 4 KiB. */
const PAGE_TABLE_SHARE = 1 / 512
/** A process that has opened a model has at least this resident: `plan` in one process and `run` in another see the same number. Measured 59 to 66 MiB. */
export const PROCESS_BYTES = 72 * MiB

/** Bytes to set aside for the process, given its resident set now, the threads still to be started, and the whole budget. */
export function processAllowance(residentNow: number, threads: number, totalBytes: number): number {
  const fixed = Math.max(residentNow, PROCESS_BYTES) + threads * THREAD_BYTES + HEAP_GROWTH_BYTES + KERNEL_BYTES
  return roundUp(fixed + Math.ceil(totalBytes * PAGE_TABLE_SHARE), 4096)
}
