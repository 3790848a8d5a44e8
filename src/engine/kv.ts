// The key/value cache: blocks of 16 positions, all layers, handed out from one reserved area of arena 0.
import { BudgetError } from '../base/errors.ts'
import { roundUp } from '../base/shape.ts'
import type { Plan } from '../graph/plan.ts'

/** Positions a page holds. */
export const KV_PAGE_TOKENS = 16

/** Bytes a block of 16 positions takes over all layers, and where each layer's page begins in it. */
export function kvBlock(kv: Plan['kv'], elementBytes: number): { bytes: number; layers: readonly number[] } {
  let bytes = 0
  const layers = kv.map((layer) => {
    const at = bytes
    bytes += roundUp(2 * layer.kvHeads * layer.headDim * KV_PAGE_TOKENS * elementBytes, 64)
    return at
  })
  return { bytes, layers }
}

export class KvPool {
  readonly #address: number
  readonly #blockBytes: number
  readonly #blocks: number
  readonly #free: number[] = []
  #fresh = 0

  /** `blocks` blocks of `blockBytes` from `address` on. Memory of a block is touched when it is first used. */
  constructor(address: number, blockBytes: number, blocks: number) {
    this.#address = address
    this.#blockBytes = blockBytes
    this.#blocks = blocks
  }

  /** Address of a block. Reuses released ones first, so that no fresh memory is touched without need. */
  take(): number {
    const again = this.#free.pop()
    if (again !== undefined) return again
    if (this.#fresh === this.#blocks)
      throw new BudgetError('BUDGET_EXCEEDED', {
        what: 'key/value cache is full',
        expected: `≤ ${this.#blocks} blocks of ${KV_PAGE_TOKENS} tokens`,
        got: this.#blocks + 1,
        remedy: 'Release a sequence, or open the engine with a larger context or memory.',
      })
    return this.#address + this.#blockBytes * this.#fresh++
  }

  give(block: number): void {
    this.#free.push(block)
  }

  get inUse(): number {
    return this.#fresh - this.#free.length
  }
}

/** One sequence's view: which block holds which 16 positions, and the tables that kernels read. */
export class KvTable {
  readonly #pool: KvPool
  readonly #layers: readonly number[]
  readonly #words: Uint32Array
  readonly #pagesMax: number
  readonly #blocks: number[] = []

  /** `words`: uint32 [layers, pagesMax] in arena 0. */
  constructor(pool: KvPool, layers: readonly number[], words: Uint32Array, pagesMax: number) {
    this.#pool = pool
    this.#layers = layers
    this.#words = words
    this.#pagesMax = pagesMax
  }

  /** Makes room for positions 0 … tokens-1. Throws BUDGET_EXCEEDED; what was taken so far stays with the sequence. */
  reserve(tokens: number): void {
    while (this.#blocks.length * KV_PAGE_TOKENS < tokens) {
      const block = this.#pool.take()
      const page = this.#blocks.length
      for (let l = 0; l < this.#layers.length; l++) this.#words[l * this.#pagesMax + page] = block + this.#layers[l]!
      this.#blocks.push(block)
    }
  }

  /** Gives back blocks that hold no position below `tokens`. */
  truncate(tokens: number): void {
    while ((this.#blocks.length - 1) * KV_PAGE_TOKENS >= tokens && this.#blocks.length > 0)
      this.#pool.give(this.#blocks.pop()!)
  }
}
