// News travels up only as events: layers publish here, observers subscribe. Nothing is computed when nobody listens.
import diagnostics from 'node:diagnostics_channel'

/** Channel names. A payload is a plain object; its fields are named where it is published. */
export const CHANNELS = {
  open: 'sluice:open',
  engine: 'sluice:engine',
  read: 'sluice:read',
  page: 'sluice:page',
  pass: 'sluice:pass',
  progress: 'sluice:progress',
} as const

/** Publishes `make()` when somebody listens. */
export function publish(channel: keyof typeof CHANNELS, make: () => object): void {
  const c = diagnostics.channel(CHANNELS[channel])
  if (c.hasSubscribers) c.publish(make())
}

/** Progress of a long operation: phase, done and total in `unit`. */
export interface ProgressEvent {
  phase: string
  done: number
  total: number
  unit: 'bytes' | 'tensors' | 'tokens' | 'layers'
  detail?: string
}

export function publishProgress(event: ProgressEvent): void {
  publish('progress', () => event)
}
