// Progress on stderr: one line that is rewritten on a terminal, a line every few seconds elsewhere, JSON lines on request.
import { subscribe, unsubscribe } from 'node:diagnostics_channel'
import { formatBytes } from '../base/bytes.ts'
import { CHANNELS, type ProgressEvent } from '../base/events.ts'

export type ProgressMode = 'auto' | 'json' | 'none'

const TTY_INTERVAL_MS = 100
const LINE_INTERVAL_MS = 5000

/** Shows progress events until the returned function is called. */
export function showProgress(mode: ProgressMode, stream: NodeJS.WriteStream = process.stderr): () => void {
  if (mode === 'none') return () => undefined
  const started = new Map<string, number>()
  // The first line comes when it took long: at once only on a terminal.
  let last = stream.isTTY ? 0 : performance.now()
  let drawn = false
  const listener = (message: unknown) => {
    const e = message as ProgressEvent
    const now = performance.now()
    if (!started.has(e.phase)) started.set(e.phase, now)
    const ended = e.done >= e.total
    const interval = stream.isTTY ? TTY_INTERVAL_MS : LINE_INTERVAL_MS
    if (mode === 'auto' && now - last < interval && !(ended && stream.isTTY)) return
    last = now
    if (mode === 'json') {
      stream.write(`${JSON.stringify({ progress: e })}\n`)
      return
    }
    const text = describe(e, (now - started.get(e.phase)!) / 1000)
    if (!stream.isTTY) stream.write(`${text}\n`)
    else {
      stream.cursorTo(0)
      stream.write(text.slice(0, (stream.columns || 80) - 1))
      stream.clearLine(1)
      drawn = true
    }
  }
  subscribe(CHANNELS.progress, listener)
  return () => {
    unsubscribe(CHANNELS.progress, listener)
    if (drawn) {
      stream.cursorTo(0)
      stream.clearLine(0)
    }
  }
}

/** "convert 37 % 1.2 GiB / 3.3 GiB, 210 MiB/s, 10 s left" */
export function describe(e: ProgressEvent, seconds: number): string {
  const amount = (n: number) => (e.unit === 'bytes' ? formatBytes(n) : `${n}`)
  const percent = e.total > 0 ? Math.floor((100 * e.done) / e.total) : 100
  let text = `${e.phase} ${percent} % ${amount(e.done)} / ${amount(e.total)}${e.unit === 'bytes' ? '' : ` ${e.unit}`}`
  if (seconds > 0.5 && e.done > 0) {
    const rate = e.done / seconds
    text += `, ${e.unit === 'bytes' ? formatBytes(Math.round(rate)) : rate.toFixed(1)}/s`
    if (e.done < e.total) text += `, ${Math.ceil((e.total - e.done) / rate)} s left`
  }
  return e.detail === undefined ? text : `${text} (${e.detail})`
}
