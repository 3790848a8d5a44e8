// Which tensors of an adapter belong to which weights of the model: every tensor is accounted for.
import { ModelFormatError } from '../base/errors.ts'
import type { TensorEntry } from '../format/reader.ts'
import type { Graph } from '../graph/graph.ts'
import type { LoraPair, MatchReport } from './adapter.ts'
import { isTargeted, type LoraConfig, scaleOf } from './config.ts'
import { startMatching } from './pattern.ts'

/** Prefixes that PEFT and its relatives put before a module's own name. */
const PREFIXES = ['base_model.model.', 'base_model.', 'module.', '']

const TENSOR = /^(.*)\.lora_(A|B)(?:\.[^.]+)?\.weight$/

interface Sides {
  A?: TensorEntry
  B?: TensorEntry
}

/** Groups tensors by module. Anything that is not a lora_A or lora_B weight is refused by name. */
export function groupTensors(tensors: Iterable<TensorEntry>, where: string): Map<string, Sides> {
  const modules = new Map<string, Sides>()
  for (const t of tensors) {
    const m = TENSOR.exec(t.name)
    if (m === null) {
      const feature = /lora_magnitude_vector/.test(t.name)
        ? 'DoRA magnitudes'
        : /lora_embedding_[AB]/.test(t.name)
          ? 'LoRA on an embedding'
          : /\.bias$/.test(t.name)
            ? 'biases'
            : 'a tensor that is neither lora_A nor lora_B'
      throw new ModelFormatError('ADAPTER_UNSUPPORTED', {
        what: `adapter has ${feature}, which is not implemented`,
        where: `${where}: ${t.name}`,
        details: { tensor: t.name },
      })
    }
    const sides = modules.get(m[1]!) ?? {}
    const side = m[2] as 'A' | 'B'
    if (sides[side] !== undefined)
      throw new ModelFormatError('ADAPTER_INVALID', {
        what: `module has lora_${side} twice`,
        where: `${where}: ${t.name}`,
      })
    sides[side] = t
    modules.set(m[1]!, sides)
  }
  return modules
}

/** Linear modules of the graph: name without ".weight" → shape [out, in]. */
function linearModules(graph: Graph): { modules: Map<string, readonly number[]>; head: string } {
  const shapes = new Map(graph.weights.map((w) => [w.name, w.shape]))
  const modules = new Map<string, readonly number[]>()
  let head = ''
  for (const node of graph.nodes) {
    if (node.op !== 'Linear' && node.op !== 'MoE') continue // an MoE's weights are its experts' linear layers
    for (const weight of node.weights) modules.set(weight.replace(/\.weight$/, ''), shapes.get(weight)!)
    if (node.op === 'Linear') head = node.weights[0]!.replace(/\.weight$/, '') // the last one in execution order makes the logits
  }
  return { modules, head }
}

export function matchAdapter(
  groups: ReadonlyMap<string, Sides>,
  config: LoraConfig,
  graph: Graph,
  where: string,
): { pairs: LoraPair[]; report: MatchReport } {
  startMatching()
  const { modules, head } = linearModules(graph)
  const prefix = bestPrefix([...groups.keys()], modules)
  const pairs: LoraPair[] = []
  const matched = new Set<string>()
  const unmatched: string[] = []
  for (const [name, sides] of groups) {
    const module = name.startsWith(prefix) ? name.slice(prefix.length) : name
    const shape = modules.get(module)
    // PEFT leaves out what the configuration does not target, and so does this: but it says so.
    if (shape === undefined || !isTargeted(config, module, head)) {
      unmatched.push(name)
      continue
    }
    pairs.push(pairOf(module, shape, sides, config, where))
    matched.add(module)
  }
  const missing = [...modules.keys()].filter((m) => !matched.has(m) && isTargeted(config, m, head))
  return { pairs, report: { matched: [...matched].map((m) => `${m}.weight`), unmatched, missing, prefix } }
}

function bestPrefix(names: readonly string[], modules: ReadonlyMap<string, unknown>): string {
  const hits = (p: string) => names.filter((n) => n.startsWith(p) && modules.has(n.slice(p.length))).length
  return PREFIXES.reduce((best, p) => (hits(p) > hits(best) ? p : best), PREFIXES[0]!)
}

function pairOf(module: string, shape: readonly number[], sides: Sides, config: LoraConfig, where: string): LoraPair {
  const { A, B } = sides
  if (A === undefined || B === undefined)
    throw new ModelFormatError('ADAPTER_INVALID', {
      what: `module has no lora_${A === undefined ? 'A' : 'B'}`,
      where: `${where}: ${module}`,
    })
  const { rank, scale } = scaleOf(config, module)
  const [out, input] = shape as [number, number]
  for (const [t, expected] of [
    [A, [rank, input]],
    [B, [out, rank]],
  ] as const) {
    if (t.shape.length !== 2 || t.shape[0] !== expected[0] || t.shape[1] !== expected[1])
      throw new ModelFormatError('ADAPTER_INVALID', {
        what: 'adapter matrix has the wrong shape',
        where: `${where}: ${t.name}`,
        expected: `[${expected.join(', ')}]`,
        got: `[${t.shape.join(', ')}]`,
        remedy: 'The adapter was made for another base model, or its configuration does not belong to it.',
      })
  }
  if (!Number.isFinite(scale))
    throw new ModelFormatError('ADAPTER_INVALID', {
      what: 'adapter scale is not finite',
      where: `${where}: ${module}`,
      got: scale,
    })
  return { target: `${module}.weight`, rank, scale, a: A.name, b: B.name }
}
