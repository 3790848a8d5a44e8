// The contracts of memory: a budget that everything is taken from, and arenas that pages live in.

/** Who holds memory. `process` is what Node, its threads and the tokenizer take outside the arenas. */
export type Owner = 'process' | 'weights' | 'ring' | 'kv' | 'adapters' | 'scratch' | 'io'

export interface Reservation {
  readonly bytes: number
  readonly owner: Owner
  /** Gives the bytes back. A second call does nothing. */
  release(): void
}

export interface Budget {
  /** Bytes promised for the whole process. */
  readonly total: number
  readonly used: number
  readonly available: number
  /** Throws BUDGET_EXCEEDED, saying what wanted how much and what is left. */
  reserve(bytes: number, owner: Owner, what: string): Reservation
  /** Bytes held, by owner. */
  report(): Readonly<Record<Owner, number>>
}

/** A place in an arena. */
export interface Page {
  /** Index into ArenaSet.arenas. */
  readonly arena: number
  /** Byte offset into that arena's memory. */
  readonly address: number
  readonly bytes: number
}

/** One shared WebAssembly memory (at most 4 GiB) that kernels compute in. Nothing touched, nothing resident. */
export interface Arena {
  readonly index: number
  readonly memory: WebAssembly.Memory
  /** Bytes that can still be allocated. */
  readonly free: number
  /** Would alloc succeed? */
  fits(bytes: number, align: number): boolean
  /** Grows the memory once for `bytes` more, so that the allocations that follow do not grow it again. Allocates nothing. */
  reserve(bytes: number): void
  /** Bump allocation; the memory grows as needed. Throws BUDGET_EXCEEDED at 4 GiB. */
  alloc(bytes: number, align: number): Page
}

export interface ArenaSet {
  readonly arenas: readonly Arena[]
  /** Allocates wherever it fits, adding an arena when none has room. Activations, caches and tables belong in arena 0: `arenas[0].alloc`. */
  alloc(bytes: number, align: number): Page
}

/** Below this address of every arena lie the kernels' constants and the stacks of the threads. */
export const ARENA_RESERVED_BYTES = 1024 * 1024
