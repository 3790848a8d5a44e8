// Strides of tensors that are not contiguous row-major: which are allowed, and how many bytes they span (FORMAT §4.2).
import { addSafe, elementCount, mulSafe } from '../../base/shape.ts'
import { invalid, unsupported } from './refuse.ts'

export const LAYOUTS = ['row-major', 'channels-last', 'nd-hwc', 'packed-int8'] as const
export type Layout = (typeof LAYOUTS)[number]

export function asLayout(value: unknown, where: string): Layout {
  const layout = LAYOUTS.find((l) => l === value)
  return layout ?? unsupported('unknown layout', where, value)
}

/** Elements from the first to the last one that strides reach: 1 + Σ (dₖ−1)·strideₖ, or 0 for an empty tensor. */
export function spannedElements(shape: readonly number[], strides: readonly number[], where: string): number {
  if (strides.length !== shape.length)
    invalid('not one stride a dimension', where, { expected: shape.length, got: strides.length })
  for (const s of strides) if (!Number.isSafeInteger(s) || s < 0) invalid('stride is not a count', where, { got: s })
  if (elementCount(shape, where) === 0) return 0
  let last = 0
  for (let k = 0; k < shape.length; k++) last = addSafe(last, mulSafe(shape[k]! - 1, strides[k]!, where), where)
  return addSafe(last, 1, where)
}

/** Refuses strides that let few bytes pretend to be many elements, or that make elements share bytes. Sorted by stride, each must step over the ones below. */
export function checkDisjoint(shape: readonly number[], strides: readonly number[], where: string): void {
  const order = [...shape.keys()].filter((k) => shape[k]! > 1).sort((a, b) => strides[a]! - strides[b]!)
  let reach = 0
  for (const k of order) {
    if (strides[k]! <= reach)
      invalid('strides make elements share bytes', where, { got: `shape ${shape}, strides ${strides}` })
    reach = addSafe(reach, mulSafe(shape[k]! - 1, strides[k]!, where), where)
  }
}

/** Strides of logical (N, C, spatial …) over bytes in the order (N, spatial …, C). */
export function channelsLastStrides(shape: readonly number[], where: string): number[] {
  if (shape.length < 3) invalid('channels-last needs three dimensions', where, { got: shape })
  const strides = new Array<number>(shape.length)
  let step = 1
  for (const k of [1, ...[...shape.keys()].slice(2).reverse(), 0]) {
    strides[k] = step
    step = mulSafe(step, Math.max(1, shape[k]!), where)
  }
  return strides
}
