// Resident weights: norm weights and biases as float32, adapter matrices as they are stored. Everything else is the pager's.

import type { ArchOutput } from '../arch/arch.ts'
import { SluiceError } from '../base/errors.ts'
import { roundUp } from '../base/shape.ts'
import { partOf } from '../format/part.ts'
import type { ModelReader } from '../format/reader.ts'
import { permutedRows } from '../graph/adapters.ts'
import type { Plan, PlanRope } from '../graph/plan.ts'
import { findTensor } from '../graph/tensors.ts'
import { computeOf } from '../kernels/compute.ts'
import type { MatrixBlock } from '../kernels/kernels.ts'
import { type LazyTensor, openTensors, type Tensors } from '../tensor/lazy.ts'
import { type AttachedAdapter, adapterWeight, reorderRows } from './adapters.ts'
import { QuietSource } from './quiet.ts'

export class Weights {
  /** The model, with parts of stacked tensors as tensors of their own. */
  readonly reader: ModelReader
  readonly #names: ReadonlyMap<string, string>
  readonly #base: Tensors
  readonly #sources: QuietSource[] = []
  /** Weight name in the graph → the adapter's tensor; `heads` where the base's rows are reordered within heads. */
  readonly #adapters = new Map<string, { tensor: LazyTensor; heads?: number }>()

  constructor(
    reader: ModelReader,
    arch: ArchOutput,
    adapters: readonly AttachedAdapter[],
    verify: 'lazy' | 'off' = 'lazy',
  ) {
    this.#names = arch.names
    this.reader = withParts(reader, arch)
    this.#base = this.#open(this.reader, { verify })
    const permuted = permutedRows(arch.graph)
    adapters.forEach((adapter, i) => {
      const tensors = this.#open(adapter.reader, {})
      for (const pair of adapter.pairs) {
        const heads = permuted.get(pair.target)
        this.#adapters.set(adapterWeight(i, pair, 'A'), { tensor: tensors.get(pair.a) })
        this.#adapters.set(adapterWeight(i, pair, 'B'), {
          tensor: tensors.get(pair.b),
          ...(heads === undefined ? {} : { heads }),
        })
      }
    })
  }

  #open(reader: ModelReader, options: { verify?: 'lazy' | 'off' }): Tensors {
    const sources = reader.sources.map((s) => new QuietSource(s))
    this.#sources.push(...sources)
    return openTensors({ tensors: reader.tensors, sources, path: reader.path }, options)
  }

  /** Closes the files it opened: the model's own stay open. */
  async close(): Promise<void> {
    await Promise.all(this.#sources.map((s) => s.close()))
  }

  isAdapter(weight: string): boolean {
    return this.#adapters.has(weight)
  }

  /** The tensor a graph weight is stored in. */
  tensorName(weight: string): string {
    const name = this.#names.get(weight)
    if (name === undefined) throw new SluiceError('INTERNAL', { what: 'graph weight has no tensor', where: weight })
    return name
  }

  /** Base tensor of a graph weight. */
  tensor(weight: string): LazyTensor {
    return this.#base.get(this.tensorName(weight))
  }

  /** Floats that the plan's vectors take, each rounded up to 16. */
  vectorFloats(plan: Plan): number {
    let n = 0
    for (const name of vectorNames(plan)) {
      const { entry } = this.tensor(name)
      n += roundUp(entry.rows * entry.cols, 64)
    }
    return n
  }

  /** Stored bytes of all adapter matrices, each rounded up to 64. */
  adapterBytes(): number {
    let n = 0
    for (const { tensor } of this.#adapters.values()) n += roundUp(tensor.entry.byteLength, 64)
    return n
  }

  /** Reads vectors and adapters into arena 0. */
  async load(
    plan: Plan,
    memory: WebAssembly.Memory,
    vectorsAt: number,
    adaptersAt: number,
  ): Promise<{ vectors: Map<string, number>; matrices: Map<string, MatrixBlock> }> {
    const vectors = new Map<string, number>()
    let at = vectorsAt
    for (const name of vectorNames(plan)) {
      const values = await this.tensor(name).astype('float32')
      new Float32Array(memory.buffer, at, values.length).set(values)
      vectors.set(name, at)
      at += roundUp(values.length, 64) * 4
    }
    const matrices = new Map<string, MatrixBlock>()
    at = adaptersAt
    for (const [name, { tensor, heads }] of this.#adapters) {
      const { entry } = tensor
      const compute = computeOf(entry.encoding)
      if (compute === undefined || compute.repack !== 'none')
        throw new SluiceError('ADAPTER_UNSUPPORTED', {
          what: 'adapter matrix is stored in a type that is not computed with',
          where: entry.name,
          got: JSON.stringify(entry.encoding),
        })
      const stored = await tensor.rowBytes(0, entry.rows)
      const bytes = heads === undefined ? stored : reorderRows(stored, entry.rows, heads)
      new Uint8Array(memory.buffer, at, bytes.length).set(bytes)
      matrices.set(name, { ...compute, address: at, rows: entry.rows, cols: entry.cols })
      at += roundUp(entry.byteLength, 64)
    }
    return { vectors, matrices }
  }
}

function withParts(reader: ModelReader, arch: ArchOutput): ModelReader {
  const tensors = new Map(reader.tensors)
  for (const name of arch.names.values()) {
    const found = findTensor(reader.tensors, name)
    if (found?.part !== undefined) tensors.set(name, partOf(reader.tensors.get(found.tensor)!, found.part))
  }
  if (tensors.size === reader.tensors.size) return reader
  return {
    format: reader.format,
    path: reader.path,
    sources: reader.sources,
    tensors,
    config: reader.config,
    metadata: reader.metadata,
    tokenizerFiles: reader.tokenizerFiles,
    adapters: reader.adapters,
    get identity() {
      return reader.identity // costly for packages: only who asks pays
    },
    bytesRead: reader.bytesRead,
    close: () => reader.close(),
  }
}

/** Rotary tables with the model's own factors applied (GGUF rope_freqs.weight). */
export async function loadRopes(plan: Plan, weights: Weights): Promise<PlanRope[]> {
  return Promise.all(
    plan.ropes.map(async (rope) => {
      if (rope.factorsWeight === undefined) return rope
      const factors = await weights.tensor(rope.factorsWeight).astype('float32')
      return { ...rope, inverseFrequencies: rope.inverseFrequencies.map((f, i) => f / factors[i]!) }
    }),
  )
}

function vectorNames(plan: Plan): Set<string> {
  return new Set(plan.steps.flatMap((s) => (s.op === 'rmsNorm' || s.op === 'bias' ? [s.weight] : [])))
}
