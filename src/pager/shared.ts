// The shared state of pager.ts: made by the main thread, posted to the reader and the compute threads.
import { CONTROL, CONTROL_WORDS, type SharedPages } from './pager.ts'

/** Bytes of shared state a page takes: state, arena, address, released, streamed, group. */
export const SHARED_BYTES_PER_PAGE = 21

/** All zero: no page is there. `pinned` has a 1 for each page that is not streamed, `groups` each page's group or -1. */
export function createShared(
  pinned: Uint8Array,
  threads: number,
  groups: Int32Array = new Int32Array(pinned.length).fill(-1),
): SharedPages {
  const count = pinned.length
  const streamed = new Uint8Array(new SharedArrayBuffer(count))
  pinned.forEach((p, i) => {
    streamed[i] = p === 1 ? 0 : 1
  })
  const group = new Int32Array(new SharedArrayBuffer(count * 4))
  group.set(groups)
  const groupCount = groups.reduce((most, g) => Math.max(most, g + 1), 0)
  return {
    group,
    choice: new Int32Array(new SharedArrayBuffer(groupCount * 4)),
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
