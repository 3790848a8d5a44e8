// Binds a plan to memory: allocates every area of the layout in arena 0 and turns names into addresses.

import { SluiceError } from '../base/errors.ts'
import type { Plan } from '../graph/plan.ts'
import { attentionScratch } from '../kernels/compute.ts'
import { ARENA_RESERVED_BYTES, type ArenaSet } from '../memory/memory.ts'
import { KV_PAGE_TOKENS } from './kv.ts'
import { type Layout, SEQUENCES_MAX } from './layout.ts'
import {
  type BoundBuffer,
  type BoundRoute,
  type BoundWeight,
  firstGroups,
  hasQuantizedKernel,
  type Program,
  type ProgramStep,
  placeBarriers,
  placeQuantization,
} from './program.ts'

export interface Bound {
  readonly program: Program
  readonly logits: BoundBuffer
  readonly embedding: BoundBuffer
  /** Page tables: uint32 [SEQUENCES_MAX, layers, pagesMax]. */
  readonly kvTables: number
  readonly kv: number
}

export interface BindInput {
  readonly plan: Plan
  readonly layout: Layout
  readonly arenas: ArenaSet
  readonly areas: Areas
  readonly precision: 'exact' | 'fast'
  readonly threads: number
  /** Matrix of the linear step with that index: a weight used twice is paged at both places. */
  readonly weight: (step: number) => BoundWeight
  /** Address of float32 values in arena 0. */
  readonly vector: (name: string) => number
}

/** Where the engine's own areas are. */
type Areas = ReturnType<typeof allocate>

/** Takes every area of the layout from arena 0: before the pager, whose pages may fill it. */
export function allocate(plan: Plan, layout: Layout, arenas: ArenaSet, threads: number) {
  const base = arenas.arenas[0]!
  base.reserve(layout.totalBytes)
  const take = (bytes: number, align = 64) => base.alloc(Math.max(64, bytes), align).address
  const tokensMax = layout.tokensMax
  const vectors = take(layout.bytes.vectors)
  const adapters = take(layout.bytes.adapters)
  const activations = take(layout.bytes.activations)
  const logitsAt = take(layout.bytes.logits)
  const buffers: BoundBuffer[] = plan.buffers.map((b) => ({
    address:
      b.offset < plan.logitsFrom
        ? activations + b.offset * tokensMax * 4
        : logitsAt + (b.offset - plan.logitsFrom) * layout.logitRows * 4,
    stride: b.stride,
    width: b.width,
  }))
  const quantizedAt = take(layout.bytes.quantized)
  const ropes = plan.ropes.map((r) => ({
    address: take(r.inverseFrequencies.length * 8 * tokensMax),
    half: r.inverseFrequencies.length,
  }))
  const groups = firstGroups(plan)
  const routes = plan.routes.map(
    (r, i): BoundRoute => ({
      ...r,
      firstGroup: groups[i]!,
      choices: take(r.topK * tokensMax * 4),
      weights: take(r.topK * tokensMax * 4),
      counts: take(r.experts * 4),
      ...consecutive(take(r.experts * tokensMax * 8), r.experts * tokensMax * 4),
    }),
  )
  const scores = Array.from({ length: threads }, () => take(attentionScratch(layout.pagesMax * KV_PAGE_TOKENS)))
  const kvTables = take(plan.kv.length * layout.pagesMax * 4 * SEQUENCES_MAX)
  const logitTokens = take(tokensMax * 4)
  const kv = take(layout.bytes.kv, 4096)
  return { vectors, adapters, buffers, quantizedAt, ropes, routes, scores, kvTables, logitTokens, kv }
}

export function bind(input: BindInput): Bound {
  const { plan, layout } = input
  const { buffers, ropes, routes, quantizedAt, scores, kvTables, logitTokens, kv } = input.areas
  const overlaps = (a: number, b: number) => {
    if (a === b) return true
    const [x, y] = [plan.buffers[a]!, plan.buffers[b]!]
    return x.offset < y.offset + y.stride && y.offset < x.offset + x.stride
  }
  const weights = plan.steps.map((s, i) => (s.op === 'linear' ? input.weight(i) : undefined))
  const blockOf = new Map<string, number>()
  plan.steps.forEach((s, i) => {
    if (s.op === 'linear') blockOf.set(s.weight, quantizedBlock(weights[i]!, input.precision))
  })
  const quantize = placeQuantization(plan.steps, (w) => blockOf.get(w)!, overlaps)
  const barriers = placeBarriers(plan.steps, overlaps, quantize)
  const steps = plan.steps.map((step, i): ProgramStep => {
    const weight = weights[i]
    return {
      step,
      barrier: barriers[i]!,
      ...(weight === undefined ? {} : { weight }),
      quantize: quantize[i]!,
      quantized: step.op === 'linear' && blockOf.get(step.weight)! > 0,
      vector: step.op === 'rmsNorm' || step.op === 'bias' ? input.vector(step.weight) : 0,
    }
  })

  const first = plan.steps[0]
  if (first?.op !== 'embed')
    throw new SluiceError('GRAPH_INVALID', { what: 'a plan begins with its embedding', got: first?.op })
  return {
    program: {
      steps,
      buffers,
      ropes,
      kv: plan.kv,
      kvF16: layout.kvElementBytes === 2 ? 1 : 0,
      kvPageTokens: KV_PAGE_TOKENS,
      kvTableWords: layout.pagesMax,
      logitTokens,
      routes,
      quantizedAt,
      scores,
      tiles: tiles(input),
      tokensMax: layout.tokensMax,
    },
    logits: buffers[plan.logits]!,
    embedding: buffers[first.y]!,
    kvTables,
    kv,
  }
}

function consecutive(at: number, bytes: number): { lists: number; listWeights: number } {
  return { lists: at, listWeights: at + bytes }
}

function quantizedBlock(weight: BoundWeight, precision: 'exact' | 'fast'): number {
  if (precision === 'exact' || 'resident' in weight) return 0
  return hasQuantizedKernel(weight.paged.encoding) ? weight.paged.block : 0
}

/** Scratch of the threads at the beginning of the arenas: above arena 0 there are only pages, activations come as tiles. */
function tiles(input: BindInput): { x: number; y: number }[][] {
  const { tileX, tileY } = input.layout
  return input.arenas.arenas.map(() =>
    Array.from({ length: input.threads }, (_, t) => {
      const x = ARENA_RESERVED_BYTES + t * (tileX + tileY)
      return { x, y: x + tileX }
    }),
  )
}

/** Bytes at the beginning of every arena that are not handed out: kernels' constants and stacks, then the tiles. */
export function reservedBytes(layout: Layout, threads: number): number {
  return ARENA_RESERVED_BYTES + threads * (layout.tileX + layout.tileY)
}
