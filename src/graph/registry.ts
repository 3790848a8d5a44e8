// Which operators exist: ours by (domain, operator, opset version), and those a program registers.
import { ValidationError } from '../base/errors.ts'
import type { GraphNode } from './graph.ts'
import { failNode, type OpDefinition } from './op.ts'
import { attention } from './ops/attention.ts'
import { add, constant, identity, mul, sigmoid, swiglu, swish } from './ops/elementwise.ts'
import { embedding, gather } from './ops/gather.ts'
import { linear } from './ops/linear.ts'
import { moe } from './ops/moe.ts'
import { rmsNormalization } from './ops/norm.ts'
import { rotaryCache, rotaryEmbedding } from './ops/rotary.ts'

/** Opset versions whose meaning is implemented. */
export const OPSETS: Readonly<Record<string, readonly number[]>> = { 'ai.onnx': [23, 24], 'ai.wia': [14] }
/** What graphs made here declare. */
export const WRITTEN_OPSETS = [
  { domain: 'ai.onnx', version: 24 },
  { domain: 'ai.wia', version: 14 },
] as const

const BUILT_IN: ReadonlyMap<string, OpDefinition> = new Map(
  [
    add,
    attention,
    constant,
    embedding,
    gather,
    identity,
    linear,
    moe,
    mul,
    rmsNormalization,
    rotaryCache,
    rotaryEmbedding,
    sigmoid,
    swiglu,
    swish,
  ].map((d) => [`${d.domain}.${d.op}`, d]),
)

/** An operator of the caller's. The kernel's contract is not fixed yet: running one is not implemented. */
export interface CustomOp {
  readonly domain: string
  readonly op: string
  readonly version: number
  readonly kernel: (...args: never[]) => unknown
}

const custom = new Map<string, CustomOp>()
const keyOf = (domain: string, op: string, version: number) => JSON.stringify([domain, op, version])

/** The standard's registration of custom operators, for the whole process. */
export const OpRegistry = {
  /** Throws REQUEST_INVALID for an empty or reserved domain, a version that is not a count, a kernel that is no function, or a repeat. */
  register(entry: CustomOp): void {
    const refuse = (what: string, got: unknown): never => {
      throw new ValidationError('REQUEST_INVALID', { what, where: 'OpRegistry.register', got })
    }
    if (typeof entry.domain !== 'string' || entry.domain === '')
      refuse('a custom operator needs a non-empty domain', entry.domain)
    if (Object.hasOwn(OPSETS, entry.domain) || entry.domain === 'ai.onnx.ml')
      refuse('the domain is reserved', entry.domain)
    if (typeof entry.op !== 'string' || entry.op === '') refuse('a custom operator needs a name', entry.op)
    if (!Number.isSafeInteger(entry.version) || entry.version < 1) refuse('version is not a count', entry.version)
    if (typeof entry.kernel !== 'function') refuse('kernel is not a function', typeof entry.kernel)
    const key = keyOf(entry.domain, entry.op, entry.version)
    if (custom.has(key))
      refuse('the operator is registered already', `${entry.domain}.${entry.op} version ${entry.version}`)
    custom.set(key, { ...entry })
  },
  /** True when it was there. */
  unregister(entry: Pick<CustomOp, 'domain' | 'op' | 'version'>): boolean {
    return custom.delete(keyOf(entry.domain, entry.op, entry.version))
  },
  get(domain: string, op: string, version: number): CustomOp | undefined {
    return custom.get(keyOf(domain, op, version))
  },
  list(): readonly CustomOp[] {
    return [...custom.values()]
  },
} as const

/** Throws OP_UNSUPPORTED for a version or domain nobody implements. */
export function checkOpset(domain: string, version: number, where: string): void {
  const versions = Object.hasOwn(OPSETS, domain) ? OPSETS[domain]! : undefined
  if (versions?.includes(version)) return
  if (versions === undefined && OpRegistry.list().some((c) => c.domain === domain && c.version === version)) return
  throw new ValidationError('OP_UNSUPPORTED', {
    what: `opset ${domain} version ${version} is not implemented`,
    where,
    remedy: `Implemented: ${Object.entries(OPSETS)
      .map(([d, v]) => `${d} ${v.join(', ')}`)
      .join('; ')}.`,
    details: { domain, version },
  })
}

/** The definition of a node's operator, or the custom operator registered for it. Throws OP_UNSUPPORTED. */
export function findOp(node: GraphNode, opsets: ReadonlyMap<string, number>): OpDefinition | CustomOp {
  const version = opsets.get(node.domain)
  if (version === undefined)
    failNode(node, `no opset is declared for domain "${node.domain}"`, { got: [...opsets.keys()].join(', ') || 'none' })
  const definition = BUILT_IN.get(`${node.domain}.${node.op}`)
  if (definition !== undefined) {
    if (definition.since > version)
      failNode(
        node,
        `operator needs a later opset of ${node.domain}`,
        { expected: `≥ ${definition.since}`, got: version },
        'OP_UNSUPPORTED',
      )
    return definition
  }
  const registered = OpRegistry.get(node.domain, node.op, version)
  if (registered !== undefined) return registered
  return failNode(
    node,
    'operator is not implemented',
    {
      got: `${node.domain}.${node.op} version ${version}`,
      remedy: Object.hasOwn(OPSETS, node.domain)
        ? `Implemented: ${[...BUILT_IN.keys()].filter((k) => k.startsWith(`${node.domain}.`)).join(', ')}.`
        : 'Custom operators are registered with OpRegistry.register.',
    },
    'OP_UNSUPPORTED',
  )
}

export function isCustomOp(op: OpDefinition | CustomOp): op is CustomOp {
  return 'kernel' in op
}
