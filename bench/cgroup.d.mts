import type { SpawnOptions } from 'node:child_process'

/** Why control groups cannot be used here, or undefined. */
export function cgroupProblem(): string | undefined

export interface LimitedRun {
  code: number | null
  signal: string | null
  stdout: string
  stderr: string
  wallMs: number
  limitBytes: number
  /** Highest charge, page cache included. */
  peakBytes: number | undefined
  oomKills: number
}

export function runLimited(
  limitBytes: number,
  command: string,
  args: readonly string[],
  options?: SpawnOptions,
): Promise<LimitedRun>
