// Signals that end a program, as a cancellation: work in progress stops at the next step and leaves no half file.
const SIGNALS = ['SIGINT', 'SIGTERM', 'SIGHUP'] as const

/** Fires at the first SIGINT, SIGTERM or SIGHUP. A second one ends the process at once, as without this. */
export function cancelOnSignals(): AbortSignal {
  const abort = new AbortController()
  for (const name of SIGNALS) process.once(name, () => abort.abort(new Error(name)))
  return abort.signal
}
