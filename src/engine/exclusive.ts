// One thing at a time, in order of asking. Whoever waits can leave the queue.
import { SluiceError, throwIfAborted } from '../base/errors.ts'

export class Exclusive {
  #tail: Promise<unknown> = Promise.resolve()

  /** Rejects with ABORTED at once when the signal fires while waiting; `work` then never begins. */
  run<T>(work: () => Promise<T>, signal?: AbortSignal): Promise<T> {
    let begun = false
    const next = this.#tail.then(() => {
      throwIfAborted(signal)
      begun = true
      return work()
    })
    this.#tail = next.catch(() => undefined)
    return signal === undefined ? next : unlessAborted(next, signal, () => !begun)
  }
}

/**
 * The promise, or ABORTED as soon as the signal fires while `when()` holds. What the promise was about goes on, unheard: only for work whose
 * end nobody needs to see.
 */
export function unlessAborted<T>(
  promise: Promise<T>,
  signal: AbortSignal | undefined,
  when: () => boolean = () => true,
): Promise<T> {
  if (signal === undefined) return promise
  return new Promise((resolve, reject) => {
    const abort = () => {
      if (when()) reject(new SluiceError('ABORTED', { what: 'cancelled', cause: signal.reason }))
    }
    if (signal.aborted) abort()
    signal.addEventListener('abort', abort, { once: true })
    promise.then(resolve, reject).finally(() => signal.removeEventListener('abort', abort))
  })
}
