// A circular area that gives out slots in order and takes them back in the same order. A slot never wraps: what does not fit before
// the end begins at 0 again. Pure bookkeeping over offsets.

export interface Ring {
  /** Offset of a free run of `bytes`, or -1 when older slots must be given back first. */
  take(bytes: number): number
  /** Gives the oldest slot back. */
  giveBack(): void
  clear(): void
}

/** A ring of `capacity` bytes. An empty ring has room for any slot up to the capacity. */
export function createRing(capacity: number): Ring {
  // Slots in use, oldest first: [start, end). The free part lies between the end of the newest and the start of the oldest.
  let slots: { start: number; end: number }[] = []
  let oldest = 0

  return {
    take(bytes) {
      const newest = slots.at(-1)
      const tail = slots[oldest]
      let start = 0
      if (newest !== undefined && tail !== undefined) {
        start = newest.end
        if (newest.start >= tail.start) {
          // In use: one run. Free: what is behind it, and what is before it.
          if (start + bytes > capacity) {
            if (bytes > tail.start) return -1
            start = 0
          }
        } else if (start + bytes > tail.start) return -1
      }
      if (start + bytes > capacity) return -1
      slots.push({ start, end: start + bytes })
      return start
    },
    giveBack() {
      oldest++
      // Compact now and then, so that the list stays as long as what is in use.
      if (oldest === slots.length || oldest > 1024) {
        slots = slots.slice(oldest)
        oldest = 0
      }
    },
    clear() {
      slots = []
      oldest = 0
    },
  }
}
