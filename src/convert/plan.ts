// What a conversion will do, as data: which tensor becomes which, in which order, and what it will take. Nothing is read or written.
import { isDeepStrictEqual } from 'node:util'
import type { ArchOutput } from '../arch/arch.ts'
import { ConversionError } from '../base/errors.ts'
import { partOf } from '../format/part.ts'
import type { ModelReader, TensorEntry } from '../format/reader.ts'
import type { PlannedTensor } from '../format/writer.ts'
import { compile } from '../graph/compile.ts'
import { findTensor } from '../graph/tensors.ts'
import { encodedBytes } from '../quant/codec.ts'
import { encodingFor, isRelayout, type Quantization, type Role } from './policy.ts'

/** One output tensor and where its rows come from. */
export interface ConversionStep {
  readonly target: PlannedTensor
  /** Parts of stacked tensors (experts) become tensors of their own. */
  readonly source: TensorEntry
  readonly role: Role
  /** copy: bytes as they are; relayout: the same numbers in panels; encode: through float32. */
  readonly how: 'copy' | 'relayout' | 'encode'
}

export interface ConversionPlan {
  readonly steps: readonly ConversionStep[]
  /** Stored bytes that are read, and that are written. */
  readonly bytesIn: number
  readonly bytesOut: number
  readonly parameters: number
}

/** Storage order is execution order: embedding, layers, final norm, head. A model without an architecture keeps its own order. */
export function planConversion(
  reader: ModelReader,
  arch: ArchOutput | undefined,
  quantization: Quantization,
): ConversionPlan {
  const steps = arch === undefined ? planAsIs(reader, quantization) : planByGraph(reader, arch, quantization)
  return {
    steps,
    bytesIn: steps.reduce((n, s) => n + s.source.byteLength, 0),
    bytesOut: steps.reduce((n, s) => n + s.target.byteLength, 0),
    parameters: steps.reduce((n, s) => n + s.target.rows * s.target.cols, 0),
  }
}

function planByGraph(reader: ModelReader, arch: ArchOutput, quantization: Quantization): ConversionStep[] {
  const roles = rolesOf(arch)
  return arch.graph.weights
    .map((w) => w.name)
    .sort((a, b) => roles.order.get(a)! - roles.order.get(b)!)
    .map((name) => {
      const { tensor, part } = findTensor(reader.tensors, arch.names.get(name)!)!
      const entry = reader.tensors.get(tensor)!
      return step(name, part === undefined ? entry : partOf(entry, part), roles.role.get(name)!, quantization)
    })
}

function planAsIs(reader: ModelReader, quantization: Quantization): ConversionStep[] {
  if (quantization !== 'keep')
    throw new ConversionError('ARCH_UNSUPPORTED', {
      what: 'cannot quantize a model whose architecture is not known: which tensors may be rounded is not known either',
      where: reader.path,
      remedy: 'Convert without --quantize.',
    })
  return [...reader.tensors.values()]
    .filter((t) => t.aliasOf === undefined)
    .map((t) => step(t.name, t, t.rows > 1 ? 'linear' : 'vector', 'keep'))
}

function step(name: string, source: TensorEntry, role: Role, quantization: Quantization): ConversionStep {
  if (source.strides !== undefined || source.linear !== undefined)
    throw new ConversionError('NOT_IMPLEMENTED', {
      what: 'converting strided or linearly quantized tensors is not implemented',
      where: source.name,
    })
  const { shape, rows, cols } = source
  const encoding = encodingFor(quantization, role, source.encoding, source.name)
  const how = isDeepStrictEqual(encoding, source.encoding)
    ? 'copy'
    : isRelayout(source.encoding, encoding)
      ? 'relayout'
      : 'encode'
  return {
    target: {
      name,
      shape,
      dtype: encoding.kind === 'plain' ? encoding.dtype : 'float32',
      encoding,
      rows,
      cols,
      byteLength: encodedBytes(encoding, rows, cols),
    },
    source,
    role,
    how,
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
