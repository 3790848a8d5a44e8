// A model's architecture: the package's own graph, or the one its family's file makes from a configuration.

import type { ArchOutput } from '../arch/arch.ts'
import { buildArchitecture } from '../arch/registry.ts'
import { ModelFormatError } from '../base/errors.ts'
import type { ModelReader } from '../format/reader.ts'
import { readGraph } from '../graph/read.ts'
import { checkTensors } from '../graph/tensors.ts'

/** Throws ARCH_UNSUPPORTED, CONFIG_INVALID, GRAPH_INVALID, OP_UNSUPPORTED, TENSOR_MISSING, TENSOR_UNEXPECTED, TENSOR_SHAPE. */
export function resolveArchitecture(reader: ModelReader): ArchOutput {
  const tensors = new Map([...reader.tensors].map(([name, t]) => [name, { shape: t.shape }]))
  if (reader.format === 'wia') {
    if (reader.architecture === undefined)
      throw new ModelFormatError('ARCH_UNSUPPORTED', {
        what: 'package has no architecture.json: its tensors can be read, but it cannot be run',
        where: reader.path,
      })
    const { graph, warnings } = readGraph(reader.architecture)
    checkTensors(graph, tensors)
    return { graph, names: new Map(graph.weights.map((w) => [w.name, w.name])), ignored: new Set(), warnings }
  }
  const arch = buildArchitecture({ config: reader.config, format: reader.format, tensors })
  checkTensors(arch.graph, tensors, arch)
  return arch
}
