// Memory planning: where buffers lie. A buffer is alive from the first step that touches it to the last; those never alive together may
// share floats. Everything here is floats per token.
import { ValidationError } from '../../base/errors.ts'
import { addSafe, roundUp } from '../../base/shape.ts'
import type { VirtualBuffer } from '../lower.ts'
import { LOGIT_TOKENS } from '../op.ts'
import type { BufferId, Plan, PlanBuffer, PlanStep } from '../plan.ts'

/** Rows of activations start at multiples of this many floats. */
const UNIT = 64

/** Buffers a step reads or writes. */
export function touched(step: PlanStep): BufferId[] {
  switch (step.op) {
    case 'embed':
    case 'bias':
    case 'zero':
      return [step.y]
    case 'rope':
      return [step.x]
    case 'attention':
      return [step.q, step.k, step.v, step.y]
    case 'swiglu':
      return [step.gate, step.up, step.y]
    case 'route':
      return [step.logits]
    default:
      return [step.x, step.y]
  }
}

export type MemoryPlan = Pick<Plan, 'buffers' | 'activationFloats' | 'logitsFrom'>

/**
 * Offsets for buffers that `steps` use, in order of first use (linear scan, first fit). `keep` stays alive to the end.
 * A buffer with padding gets floats that only buffers of its width ever use, so its padding stays as it was zeroed; buffers of
 * logit tokens lie behind all others. Pure. Throws GRAPH_INVALID for a buffer no step touches.
 */
export function planMemory(buffers: readonly VirtualBuffer[], steps: readonly PlanStep[], keep: BufferId): MemoryPlan {
  const first = new Array<number>(buffers.length).fill(-1)
  const last = new Array<number>(buffers.length).fill(-1)
  steps.forEach((step, i) => {
    for (const b of touched(step)) {
      if (first[b] === -1) first[b] = i
      last[b] = i
    }
  })
  last[keep] = Number.POSITIVE_INFINITY
  const offsets = new Array<number>(buffers.length).fill(-1)
  const areas = { all: new Area(), logits: new Area() }
  const area = (b: VirtualBuffer) => (b.rows === LOGIT_TOKENS ? areas.logits : areas.all)
  const byFirst = buffers.map((_, i) => i).sort((a, b) => first[a]! - first[b]! || a - b)
  const ends = buffers.map((_, i) => i).sort((a, b) => last[a]! - last[b]! || a - b)
  let ended = 0
  for (const id of byFirst) {
    const buffer = buffers[id]!
    if (first[id] === -1)
      throw new ValidationError('GRAPH_INVALID', {
        what: 'no step uses a buffer',
        where: 'memory plan',
        got: buffer.name,
      })
    // Only buffers whose last step lies strictly before this one's first are free: a step's inputs never overlap its outputs.
    for (; last[ends[ended]!]! < first[id]!; ended++) {
      const dead = ends[ended]!
      area(buffers[dead]!).free(offsets[dead]!, buffers[dead]!.width)
    }
    offsets[id] = area(buffer).take(buffer.width)
  }
  const logitsFrom = areas.all.size
  const planned: PlanBuffer[] = buffers.map((b, i) => ({
    name: b.name,
    width: b.width,
    stride: roundUp(b.width, UNIT),
    offset: b.rows === LOGIT_TOKENS ? addSafe(logitsFrom, offsets[i]!, 'memory plan') : offsets[i]!,
  }))
  return { buffers: planned, activationFloats: addSafe(logitsFrom, areas.logits.size, 'memory plan'), logitsFrom }
}

/** Free ranges of one area, ascending and merged; freed places of padded widths apart. */
class Area {
  size = 0
  #ranges: { start: number; end: number }[] = []
  readonly #padded = new Map<number, number[]>()

  take(width: number): number {
    const stride = roundUp(width, UNIT)
    if (stride !== width) return this.#padded.get(width)?.pop() ?? this.#grow(stride)
    const i = this.#ranges.findIndex((r) => r.end - r.start >= stride)
    if (i >= 0) {
      const range = this.#ranges[i]!
      const at = range.start
      range.start += stride
      if (range.start === range.end) this.#ranges.splice(i, 1)
      return at
    }
    // Nothing fits: begin in the free range at the end, if there is one, and grow.
    const tail = this.#ranges.at(-1)
    if (tail?.end !== this.size) return this.#grow(stride)
    this.#ranges.pop()
    this.size = addSafe(tail.start, stride, 'memory plan')
    return tail.start
  }

  free(start: number, width: number): void {
    const stride = roundUp(width, UNIT)
    if (stride !== width) {
      const list = this.#padded.get(width) ?? []
      list.push(start)
      this.#padded.set(width, list)
      return
    }
    const end = start + stride
    let i = this.#ranges.findIndex((r) => r.start > start)
    if (i < 0) i = this.#ranges.length
    const before = this.#ranges[i - 1]
    const after = this.#ranges[i]
    if (before?.end === start && after?.start === end) {
      before.end = after.end
      this.#ranges.splice(i, 1)
    } else if (before?.end === start) before.end = end
    else if (after?.start === end) after.start = start
    else this.#ranges.splice(i, 0, { start, end })
  }

  #grow(stride: number): number {
    const at = this.size
    this.size = addSafe(at, stride, 'memory plan')
    return at
  }
}
