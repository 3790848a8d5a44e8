// Ctrl-C: the first one asks the work to end, which closes files and removes what is half written; a second one does not wait.
import { EXIT } from './exit.ts'

/** A signal that fires on SIGINT or SIGTERM, and a function that gives the process its ordinary behaviour back. */
export function onInterrupt(): { signal: AbortSignal; off: () => void } {
  const abort = new AbortController()
  const listener = (name: NodeJS.Signals) => {
    if (abort.signal.aborted) process.exit(EXIT.aborted)
    abort.abort(new Error(name))
  }
  process.on('SIGINT', listener)
  process.on('SIGTERM', listener)
  const off = () => {
    process.off('SIGINT', listener)
    process.off('SIGTERM', listener)
  }
  return { signal: abort.signal, off }
}
