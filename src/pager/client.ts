// What a compute thread does with pages: wait for one, use it, give it back. Blocking, without allocation and without messages.
import { SluiceError } from '../base/errors.ts'
import { CONTROL, type PageClient, PINNED, type SharedPages } from './pager.ts'

/** Loads before the thread goes to sleep: some microseconds, less than a wake-up costs. */
const SPINS = 200
/** A sleeping thread looks at the abort word this often even when nobody wakes it. */
const WAIT_MS = 20

/** A client for one thread. Never on the main thread of a program that must not block: acquire() waits. */
export function createPageClient(shared: SharedPages): PageClient {
  const { state, arena, address, released, control, streamed, choice, threads } = shared
  let stallMs = 0

  function arrived(page: number, pass: number): boolean {
    const s = Atomics.load(state, page)
    if (s === pass || s === PINNED) return true
    if (s > pass)
      throw new SluiceError('INTERNAL', {
        what: `page ${page} was asked for in pass ${pass} and is there for pass ${s}`,
        details: { page, pass, state: s },
      })
    return false
  }

  function waitFor(page: number, pass: number): boolean {
    for (let i = 0; i < SPINS; i++) if (arrived(page, pass)) return true
    for (;;) {
      const s = Atomics.load(state, page)
      if (arrived(page, pass)) return true
      if (Atomics.load(control, CONTROL.abort) !== 0 || Atomics.load(control, CONTROL.failed) !== 0) return false
      Atomics.wait(state, page, s, WAIT_MS)
    }
  }

  return {
    acquire(page, pass) {
      if (Atomics.load(control, CONTROL.abort) !== 0) return false
      if (arrived(page, pass)) return true
      const start = performance.now()
      const came = waitFor(page, pass)
      stallMs += performance.now() - start
      return came
    },
    arenaOf: (page) => arena[page]!,
    addressOf: (page) => address[page]!,
    release(page) {
      if (streamed[page] === 0) return
      if (Atomics.add(released, page, 1) + 1 !== threads) return
      Atomics.add(control, CONTROL.freed, 1)
      Atomics.notify(control, CONTROL.freed)
    },
    choose(group, pass, needed) {
      Atomics.store(choice, group, needed ? pass : -pass)
    },
    announce() {
      Atomics.add(control, CONTROL.freed, 1)
      Atomics.notify(control, CONTROL.freed)
    },
    get stallNs() {
      return stallMs * 1e6
    },
  }
}
