// Exit codes, documented in the README: programs branch on them.
import type { ErrorCode } from '../base/errors.ts'

export const EXIT = {
  ok: 0,
  /** An unexpected error. */
  failed: 1,
  /** The command line is wrong, or asks for what does not exist (a tensor, rows, an adapter scale). */
  usage: 2,
  /** The model, adapter or package is not acceptable, or a check failed. */
  invalid: 3,
  /** The memory budget or disk space cannot hold it. */
  resources: 4,
  /** A file cannot be read or written, or not in the way that was asked for. */
  io: 5,
  /** Not implemented yet. */
  notImplemented: 6,
  /** Cancelled (as shells report SIGINT). */
  aborted: 130,
} as const

const BY_CODE: Partial<Record<ErrorCode, number>> = {
  USAGE: EXIT.usage,
  REQUEST_INVALID: EXIT.usage,
  TENSOR_NOT_FOUND: EXIT.usage,
  TENSOR_RANGE: EXIT.usage,
  BUDGET_EXCEEDED: EXIT.resources,
  BUDGET_TOO_SMALL: EXIT.resources,
  DISK_FULL: EXIT.resources,
  CONTEXT_FULL: EXIT.resources,
  SOURCE_IO: EXIT.io,
  SOURCE_CHANGED: EXIT.io,
  SOURCE_CLOSED: EXIT.io,
  SOURCE_RANGE: EXIT.io,
  SOURCE_MODE: EXIT.io,
  KERNEL_UNAVAILABLE: EXIT.io,
  OUTPUT_IO: EXIT.io,
  OUTPUT_EXISTS: EXIT.io,
  NOT_IMPLEMENTED: EXIT.notImplemented,
  ABORTED: EXIT.aborted,
  INTERNAL: EXIT.failed,
  WORKER_FAILED: EXIT.failed,
  CLOSED: EXIT.failed,
}

export function exitCodeOf(code: ErrorCode): number {
  return BY_CODE[code] ?? EXIT.invalid
}
