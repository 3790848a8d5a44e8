// Graph against tensor index, both directions: every weight is there with the right shape, every tensor is used.
import { ModelFormatError } from '../base/errors.ts'
import { sameShape } from '../base/shape.ts'
import type { Graph } from './graph.ts'

export interface TensorPart {
  readonly tensor: string
  /** Part along axis 0 of a stacked tensor; undefined: the whole tensor. */
  readonly part?: number
}

/**
 * The tensor a name means: `<tensor>#<e>` is part e of a tensor stacked along axis 0, unless a tensor of just that name exists.
 * Undefined when there is none.
 */
export function findTensor(tensors: ReadonlyMap<string, unknown>, name: string): TensorPart | undefined {
  if (tensors.has(name)) return { tensor: name }
  const found = /^(.+)#(0|[1-9]\d{0,8})$/s.exec(name)
  if (found === null || !tensors.has(found[1]!)) return undefined
  return { tensor: found[1]!, part: Number(found[2]) }
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
    const shape = part === undefined ? entry.shape : entry.shape.slice(1)
    if (part !== undefined && !(part < (entry.shape[0] ?? 0)))
      wrong.push(`${name}: expected more than ${part} parts, got [${entry.shape.join(', ')}]`)
    else if (!sameShape(shape, weight.shape))
      wrong.push(`${name}: expected [${weight.shape.join(', ')}], got [${shape.join(', ')}]`)
  }
  if (missing.length > 0) fail('TENSOR_MISSING', 'the architecture needs tensors the model does not have', missing)
  if (wrong.length > 0) fail('TENSOR_SHAPE', 'tensors have another shape than the architecture needs', wrong)
  const unexpected = [...tensors.keys()].filter((name) => !used.has(name) && check.ignored?.has(name) !== true)
  if (unexpected.length > 0)
    fail('TENSOR_UNEXPECTED', 'the model has tensors the architecture does not use', unexpected)
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
