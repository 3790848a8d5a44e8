// What a conversion will do, as data: which tensor becomes which, in which order, and what it will take. Nothing is read or written.
import { isDeepStrictEqual } from 'node:util'
import type { ArchOutput } from '../arch/arch.ts'
import { ConversionError } from '../base/errors.ts'
import { partOf } from '../format/part.ts'
import type { ModelReader, TensorEntry } from '../format/reader.ts'
import type { PlannedTensor } from '../format/writer.ts'
import { compile } from '../graph/compile.ts'
import { checkTensors, findTensor } from '../graph/tensors.ts'
import { encodedBytes } from '../quant/codec.ts'
import { encodingFor, isRelayout, type Quantization, type Role } from './policy.ts'

/** One output tensor and where its rows come from. */
export interface ConversionStep {
  readonly target: PlannedTensor
  /** Parts of stacked tensors (experts) become tensors of their own. */
  readonly source: TensorEntry
  readonly role: Role
  /** copy: bytes as they are; relayout: the same numbers, their bytes in another order; encode: through float32; alias: stored once, under another name. */
  readonly how: 'copy' | 'relayout' | 'encode' | 'alias'
}

export interface ConversionPlan {
  readonly steps: readonly ConversionStep[]
  /** Stored bytes of the source's tensors, and of the package's. */
  readonly bytesIn: number
  readonly bytesOut: number
  readonly parameters: number
}

/**
 * Storage order is execution order: embedding, layers, final norm, head. A model without an architecture keeps its own order.
 * Throws TENSOR_MISSING, TENSOR_UNEXPECTED, TENSOR_SHAPE, QUANT_UNSUPPORTED, ARCH_UNSUPPORTED.
 */
export function planConversion(
  reader: ModelReader,
  arch: ArchOutput | undefined,
  quantization: Quantization,
): ConversionPlan {
  const steps = arch === undefined ? planAsIs(reader, quantization) : planByGraph(reader, arch, quantization)
  const stored = steps.filter((s) => s.how !== 'alias')
  return {
    steps,
    bytesIn: stored.reduce((n, s) => n + s.source.byteLength, 0),
    bytesOut: stored.reduce((n, s) => n + s.target.byteLength, 0),
    parameters: stored.reduce((n, s) => n + s.target.rows * s.target.cols, 0),
  }
}

function planByGraph(reader: ModelReader, arch: ArchOutput, quantization: Quantization): ConversionStep[] {
  // Every tensor that is needed is there and every one that is there is needed: nothing is left out without a word.
  checkTensors(arch.graph, reader.tensors, arch)
  const roles = rolesOf(arch)
  const stored = new Map<string, ConversionStep>()
  return arch.graph.weights
    .map((w) => w.name)
    .sort((a, b) => roles.order.get(a)! - roles.order.get(b)!)
    .map((name) => {
      const { tensor, part } = findTensor(reader.tensors, arch.names.get(name)!)!
      const entry = reader.tensors.get(tensor)!
      const source = part === undefined ? entry : partOf(entry, part)
      // Two weights of the graph may be one tensor of the source: it is stored where it is used first.
      const bytes = JSON.stringify([entry.aliasOf ?? tensor, part ?? null])
      const first = stored.get(bytes)
      if (first !== undefined) return aliasStep(name, first)
      const made = step(name, source, roles.role.get(name)!, quantization)
      stored.set(bytes, made)
      return made
    })
}

function planAsIs(reader: ModelReader, quantization: Quantization): ConversionStep[] {
  if (quantization !== 'keep')
    throw new ConversionError('ARCH_UNSUPPORTED', {
      what: 'cannot quantize a model whose architecture is not known: which tensors may be rounded is not known either',
      where: reader.path,
      remedy: 'Convert without --quantize.',
    })
  const stored = new Map<string, ConversionStep>()
  for (const t of reader.tensors.values())
    if (t.aliasOf === undefined) stored.set(t.name, step(t.name, t, t.rows > 1 ? 'linear' : 'vector', 'keep'))
  const aliases = [...reader.tensors.values()].filter((t) => t.aliasOf !== undefined)
  return [...stored.values(), ...aliases.map((t) => aliasStep(t.name, stored.get(t.aliasOf!)!))]
}

function aliasStep(name: string, stored: ConversionStep): ConversionStep {
  return { ...stored, target: { ...stored.target, name, aliasOf: stored.target.name }, how: 'alias' }
}

function step(name: string, source: TensorEntry, role: Role, quantization: Quantization): ConversionStep {
  const { shape, rows, cols } = source
  const encoding = encodingFor(quantization, role, source.encoding)
  // Scale and zero point of the standard's LINEAR make codes numbers: same codes are the same numbers only with them.
  const same = isDeepStrictEqual(encoding, source.encoding) && (source.linear === undefined || quantization === 'keep')
  const how = same ? 'copy' : isRelayout(source.encoding, encoding) ? 'relayout' : 'encode'
  return {
    target: {
      name,
      shape,
      dtype: encoding.kind === 'plain' && (how !== 'copy' || source.linear === undefined) ? encoding.dtype : 'float32',
      encoding,
      rows,
      cols,
      byteLength: how === 'copy' ? source.byteLength : encodedBytes(encoding, rows, cols),
      ...(how === 'copy' ? asStored(source) : {}),
    },
    source,
    role,
    how,
  }
}

/** What says how copied bytes are to be read. */
function asStored({ strides, layout, linear, inline }: TensorEntry): Partial<PlannedTensor> {
  return {
    ...(strides === undefined ? {} : { strides }),
    ...(layout === undefined ? {} : { layout }),
    ...(linear === undefined ? {} : { linear }),
    ...(inline === true ? { inline } : {}),
  }
}

/** Where each weight is used first, and what for. */
function rolesOf(arch: ArchOutput): { order: Map<string, number>; role: Map<string, Role> } {
  const plan = compile(arch.graph)
  const order = new Map<string, number>()
  const role = new Map<string, Role>()
  const routed = new Set(plan.steps.flatMap((s) => (s.op === 'route' ? [s.logits] : [])))
  plan.steps.forEach((s, i) => {
    if (!('weight' in s)) return
    if (!order.has(s.weight)) order.set(s.weight, i)
    if (s.op === 'embed') role.set(s.weight, 'embedding')
    else if (s.op === 'linear') {
      const use: Role = s.y === plan.logits ? 'head' : routed.has(s.y) ? 'router' : 'linear'
      if (!role.has(s.weight)) role.set(s.weight, use)
    } else role.set(s.weight, 'vector')
  })
  for (const rope of plan.ropes) {
    if (rope.factorsWeight === undefined) continue
    order.set(rope.factorsWeight, -1)
    role.set(rope.factorsWeight, 'vector')
  }
  return { order, role }
}
