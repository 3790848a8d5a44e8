// Graph → Plan: validate, fold, fuse, drop dead code, add adapters, lower to steps, place buffers. Pure; the only way to a Plan.
import { ValidationError } from '../base/errors.ts'
import { type AdapterTarget, applyAdapters } from './adapters.ts'
import type { Graph } from './graph.ts'
import { ENGINE_INPUTS, Lowering } from './lower.ts'
import { TOKENS } from './op.ts'
import { eliminateDeadCode } from './passes/dead.ts'
import { fold } from './passes/fold.ts'
import { fuse } from './passes/fuse.ts'
import { planMemory } from './passes/memory.ts'
import type { BufferId, Plan } from './plan.ts'
import { type CheckedGraph, validateGraph } from './validate.ts'

export interface CompileOptions {
  readonly adapters?: readonly AdapterTarget[]
}

/** The rewriting passes, in the order compile runs them. */
export function optimize(graph: Graph): Graph {
  return eliminateDeadCode(fuse(fold(graph)))
}

/**
 * Throws GRAPH_INVALID, OP_UNSUPPORTED (an operator without a plan step, inputs the engine does not provide), ADAPTER_*.
 * The graph must have one output, float32 [logit_tokens | tokens, vocabulary].
 */
export function compile(graph: Graph, options: CompileOptions = {}): Plan {
  const { graph: ordered } = validateGraph(graph)
  // Adapters come after fusion, so that the base's steps are the same with and without them.
  const adapted = applyAdapters(optimize(ordered), options.adapters ?? [])
  const checked = validateGraph(adapted)
  const out = new Lowering(checked.types, lastUses(checked.graph))
  const ends = new LayerEnds()
  checked.nodes.forEach(({ view, op }, i) => {
    const { node } = view
    out.begin(node, i)
    op!.lower(view, out)
    if (node.outputs.length === 1) ends.see(node.name, out.steps.length - 1, out.bufferOrNone(node.outputs[0]!))
  })
  const { logits, vocabulary } = finish(checked, out)
  checkEmbedding(out, graph.name)
  return {
    ...planMemory(out.buffers, out.steps, logits),
    steps: out.steps,
    ropes: out.ropes,
    kv: out.kv,
    routes: out.routes,
    logits,
    vocabulary,
    contextLength: graph.contextLength,
    layerEnds: ends.list(),
  }
}

/** Index of the last node that reads each value; outputs are read at the end of time. */
function lastUses(graph: Graph): Map<string, number> {
  const last = new Map<string, number>()
  graph.nodes.forEach((node, i) => {
    for (const value of node.inputs) last.set(value, i)
  })
  for (const output of graph.outputs) last.set(output.name, Number.POSITIVE_INFINITY)
  return last
}

function finish(checked: CheckedGraph, out: Lowering): { logits: BufferId; vocabulary: number } {
  const { graph, types } = checked
  const [output] = graph.outputs
  const type = output && types.get(output.name)
  const width = type?.shape[1]
  if (graph.outputs.length !== 1 || type?.dtype !== 'float32' || type.shape.length !== 2 || typeof width !== 'number')
    throw new ValidationError('OP_UNSUPPORTED', {
      what: 'the graph must have one output, the logits',
      where: `graph ${graph.name}`,
      expected: 'float32 [logit_tokens, vocabulary]',
      got: graph.outputs.map((o) => `${o.name} ${o.dtype} [${o.shape.join(', ')}]`).join('; '),
    })
  const made = out.buffer(output!.name)
  if (type.shape[0] !== TOKENS) return { logits: made, vocabulary: width }
  const logits = out.scratch(`${output!.name}.selected`, width, 'logit_tokens')
  out.emit({ op: 'selectLogits', x: made, y: logits })
  return { logits, vocabulary: width }
}

function checkEmbedding(out: Lowering, name: string): void {
  const embeds = out.steps.filter((s) => s.op === 'embed').length
  if (out.steps[0]?.op !== 'embed' || embeds !== 1)
    throw new ValidationError('OP_UNSUPPORTED', {
      what: `a graph must begin with one embedding of ${ENGINE_INPUTS.ids}`,
      where: `graph ${name}`,
      got: `${embeds} embeddings, first step ${out.steps[0]?.op ?? 'none'}`,
    })
}

/** Nodes of layer i are named layers.i.…: the last of them leaves the residual stream. Other names give an empty list. */
class LayerEnds {
  readonly #ends = new Map<number, { step: number; buffer: BufferId }>()

  see(name: string, step: number, buffer: BufferId | undefined): void {
    const layer = /^layers\.(\d{1,6})\./.exec(name)?.[1]
    if (layer !== undefined && buffer !== undefined) this.#ends.set(Number(layer), { step, buffer })
  }

  list(): Plan['layerEnds'] {
    return [...this.#ends].sort(([a], [b]) => a - b).map(([, end]) => end)
  }
}
