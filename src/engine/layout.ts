// What the engine itself needs in arena 0, as pure arithmetic: the same numbers serve `plan` (before anything is allocated) and bind.ts.
import { roundUp } from '../base/shape.ts'
import type { Plan } from '../graph/plan.ts'
import { attentionScratch, quantizedStride } from '../kernels/compute.ts'
import type { Precision } from './engine.ts'
import { KV_PAGE_TOKENS, kvBlock } from './kv.ts'

/** Logits of at most this many bytes are held at a time (one row at least). */
const LOGITS_BYTES = 4 * 1024 * 1024
/** Prompts are read in chunks of at most this many tokens. */
const TOKENS_MAX = 512
/** Tokens, and rows of results, carried to and from another arena at a time. */
export const TILE_TOKENS = 16
export const TILE_ROWS = 512

export interface LayoutOptions {
  readonly precision: Precision
  readonly threads: number
  /** Positions a sequence may have. */
  readonly context: number
  /** Positions the cache has room for, over all sequences. */
  readonly cacheTokens: number
  /** Arenas that the budget takes, at most. */
  readonly arenas: number
  /** Bytes that activations of a chunk may take. */
  readonly activationBytes: number
  /** Floats of norm weights and biases. */
  readonly vectorFloats: number
  /** Stored bytes of adapters. */
  readonly adapterBytes: number
}

export interface Layout {
  readonly tokensMax: number
  readonly logitRows: number
  /** Bytes of a thread's tile of activations, and of results, at the beginning of every arena. */
  readonly tileX: number
  readonly tileY: number
  readonly kvBlockBytes: number
  readonly kvLayers: readonly number[]
  readonly kvBlocks: number
  readonly kvElementBytes: number
  /** Blocks of a sequence's page table. */
  readonly pagesMax: number
  /** Sum of `bytes`. */
  readonly totalBytes: number
  /** Bytes by area. */
  readonly bytes: {
    readonly activations: number
    readonly logits: number
    readonly quantized: number
    readonly tables: number
    readonly vectors: number
    readonly adapters: number
    readonly kv: number
    /** Tiles of the arenas above 0. */
    readonly tiles: number
  }
}

/** Bytes that are neither cache nor adapters: activations, logits and tables. */
export function scratchBytes({ bytes: b }: Layout): number {
  return b.activations + b.logits + b.quantized + b.tables + b.vectors + b.tiles
}

export function layoutOf(plan: Plan, o: LayoutOptions): Layout {
  const logits = plan.buffers[plan.logits]!
  // Buffers from logitsFrom on hold few rows: only tokens whose logits are wanted.
  const floats = plan.logitsFrom
  const logitFloats = plan.activationFloats - plan.logitsFrom
  const widest = plan.steps.reduce((w, s) => (s.op === 'linear' ? Math.max(w, plan.buffers[s.x]!.stride) : w), 0)
  const quantizedRow = Math.max(quantizedStride(widest, 32), quantizedStride(widest, 64))
  const quantizedPerToken = o.precision === 'fast' ? quantizedRow : 0
  const ropePerToken = plan.ropes.reduce((n, r) => n + r.inverseFrequencies.length * 8, 0)
  const routePerToken = plan.routes.reduce((n, r) => n + 8 * (r.topK + r.experts), 0)
  const perToken = floats * 4 + quantizedPerToken + ropePerToken + routePerToken
  const tokensMax = Math.max(1, Math.min(TOKENS_MAX, o.context, Math.floor(o.activationBytes / perToken)))
  const logitRows = Math.max(1, Math.min(tokensMax, Math.floor(LOGITS_BYTES / (logits.stride * 4))))
  const kvElementBytes = o.precision === 'exact' ? 4 : 2
  const block = kvBlock(plan.kv, kvElementBytes)
  const pagesMax = Math.ceil(o.context / KV_PAGE_TOKENS)
  const kvBlocks = Math.ceil(o.cacheTokens / KV_PAGE_TOKENS)
  // A context that no memory holds is refused by the budget, not by arithmetic.
  const scores = o.threads * attentionScratch(Math.min(pagesMax * KV_PAGE_TOKENS, 2 ** 40))
  const tileX = roundUp(Math.max(widest * 4, quantizedRow) * TILE_TOKENS, 64)
  const tileY = TILE_ROWS * 4 * TILE_TOKENS
  const bytes = {
    activations: floats * 4 * tokensMax,
    logits: logitFloats * 4 * logitRows,
    quantized: quantizedPerToken * tokensMax,
    tables:
      (ropePerToken + routePerToken) * tokensMax +
      plan.routes.length * 4096 +
      scores +
      plan.kv.length * pagesMax * 4 * SEQUENCES_MAX +
      4096,
    vectors: roundUp(o.vectorFloats * 4, 64),
    adapters: o.adapterBytes,
    kv: block.bytes * kvBlocks,
    tiles: (o.arenas - 1) * o.threads * (tileX + tileY),
  }
  return {
    tokensMax,
    logitRows,
    tileX,
    tileY,
    kvBlockBytes: block.bytes,
    kvLayers: block.layers,
    kvBlocks,
    kvElementBytes,
    pagesMax,
    totalBytes: Object.values(bytes).reduce((a, b) => a + b, 0),
    bytes,
  }
}

/** Sequences that may hold page tables at a time. */
export const SEQUENCES_MAX = 16
