// Which elements lie where when they do not follow each other: strides, channels-last, and slices of anything. Pure.
import { ValidationError } from '../base/errors.ts'
import type { TensorEntry } from '../format/reader.ts'

/** One loop over elements: how many, how far apart in storage, how far apart in the result. All in elements. */
export interface Axis {
  readonly count: number
  readonly stride: number
  readonly step: number
}

/** Elements side by side in storage, `step` apart in the result. */
export interface Run {
  readonly from: number
  readonly length: number
  readonly to: number
  readonly step: number
}

export type Range = readonly [from: number, to: number]

/** Runs made at a time: bounds the memory of a plan. */
const BATCH = 4096

/** Elements between neighbours along each axis. */
export function stridesOf(entry: TensorEntry): number[] {
  if (entry.strides !== undefined) return [...entry.strides]
  const { shape } = entry
  const order =
    entry.layout === 'channels-last' ? [1, ...[...shape.keys()].slice(2).reverse(), 0] : [...shape.keys()].reverse()
  const strides = new Array<number>(shape.length).fill(0)
  let step = 1
  for (const k of order) {
    strides[k] = step
    step *= Math.max(1, shape[k]!)
  }
  return strides
}

/** Missing ranges are whole axes. Throws TENSOR_RANGE. */
export function checkRanges(entry: TensorEntry, ranges: readonly (Range | undefined)[]): Range[] {
  const bad = (what: string, expected: unknown, got: unknown): never => {
    throw new ValidationError('TENSOR_RANGE', {
      what,
      where: `tensor ${entry.name}`,
      expected,
      got,
      details: { tensor: entry.name, shape: entry.shape },
    })
  }
  if (ranges.length > entry.shape.length)
    bad('slice has more ranges than the tensor has axes', `≤ ${entry.shape.length}`, ranges.length)
  return entry.shape.map((dim, axis) => {
    const range = ranges[axis] ?? [0, dim]
    const [a, b] = range
    if (range.length !== 2 || !Number.isSafeInteger(a) || !Number.isSafeInteger(b) || a < 0 || b < a || b > dim)
      bad(`range of axis ${axis} does not exist`, `0 ≤ from ≤ to ≤ ${dim}`, `[${range.join(', ')}]`)
    return [a, b]
  })
}

/** A slice as a start and loops. The result is row-major over the ranges. */
export function sliceAxes(entry: TensorEntry, ranges: readonly Range[]): { start: number; axes: Axis[] } {
  const strides = stridesOf(entry)
  let start = 0
  let step = 1
  const axes: Axis[] = []
  for (let k = ranges.length - 1; k >= 0; k--) {
    const [a, b] = ranges[k]!
    start += a * strides[k]!
    axes.push({ count: b - a, stride: strides[k]!, step })
    step *= b - a
  }
  return { start, axes }
}

/** Storage order (largest stride first), axes of one element dropped, axes that continue each other joined. */
export function simplifyAxes(axes: readonly Axis[]): Axis[] {
  const out: Axis[] = []
  for (const axis of axes.filter((a) => a.count !== 1).sort((a, b) => b.stride - a.stride)) {
    const outer = out.at(-1)
    const joins =
      outer !== undefined && outer.stride === axis.count * axis.stride && outer.step === axis.count * axis.step
    if (joins) out[out.length - 1] = { ...axis, count: outer.count * axis.count }
    else out.push(axis)
  }
  return out
}

/** All runs of a slice in storage order, some thousand at a time. `to` is where its first element goes. */
export function* runs(start: number, loops: readonly Axis[], to = 0): Generator<Run[]> {
  if (loops.some((a) => a.count === 0)) return
  const axes = simplifyAxes(loops)
  const inner = axes.at(-1)?.stride === 1 ? axes.pop()! : { count: 1, stride: 1, step: 1 }
  const index = axes.map(() => 0)
  let batch: Run[] = []
  let from = start
  let target = to
  for (;;) {
    batch.push({ from, length: inner.count, to: target, step: inner.step })
    if (batch.length === BATCH) {
      yield batch
      batch = []
    }
    let k = axes.length - 1
    for (; k >= 0; k--) {
      const { count, stride, step } = axes[k]!
      from += stride
      target += step
      if (++index[k]! < count) break
      from -= count * stride
      target -= count * step
      index[k] = 0
    }
    if (k < 0) break
  }
  if (batch.length > 0) yield batch
}

/** Rows [a, b) of the matrix view as slices: runs over the last of the leading axes. */
export function* rowSlices(shape: readonly number[], a: number, b: number): Generator<Range[]> {
  const leading = shape.slice(0, -1)
  const last = leading.at(-1) ?? 1
  const columns: Range = [0, shape.at(-1) ?? 1]
  for (let row = a; row < b; ) {
    const at = row % last
    const end = Math.min(last, at + b - row)
    let rest = Math.floor(row / last)
    const ranges: Range[] = [[at, end]]
    for (let k = leading.length - 2; k >= 0; k--) {
      const i = rest % leading[k]!
      rest = Math.floor(rest / leading[k]!)
      ranges.unshift([i, i + 1])
    }
    yield shape.length === 0 ? [] : shape.length === 1 ? [columns] : [...ranges, columns]
    row += end - at
  }
}
