// Merges reads that are issued together and lie near each other: one request to a server or disk instead of many.
import { throwIfAborted } from '../base/errors.ts'
import { checkRange, destination } from './range.ts'
import type { ByteSource, ReadOptions } from './source.ts'
import { orAborted, promised, Wrapper } from './wrapper.ts'

export interface CoalesceOptions {
  /** Reads at most this far apart are merged. Default 64 KiB: reading a gap that long costs less than another request. */
  maxGapBytes?: number
  /** A merged read is at most this long. Default 8 MiB. */
  maxReadBytes?: number
  /** Told after every batch what was asked for and what was read. */
  onBatch?: (batch: CoalescedBatch) => void
}

export interface CoalescedBatch {
  readonly requestedReads: number
  readonly requestedBytes: number
  readonly issuedReads: number
  readonly issuedBytes: number
}

interface Waiting {
  readonly offset: number
  readonly length: number
  readonly options: ReadOptions | undefined
  readonly resolve: (bytes: Uint8Array | Promise<Uint8Array>) => void
  readonly reject: (error: unknown) => void
}

interface Group {
  readonly start: number
  end: number
  readonly members: Waiting[]
}

/** Groups requests sorted by offset. Pure, so that the exact reads can be tested. */
export function planCoalesced<T extends { offset: number; length: number }>(
  requests: readonly T[],
  maxGapBytes: number,
  maxReadBytes: number,
): { start: number; end: number; members: T[] }[] {
  const groups: { start: number; end: number; members: T[] }[] = []
  for (const r of requests.toSorted((a, b) => a.offset - b.offset)) {
    const end = r.offset + r.length
    const last = groups.at(-1)
    if (
      last !== undefined &&
      r.offset - last.end <= maxGapBytes &&
      Math.max(end, last.end) - last.start <= maxReadBytes
    ) {
      last.end = Math.max(end, last.end)
      last.members.push(r)
    } else groups.push({ start: r.offset, end, members: [r] })
  }
  return groups
}

class CoalescedSource extends Wrapper {
  readonly kind = 'coalesced'
  readonly #options: CoalesceOptions
  #waiting: Waiting[] = []

  constructor(inner: ByteSource, options: CoalesceOptions) {
    super(inner)
    this.#options = options
  }

  async read(offset: number, length: number, options?: ReadOptions): Promise<Uint8Array> {
    throwIfAborted(options?.signal)
    checkRange(this.id, this.size, offset, length)
    if (options?.into !== undefined) destination(this.id, length, options.into)
    return new Promise((resolve, reject) => {
      this.#waiting.push({ offset, length, options, resolve, reject })
      if (this.#waiting.length === 1) queueMicrotask(() => this.#flush())
    })
  }

  #flush(): void {
    const batch = this.#waiting
    this.#waiting = []
    const { maxGapBytes = 64 * 1024, maxReadBytes = 8 * 1024 * 1024, onBatch } = this.#options
    const groups = planCoalesced(batch, maxGapBytes, maxReadBytes)
    for (const group of groups) this.#issue(group)
    onBatch?.({
      requestedReads: batch.length,
      requestedBytes: batch.reduce((n, w) => n + w.length, 0),
      issuedReads: groups.length,
      issuedBytes: groups.reduce((n, g) => n + g.end - g.start, 0),
    })
  }

  #issue(group: Group): void {
    const [first, ...others] = group.members as [Waiting, ...Waiting[]]
    if (others.length === 0) {
      // Nothing to merge: straight into the caller's buffer, under the caller's signal.
      first.resolve(promised(() => this.inner.read(first.offset, first.length, first.options)))
      return
    }
    const stop = new AbortController()
    const whole = promised(() => this.inner.read(group.start, group.end - group.start, { signal: stop.signal }))
    let wanted = group.members.length
    for (const member of group.members) {
      const signal = member.options?.signal
      const result = orAborted(whole, signal).then(
        (bytes) => {
          const out = destination(this.id, member.length, member.options?.into)
          out.set(bytes.subarray(member.offset - group.start, member.offset - group.start + member.length))
          return out
        },
        (error) => {
          // The merged read is cancelled when nobody waits for it any more.
          if (--wanted === 0) stop.abort()
          throw error
        },
      )
      result.then(member.resolve, member.reject)
    }
  }
}

/** Merges the reads issued in one turn (until the current stack of calls ends) that lie near each other. */
export function coalesced(inner: ByteSource, options: CoalesceOptions = {}): ByteSource {
  return new CoalescedSource(inner, options)
}
