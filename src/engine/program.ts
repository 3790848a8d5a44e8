// A plan bound to memory: what compute threads run. Plain data, posted once to every thread.

import { SluiceError } from '../base/errors.ts'
import type { BufferId, Plan, PlanStep, TokenSet } from '../graph/plan.ts'
import type { MatrixBlock } from '../kernels/kernels.ts'
import { COMPUTE } from '../kernels/kernels.ts'
import type { PagedMatrix } from '../pager/pager.ts'

/** Where a linear step's weight is: in pages that come and go, or resident in arena 0 (adapters). */
export type BoundWeight = { readonly paged: PagedMatrix } | { readonly resident: MatrixBlock }

export interface ProgramStep {
  readonly step: PlanStep
  /** Wait for all threads before this step: it touches what another step since the last barrier wrote or read. */
  readonly barrier: boolean
  /** linear: the matrix. */
  readonly weight?: BoundWeight
  /** linear, fast precision: quantize x first with this block (0: x is quantized already, or not needed). */
  readonly quantize: number
  /** linear, fast precision: computes on quantized activations. */
  readonly quantized: boolean
  /** rmsNorm, bias: address of float32 values in arena 0. */
  readonly vector: number
}

/** A buffer's place in arena 0: float32 [rows, stride]. */
export interface BoundBuffer {
  readonly address: number
  readonly stride: number
  readonly width: number
}

export interface Program {
  readonly steps: readonly ProgramStep[]
  readonly buffers: readonly BoundBuffer[]
  /** Rotary tables: address of float32 [tokensMax, dims/2, 2] and rotaryDim/2. */
  readonly ropes: readonly { readonly address: number; readonly half: number }[]
  readonly kv: Plan['kv']
  readonly kvF16: number
  readonly kvPageTokens: number
  /** uint32 words from one layer's page table to the next. */
  readonly kvTableWords: number
  /** Address of int32 token indices whose logits are wanted. */
  readonly logitTokens: number
  /** Routes: choices int32 [tokensMax, topK], weights float32 [tokensMax, topK], then per expert: count int32, list int32 [tokensMax], list weights float32 [tokensMax]. */
  readonly routes: readonly BoundRoute[]
  /** Quantized activations in arena 0. */
  readonly quantizedAt: number
  /** Per thread: attention scores in arena 0. */
  readonly scores: readonly number[]
  /** Per arena above 0, per thread: scratch for a tile of activations and of results. */
  readonly tiles: readonly (readonly { readonly x: number; readonly y: number }[])[]
  readonly tokensMax: number
}

export interface BoundRoute {
  readonly experts: number
  readonly topK: number
  /** Expert e is group firstGroup + e of the pager. */
  readonly firstGroup: number
  readonly choices: number
  readonly weights: number
  readonly counts: number
  readonly lists: number
  readonly listWeights: number
}

/** Panel formats have integer kernels; rows formats compute in float32 in both precisions. */
export function hasQuantizedKernel(encoding: number): boolean {
  return encoding !== COMPUTE.f32 && encoding !== COMPUTE.f16 && encoding !== COMPUTE.bf16
}

interface Access {
  reads: BufferId[]
  writes: BufferId[]
  /** Cache layer, written and read. */
  kv?: number
  /** Route table. */
  route?: { id: number; write: boolean }
}

function routeOf(tokens: TokenSet): Access['route'] | undefined {
  return tokens.kind === 'expert' ? { id: tokens.route, write: false } : undefined
}

function access(step: PlanStep): Access {
  switch (step.op) {
    case 'embed':
      return { reads: [], writes: [] } // done before the pass
    case 'rmsNorm':
      return withRoute({ reads: [step.x], writes: [step.y] }, step.tokens)
    case 'linear':
      return withRoute({ reads: step.accumulate ? [step.x, step.y] : [step.x], writes: [step.y] }, step.tokens)
    case 'bias':
    case 'zero':
      return withRoute({ reads: [step.y], writes: [step.y] }, step.tokens)
    case 'rope':
      return { reads: [step.x], writes: [step.x] }
    case 'attention':
      return { reads: [step.q, step.k, step.v], writes: [step.y], kv: step.layer }
    case 'swiglu':
      return withRoute({ reads: [step.gate, step.up], writes: [step.y] }, step.tokens)
    case 'add':
      return withRoute({ reads: [step.x, step.y], writes: [step.y] }, step.tokens)
    case 'route':
      return { reads: [step.logits], writes: [], route: { id: step.route, write: true } }
    case 'gatherExpert':
    case 'scatterExpert':
      return { reads: [step.x, step.y], writes: [step.y], route: { id: step.route, write: false } }
    case 'selectLogits':
      return { reads: [step.x], writes: [step.y] }
    default:
      throw new SluiceError('OP_UNSUPPORTED', { what: 'plan step is not known', got: (step as { op: string }).op })
  }
}

function withRoute(a: Access, tokens: TokenSet): Access {
  const route = routeOf(tokens)
  return route === undefined ? a : { ...a, route }
}

/** Steps that write without a barrier between them. Layers have under ten; a graph of 50,000 would be compared pair by pair. */
const MAX_UNORDERED = 256

/**
 * Which steps need a barrier: those that touch a buffer (or memory shared with one) that was written since the last barrier, or
 * write one that was read. `overlaps` tells whether two buffers share memory.
 */
export function placeBarriers(
  steps: readonly PlanStep[],
  overlaps: (a: BufferId, b: BufferId) => boolean,
  quantize: readonly number[],
): boolean[] {
  let quantizedInUse = false // the one area of quantized activations may still be read by other threads
  let reads: BufferId[] = []
  let writes: BufferId[] = []
  let routesWritten = new Set<number>()
  let routesRead = new Set<number>()
  const hits = (list: readonly BufferId[], set: readonly BufferId[]) =>
    list.some((b) => set.some((s) => overlaps(b, s)))
  return steps.map((step, i) => {
    const a = access(step)
    const conflict =
      writes.length > MAX_UNORDERED ||
      (quantize[i]! > 0 && quantizedInUse) ||
      hits(a.reads, writes) ||
      hits(a.writes, writes) ||
      hits(a.writes, reads) ||
      (a.route !== undefined && (routesWritten.has(a.route.id) || (a.route.write && routesRead.has(a.route.id))))
    if (conflict) {
      reads = []
      writes = []
      routesWritten = new Set()
      routesRead = new Set()
      quantizedInUse = false
    }
    quantizedInUse ||= step.op === 'linear'
    reads.push(...a.reads)
    writes.push(...a.writes)
    if (a.route !== undefined) (a.route.write ? routesWritten : routesRead).add(a.route.id)
    return conflict
  })
}

/**
 * Which linear steps quantize their input first (fast precision): the first after the buffer was written. Steps that follow on the same
 * buffer and block share the result.
 */
export function placeQuantization(
  steps: readonly PlanStep[],
  blockOf: (weight: string) => number,
  overlaps: (a: BufferId, b: BufferId) => boolean,
): number[] {
  let current: { x: BufferId; block: number } | undefined
  return steps.map((step) => {
    let quantize = 0
    if (step.op === 'linear') {
      const block = blockOf(step.weight)
      if (block > 0 && (current?.x !== step.x || current.block !== block)) {
        quantize = block
        current = { x: step.x, block }
      }
    }
    const { writes } = access(step)
    if (current !== undefined && writes.some((w) => overlaps(w, current!.x))) current = undefined
    return quantize
  })
}

/** Number of the first group of each route: experts are groups of the pager. */
export function firstGroups(plan: Pick<Plan, 'routes'>): number[] {
  let next = 0
  return plan.routes.map((r) => {
    const first = next
    next += r.experts
    return first
  })
}
