// A read as a series of read(2) calls. The series is a generator, so that the blocking and the asynchronous reader are one piece of code.
import { read, readSync } from 'node:fs'
import { throwIfAborted } from '../base/errors.ts'
import type { OpenFile } from './file.ts'
import { errnoOf, fsError } from './fserror.ts'

/** One call asked for: `length` bytes at `position` of the file into `buffer[at…]`. */
export interface Step {
  readonly buffer: Uint8Array
  readonly at: number
  readonly length: number
  readonly position: number
}

/** What the call gave: bytes (0 = end of file), or REFUSED when the system answered EINVAL. */
export type StepResult = number
export const REFUSED = -1

export type Steps = Generator<Step, void, StepResult>

/** Bytes of one call: long enough for full speed, short enough (16 MiB, some 10 ms) to notice a cancel between two. */
export const STEP_BYTES = 16 * 1024 * 1024

function settle(error: unknown, file: OpenFile, step: Step): StepResult | undefined {
  const errno = errnoOf(error)
  if (errno === 'EINTR') return undefined // try again
  if (errno === 'EINVAL') return REFUSED
  throw fsError(error, file.path, `read ${step.length} bytes at ${step.position}`)
}

function readOnce(file: OpenFile, step: Step): Promise<StepResult> {
  return new Promise((resolve, reject) => {
    const attempt = () =>
      read(file.fd, step.buffer, step.at, step.length, step.position, (error, bytes) => {
        if (error === null) return resolve(bytes)
        try {
          const result = settle(error, file, step)
          if (result === undefined) attempt()
          else resolve(result)
        } catch (e) {
          reject(e)
        }
      })
    attempt()
  })
}

/** Runs the series without blocking. A cancel takes effect between two calls: no call writes into the buffer after the promise is settled. */
export async function run(file: OpenFile, steps: Steps, signal?: AbortSignal): Promise<void> {
  throwIfAborted(signal)
  file.begin()
  try {
    let next = steps.next()
    while (!next.done) {
      throwIfAborted(signal)
      next = steps.next(await readOnce(file, next.value))
    }
    throwIfAborted(signal)
    file.checkUnchanged()
  } finally {
    steps.return()
    file.end()
  }
}

/** Runs the series, blocking. */
export function runSync(file: OpenFile, steps: Steps): void {
  file.begin()
  try {
    let next = steps.next()
    while (!next.done) {
      const step: Step = next.value
      let result: StepResult | undefined
      while (result === undefined) {
        try {
          result = readSync(file.fd, step.buffer, step.at, step.length, step.position)
        } catch (error) {
          result = settle(error, file, step)
        }
      }
      next = steps.next(result)
    }
    file.checkUnchanged()
  } finally {
    steps.return()
    file.end()
  }
}
