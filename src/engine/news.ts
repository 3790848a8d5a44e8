// What the engine tells whoever listens (base/events.ts). Nothing is computed when nobody does.
//
//   sluice:engine    EngineEvent    an engine is ready
//   sluice:pass      PassEvent      a pass ended, one way or another
//   sluice:progress  ProgressEvent  phase 'load': bytes read of those the first pass needs
import diagnostics from 'node:diagnostics_channel'
import { CHANNELS, publish, publishProgress } from '../base/events.ts'
import type { WeightPager } from '../pager/pager.ts'

export interface EngineEvent {
  /** Path and format of the model. */
  readonly model: string
  readonly format: string
  readonly precision: string
  readonly kernels: string
  readonly threads: number
  /** Positions a sequence may have, and tokens of a prompt that share a pass. */
  readonly context: number
  readonly chunkTokens: number
  readonly budgetBytes: number
  /** Reserved bytes by owner (memory/memory.ts). */
  readonly byOwner: Readonly<Record<string, number>>
  readonly pinnedBytes: number
  readonly streamedBytesPerPass: number
  readonly ioMode: string
}

export interface PassEvent {
  /** From 1. */
  readonly pass: number
  readonly tokens: number
  /** Position of the first token in its sequence. */
  readonly position: number
  /** Tokens whose logits were computed. */
  readonly logits: number
  readonly outcome: 'done' | 'aborted' | 'failed'
  readonly ms: number
  /** Milliseconds the thread that waited most for pages waited. */
  readonly stallMs: number
  /** Bytes that the reader read meanwhile, for this pass and ahead. */
  readonly bytesRead: number
}

const LOAD_INTERVAL_MS = 100

export function publishEngine(make: () => EngineEvent): void {
  publish('engine', make)
}

/** Call before a pass; call the result after it. */
export function timePass(
  pager: WeightPager,
  stallMs: () => number,
  facts: Pick<PassEvent, 'pass' | 'tokens' | 'position' | 'logits'>,
): (outcome: PassEvent['outcome']) => void {
  if (!diagnostics.channel(CHANNELS.pass).hasSubscribers) return () => undefined
  const started = performance.now()
  const before = pager.report().bytesRead
  return (outcome) =>
    publish('pass', (): PassEvent => {
      const ms = performance.now() - started
      return { ...facts, outcome, ms, stallMs: stallMs(), bytesRead: pager.report().bytesRead - before }
    })
}

/** Progress of the first pass, which reads the whole model. Call the result when it ended. */
export function watchLoad(pager: WeightPager): () => void {
  if (!diagnostics.channel(CHANNELS.progress).hasSubscribers) return () => undefined
  const { pinnedBytes, streamedBytesPerPass } = pager.report()
  const total = pinnedBytes + streamedBytesPerPass
  // The reader goes on with the next pass by itself: what it reads for that one is no progress of this one.
  const tell = () =>
    publishProgress({ phase: 'load', done: Math.min(total, pager.report().bytesRead), total, unit: 'bytes' })
  tell()
  const timer = setInterval(tell, LOAD_INTERVAL_MS)
  return () => {
    clearInterval(timer)
    publishProgress({ phase: 'load', done: total, total, unit: 'bytes' })
  }
}
