// Graph against tensor index, both directions: every weight is there with the right shape, every tensor is used.
import { ModelFormatError } from '../base/errors.ts'
import { sameShape } from '../base/shape.ts'
import type { Graph } from './graph.ts'

export interface TensorPart {
  readonly tensor: string
  /**
   * Part along axis 0 of a stacked tensor, or rows [start, end) of a matrix; undefined: the whole tensor. What format/part.ts `partOf`
   * takes.
   */
  readonly part?: number | { readonly start: number; readonly end: number }
}

/**
 * The tensor a name means, unless a tensor of just that name exists: `<tensor>#<e>` is part e of a tensor stacked along axis 0,
 * `<tensor>[<a>:<b>]` are rows a … b−1 of a matrix. Undefined when there is none.
 */
export function findTensor(tensors: ReadonlyMap<string, unknown>, name: string): TensorPart | undefined {
  if (tensors.has(name)) return { tensor: name }
  const stacked = /^(.+)#(0|[1-9]\d{0,8})$/s.exec(name)
  if (stacked !== null && tensors.has(stacked[1]!)) return { tensor: stacked[1]!, part: Number(stacked[2]) }
  const rows = /^(.+)\[(0|[1-9]\d{0,14}):([1-9]\d{0,14})\]$/s.exec(name)
  if (rows === null || !tensors.has(rows[1]!)) return undefined
  return { tensor: rows[1]!, part: { start: Number(rows[2]), end: Number(rows[3]) } }
}

/** The name of rows [start, end) of a matrix. */
export function rowsName(tensor: string, start: number, end: number): string {
  return `${tensor}[${start}:${end}]`
}

export interface TensorCheck {
  /** Weight name in the graph → tensor name in the model; without it they are the same. */
  readonly names?: ReadonlyMap<string, string>
  /** Tensors the graph may leave out. */
  readonly ignored?: ReadonlySet<string>
}

/**
 * Throws TENSOR_MISSING, TENSOR_SHAPE or TENSOR_UNEXPECTED, naming up to five tensors and the count.
 */
export function checkTensors(
  graph: Graph,
  tensors: ReadonlyMap<string, { readonly shape: readonly number[] }>,
  check: TensorCheck = {},
): void {
  const used = new Set<string>()
  const missing: string[] = []
  const wrong: string[] = []
  const ranges = new Map<string, { start: number; end: number }[]>()
  for (const weight of graph.weights) {
    const name = check.names?.get(weight.name) ?? weight.name
    const found = findTensor(tensors, name)
    if (found === undefined) {
      missing.push(name)
      continue
    }
    const { tensor, part } = found
    const entry = tensors.get(tensor)!
    used.add(tensor)
    const shape = partShape(entry.shape, part)
    if (typeof part === 'object') ranges.set(tensor, [...(ranges.get(tensor) ?? []), part])
    if (shape === undefined)
      wrong.push(
        `${name}: the tensor [${entry.shape.join(', ')}] has no such ${typeof part === 'number' ? 'part' : 'rows'}`,
      )
    else if (!sameShape(shape, weight.shape))
      wrong.push(`${name}: expected [${weight.shape.join(', ')}], got [${shape.join(', ')}]`)
  }
  for (const [tensor, list] of ranges) {
    const rows = tensors.get(tensor)!.shape[0]!
    if (!tiles(list, rows)) wrong.push(`${tensor}: ${rows} rows, of which the architecture uses ${describe(list)}`)
  }
  if (missing.length > 0) fail('TENSOR_MISSING', 'the architecture needs tensors the model does not have', missing)
  if (wrong.length > 0) fail('TENSOR_SHAPE', 'tensors have another shape than the architecture needs', wrong)
  const unexpected = [...tensors.keys()].filter((name) => !used.has(name) && check.ignored?.has(name) !== true)
  if (unexpected.length > 0)
    fail('TENSOR_UNEXPECTED', 'the model has tensors the architecture does not use', unexpected)
}

function partShape(shape: readonly number[], part: TensorPart['part']): readonly number[] | undefined {
  if (part === undefined) return shape
  const [rows] = shape
  if (typeof part === 'number') return part < (rows ?? 0) ? shape.slice(1) : undefined
  if (shape.length !== 2 || !(part.start < part.end && part.end <= rows!)) return undefined
  return [part.end - part.start, shape[1]!]
}

/** Every row belongs to one range: rows nobody uses would be weights left out silently. */
function tiles(ranges: readonly { start: number; end: number }[], rows: number): boolean {
  let at = 0
  for (const { start, end } of ranges.toSorted((a, b) => a.start - b.start)) {
    if (start !== at) return false
    at = end
  }
  return at === rows
}

function describe(ranges: readonly { start: number; end: number }[]): string {
  return ranges.map(({ start, end }) => `[${start}, ${end})`).join(' ')
}

function fail(
  code: 'TENSOR_MISSING' | 'TENSOR_SHAPE' | 'TENSOR_UNEXPECTED',
  what: string,
  list: readonly string[],
): never {
  const more = list.length > 5 ? `; and ${list.length - 5} more` : ''
  throw new ModelFormatError(code, {
    what: `${what} (${list.length})`,
    got: `${list.slice(0, 5).join('; ')}${more}`,
    details: { count: list.length, tensors: list.slice(0, 100) },
  })
}
