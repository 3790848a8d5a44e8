// What all wrappers share: they answer for the source they hold.
import { SluiceError } from '../base/errors.ts'
import type { AdviseHint, ByteSource, FileDescriptor, MaybePromise, ReadOptions } from './source.ts'

/** Passes everything through to `inner`. Closing the wrapper closes what it holds. */
export abstract class Wrapper implements ByteSource {
  readonly size: number
  readonly id: string
  readonly alignment: number
  abstract readonly kind: string
  readonly descriptor?: FileDescriptor
  readSync?: (offset: number, length: number, into?: Uint8Array) => Uint8Array
  view?: (offset: number, length: number) => Uint8Array
  advise?: (offset: number, length: number, hint: AdviseHint) => void
  protected readonly inner: ByteSource

  constructor(inner: ByteSource) {
    this.inner = inner
    this.size = inner.size
    this.id = inner.id
    this.alignment = inner.alignment
    if (inner.descriptor !== undefined) this.descriptor = inner.descriptor
    if (inner.readSync !== undefined) this.readSync = inner.readSync.bind(inner)
    if (inner.view !== undefined) this.view = inner.view.bind(inner)
    if (inner.advise !== undefined) this.advise = inner.advise.bind(inner)
  }

  abstract read(offset: number, length: number, options?: ReadOptions): MaybePromise<Uint8Array>

  close(): MaybePromise<void> {
    return this.inner.close()
  }
}

// One listener for each signal, however many reads wait under it: Node warns of a leak at the eleventh listener.
const listeners = new WeakMap<AbortSignal, Set<() => void>>()

function onAbort(signal: AbortSignal, call: () => void): () => void {
  let calls = listeners.get(signal)
  if (calls === undefined) {
    const made = new Set<() => void>()
    calls = made
    listeners.set(signal, made)
    signal.addEventListener('abort', () => made.forEach((c) => void c()), { once: true })
  }
  calls.add(call)
  return () => calls.delete(call)
}

/** `work`, or ABORTED as soon as the signal fires. The work itself goes on: it must not write into anything of the caller's. */
export function orAborted<T>(work: Promise<T>, signal: AbortSignal | undefined): Promise<T> {
  if (signal === undefined) return work
  return new Promise<T>((resolve, reject) => {
    const abort = () => reject(new SluiceError('ABORTED', { what: 'cancelled', cause: signal.reason }))
    if (signal.aborted) abort()
    const off = signal.aborted ? () => {} : onAbort(signal, abort)
    work.then(resolve, reject).finally(off)
  })
}

/** A read that may throw at once, as a promise. */
export async function promised(read: () => MaybePromise<Uint8Array>): Promise<Uint8Array> {
  return read()
}
