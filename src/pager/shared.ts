// The shared state of pager.ts: made by the main thread, posted to the reader and the compute threads.
import { CONTROL, CONTROL_WORDS, type SharedPages } from './pager.ts'

/** Bytes of shared state a page takes: state, arena, address, released, streamed. */
export const SHARED_BYTES_PER_PAGE = 17

/** All zero: no page is there. `pinned` has a 1 for each page that is not streamed. */
export function createShared(pinned: Uint8Array, threads: number): SharedPages {
  const count = pinned.length
  const streamed = new Uint8Array(new SharedArrayBuffer(count))
  pinned.forEach((p, i) => {
    streamed[i] = p === 1 ? 0 : 1
  })
  return {
    state: new Int32Array(new SharedArrayBuffer(count * 4)),
    arena: new Int32Array(new SharedArrayBuffer(count * 4)),
    address: new Uint32Array(new SharedArrayBuffer(count * 4)),
    released: new Int32Array(new SharedArrayBuffer(count * 4)),
    control: new Int32Array(new SharedArrayBuffer(CONTROL_WORDS * 4)),
    streamed,
    threads,
  }
}

/** Sets `abort` or `failed` and wakes every thread that waits for a page: they leave. */
export function raise(shared: SharedPages, word: 'abort' | 'failed'): void {
  Atomics.store(shared.control, CONTROL[word], 1)
  for (let page = 0; page < shared.state.length; page++) Atomics.notify(shared.state, page)
}
