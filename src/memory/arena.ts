// Arenas: shared WebAssembly memories that pages live in and kernels compute in. wasm32 addresses 4 GiB, so a larger budget is
// several arenas. Allocation only ever goes up: an arena lives as long as the engine, and what moves (ring, cache pages) is
// managed inside one allocation.
//
// Growing a shared memory does not move or detach it, but `memory.buffer` becomes a new, longer object. Views made before stay
// right for the bytes they cover. A thread that wants bytes allocated after its view was made must read `memory.buffer` again,
// after it learnt of the address through an atomic or a message.
//
// Untouched pages of a memory take address space and no RAM: the size of an arena is not its resident size.
import { BudgetError, SluiceError } from '../base/errors.ts'
import { roundUp } from '../base/shape.ts'
import { ARENA_RESERVED_BYTES, type Arena, type ArenaSet, type Page } from './memory.ts'

const WASM_PAGE = 65536
/** 4 GiB less one WebAssembly page, so that every end address fits into 32 bits. */
export const MAX_ARENA_BYTES = 4 * 1024 ** 3 - WASM_PAGE
/** Memories grow by at least this much: each growth is a system call and a new buffer object. */
const GROWTH_BYTES = 16 * 1024 ** 2

export interface ArenaOptions {
  /** Largest arena, a multiple of 65536. Smaller ones are for tests. */
  maxArenaBytes?: number
  /** Bytes at address 0 of every arena that are never handed out. */
  reserved?: number
}

/** Starts with arena 0. Throws REQUEST_INVALID for impossible sizes, BUDGET_EXCEEDED when the system refuses address space. */
export function createArenas(options: ArenaOptions = {}): ArenaSet {
  const { maxArenaBytes = MAX_ARENA_BYTES, reserved = ARENA_RESERVED_BYTES } = options
  const fits =
    Number.isSafeInteger(maxArenaBytes) && maxArenaBytes % WASM_PAGE === 0 && maxArenaBytes <= MAX_ARENA_BYTES
  if (!fits || !Number.isSafeInteger(reserved) || reserved < 0 || reserved >= maxArenaBytes)
    throw new SluiceError('REQUEST_INVALID', {
      what: 'an arena is a multiple of 65536 bytes, at most 4 GiB less 64 KiB, and larger than its reserved part',
      got: `${maxArenaBytes} bytes, ${reserved} reserved`,
    })
  const arenas: Arena[] = [createArena(0, maxArenaBytes, reserved)]

  return {
    arenas,
    alloc(bytes, align) {
      checkAlloc(bytes, align)
      // Newest first: older ones are full but for crumbs. Arena 0 is left to activations once it has company.
      for (let i = arenas.length - 1; i >= 0; i--) {
        const arena = arenas[i]!
        if (arena.fits(bytes, align)) return arena.alloc(bytes, align)
      }
      if (roundUp(reserved, align) + bytes > maxArenaBytes)
        throw new BudgetError('BUDGET_EXCEEDED', {
          what: 'an allocation is larger than an arena',
          expected: `≤ ${maxArenaBytes - reserved} bytes`,
          got: bytes,
          details: { wantedBytes: bytes, arenaBytes: maxArenaBytes },
        })
      const arena = createArena(arenas.length, maxArenaBytes, reserved)
      arenas.push(arena)
      return arena.alloc(bytes, align)
    },
  }
}

function createArena(index: number, maxBytes: number, reserved: number): Arena {
  let memory: WebAssembly.Memory
  try {
    memory = new WebAssembly.Memory({
      initial: Math.ceil(reserved / WASM_PAGE),
      maximum: maxBytes / WASM_PAGE,
      shared: true,
    })
  } catch (cause) {
    throw refused(index, maxBytes, cause)
  }
  let top = reserved

  const reserve = (end: number): void => {
    const size = memory.buffer.byteLength
    if (end <= size) return
    const target = Math.min(maxBytes, Math.max(end, size + GROWTH_BYTES))
    try {
      memory.grow(Math.ceil((target - size) / WASM_PAGE))
    } catch (cause) {
      throw refused(index, end, cause)
    }
  }

  return {
    index,
    memory,
    get free() {
      return maxBytes - top
    },
    fits: (bytes, align) => roundUp(top, align) + bytes <= maxBytes,
    reserve(bytes) {
      checkAlloc(bytes, 1)
      reserve(Math.min(maxBytes, top + bytes))
    },
    alloc(bytes, align): Page {
      checkAlloc(bytes, align)
      const address = roundUp(top, align)
      if (address + bytes > maxBytes)
        throw new BudgetError('BUDGET_EXCEEDED', {
          what: `arena ${index} is full`,
          expected: `≤ ${maxBytes - top} bytes`,
          got: bytes,
          details: { wantedBytes: bytes, availableBytes: maxBytes - top, arena: index },
        })
      reserve(address + bytes)
      top = address + bytes
      return { arena: index, address, bytes }
    },
  }
}

function checkAlloc(bytes: number, align: number): void {
  if (!Number.isSafeInteger(bytes) || bytes < 0 || !Number.isSafeInteger(align) || align < 1)
    throw new SluiceError('REQUEST_INVALID', {
      what: 'an allocation is a count of bytes and an alignment of at least 1',
      got: `${bytes} bytes aligned to ${align}`,
    })
}

function refused(arena: number, bytes: number, cause: unknown): BudgetError {
  return new BudgetError('BUDGET_EXCEEDED', {
    what: `the system refused address space for arena ${arena}`,
    got: `${bytes} bytes`,
    remedy: 'Give less memory, or raise the limit on address space (ulimit -v).',
    cause,
    details: { wantedBytes: bytes, arena },
  })
}
