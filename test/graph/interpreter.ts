// Runs a Plan in plain JavaScript, so that graph, arch and compile are proven without the engine. The activation area is one real
// array laid out as the plan says, filled with NaN where the contract promises nothing: an overlap or a read of padding shows.

import type { Plan, PlanStep } from '#sluice/graph/plan.js'
import { findTensor } from '#sluice/graph/tensors.js'

/** A weight's numbers, row-major. */
export interface Weight {
  readonly shape: readonly number[]
  readonly data: Float32Array | Float64Array
}
/** The numbers a name of ArchOutput.names means: a tensor, a part of a stacked one, or rows of a matrix. */
export function weightOf(tensors: ReadonlyMap<string, Weight>, name: string): Weight {
  const { tensor, part } = findTensor(tensors, name)!
  const whole = tensors.get(tensor)!
  if (part === undefined) return whole
  const n = whole.data.length / whole.shape[0]!
  const [start, end] = typeof part === 'number' ? [part, part + 1] : [part.start, part.end]
  const shape = typeof part === 'number' ? whole.shape.slice(1) : [end - start, whole.shape[1]!]
  return { shape, data: whole.data.subarray(start * n, end * n) }
}

export type Weights = (name: string) => Weight

export interface Run {
  /** [wanted tokens, vocabulary] */
  readonly logits: Float64Array
  /** After each layer, [tokens, width]. */
  readonly hidden: Float64Array[]
  /** Route → token → experts, the heaviest first. */
  readonly experts: number[][][]
}

/** Key/value cache of a layer: rows of keys and values by position. */
export interface Cache {
  readonly keys: Float64Array[][]
  readonly values: Float64Array[][]
}

export function emptyCache(plan: Plan): Cache {
  return { keys: plan.kv.map(() => []), values: plan.kv.map(() => []) }
}

function change(row: Float64Array, to: (value: number, index: number) => number): void {
  for (let i = 0; i < row.length; i++) row[i] = to(row[i]!, i)
}

/** float64 throughout. `wanted`: indices of the tokens whose logits are wanted. */
export function runPlan(
  plan: Plan,
  weights: Weights,
  ids: readonly number[],
  wanted: readonly number[],
  cache = emptyCache(plan),
): Run {
  const tokens = ids.length
  const start = cache.keys[0]?.length ?? 0
  const area = new Float64Array(plan.activationFloats * tokens).fill(Number.NaN)
  const padding = new Uint8Array(area.length)
  const at = (b: number, t: number) => plan.buffers[b]!.offset * tokens + t * plan.buffers[b]!.stride
  const row = (b: number, t: number) => area.subarray(at(b, t), at(b, t) + plan.buffers[b]!.width)
  const routes: { expert: number; weight: number }[][][] = []
  const experts: number[][][] = []
  const hidden: Float64Array[] = []

  const chosen = (route: number, expert: number) =>
    routes[route]!.flatMap((list, t) => (list.some((c) => c.expert === expert) ? [t] : []))
  const count = (step: { tokens: import('#sluice/graph/plan.js').TokenSet }) =>
    step.tokens.kind === 'all'
      ? tokens
      : step.tokens.kind === 'logits'
        ? wanted.length
        : chosen(step.tokens.route, step.tokens.expert).length

  function execute(step: PlanStep): void {
    switch (step.op) {
      case 'embed': {
        const { data, shape } = weights(step.weight)
        for (const [t, id] of ids.entries()) change(row(step.y, t), (_, i) => data[id * shape[1]! + i]! * step.scale)
        return
      }
      case 'rmsNorm': {
        const w = weights(step.weight).data
        for (let t = 0; t < count(step); t++) {
          const x = Float64Array.from(row(step.x, t))
          const n = x.length / step.groups
          for (let g = 0; g < step.groups; g++) {
            const part = x.subarray(g * n, (g + 1) * n)
            const r = 1 / Math.sqrt(part.reduce((s, v) => s + v * v, 0) / n + step.epsilon)
            for (let i = 0; i < n; i++) row(step.y, t)[g * n + i] = part[i]! * r * (step.offset + w[i]!)
          }
        }
        return
      }
      case 'linear': {
        const { data, shape } = weights(step.weight)
        const [out, width] = shape as [number, number]
        if (plan.buffers[step.x]!.width !== width || plan.buffers[step.y]!.width !== out)
          throw new Error(`widths of ${step.weight}`)
        for (let t = 0; t < count(step); t++) {
          const [x, y] = [row(step.x, t), row(step.y, t)]
          for (let r = 0; r < out; r++) {
            let sum = 0
            for (let c = 0; c < width; c++) sum += data[r * width + c]! * x[c]!
            // No copy of x: an overlap of x and y would spoil the rows that follow.
            y[r] = (step.accumulate ? y[r]! : 0) + step.alpha * sum
          }
        }
        return
      }
      case 'bias': {
        const b = weights(step.weight).data
        for (let t = 0; t < count(step); t++) change(row(step.y, t), (v, i) => v + b[i]!)
        return
      }
      case 'rope': {
        const table = plan.ropes[step.rope]!
        const factors = table.factorsWeight === undefined ? undefined : weights(table.factorsWeight).data
        for (let t = 0; t < tokens; t++)
          for (let h = 0; h < step.heads; h++) {
            const x = row(step.x, t).subarray(h * step.headDim, (h + 1) * step.headDim)
            for (let i = 0; i < step.rotaryDim / 2; i++) {
              const angle = (start + t) * (table.inverseFrequencies[i]! / (factors?.[i] ?? 1))
              const [c, s] = [Math.cos(angle) * table.attentionScale, Math.sin(angle) * table.attentionScale]
              const [p, q] = step.interleaved ? [2 * i, 2 * i + 1] : [i, i + step.rotaryDim / 2]
              const [a, b] = [x[p]!, x[q]!]
              x[p] = a * c - b * s
              x[q] = b * c + a * s
            }
          }
        return
      }
      case 'attention': {
        const { keys, values } = { keys: cache.keys[step.layer]!, values: cache.values[step.layer]! }
        for (let t = 0; t < tokens; t++) {
          keys.push(Float64Array.from(row(step.k, t)))
          values.push(Float64Array.from(row(step.v, t)))
        }
        for (let t = 0; t < tokens; t++)
          for (let h = 0; h < step.heads; h++) {
            const from = Math.floor((h * step.kvHeads) / step.heads) * step.headDim
            const q = row(step.q, t).subarray(h * step.headDim, (h + 1) * step.headDim)
            const last = start + t + 1
            const first = step.window > 0 ? Math.max(0, last - step.window) : 0
            const scores = keys
              .slice(first, last)
              .map((k) => step.scale * q.reduce((s, v, i) => s + v * k[from + i]!, 0))
            const top = Math.max(...scores)
            const e = scores.map((s) => Math.exp(s - top))
            const sum = e.reduce((a, b) => a + b, 0)
            for (let i = 0; i < step.headDim; i++)
              row(step.y, t)[h * step.headDim + i] = e.reduce(
                (s, w, p) => s + (w / sum) * values[first + p]![from + i]!,
                0,
              )
          }
        return
      }
      case 'swiglu':
        for (let t = 0; t < count(step); t++) {
          const [g, u, y] = [row(step.gate, t), row(step.up, t), row(step.y, t)]
          for (let i = 0; i < y.length; i++) y[i] = (g[i]! / (1 + Math.exp(-g[i]!))) * u[i]!
        }
        return
      case 'add':
        for (let t = 0; t < count(step); t++) {
          const x = Float64Array.from(row(step.x, t))
          change(row(step.y, t), (v, i) => v + x[i]!)
        }
        return
      case 'zero':
        for (let t = 0; t < count(step); t++) row(step.y, t).fill(0)
        return
      case 'route':
        routes[step.route] = Array.from({ length: tokens }, (_, t) =>
          choose([...row(step.logits, t)], step.topK, step.normalize),
        )
        experts[step.route] = routes[step.route]!.map((list) => list.map((c) => c.expert))
        return
      case 'gatherExpert':
        for (const [i, t] of chosen(step.route, step.expert).entries()) row(step.y, i).set(row(step.x, t))
        return
      case 'scatterExpert':
        chosen(step.route, step.expert).forEach((t, i) => {
          const { weight } = routes[step.route]![t]!.find((c) => c.expert === step.expert)!
          const x = row(step.x, i)
          change(row(step.y, t), (v, j) => v + weight * x[j]!)
        })
        return
      case 'selectLogits':
        for (const [i, t] of wanted.entries()) row(step.y, i).set(row(step.x, t))
    }
  }

  for (const b of plan.buffers)
    for (let t = 0; t < tokens; t++) {
      const from = b.offset * tokens + t * b.stride
      padding.fill(1, from + b.width, from + b.stride)
    }
  for (let i = 0; i < area.length; i++) if (padding[i] === 1) area[i] = 0
  plan.steps.forEach((step, i) => {
    execute(step)
    for (const end of plan.layerEnds)
      if (end.step === i)
        hidden.push(Float64Array.from(Array.from({ length: tokens }, (_, t) => [...row(end.buffer, t)]).flat()))
  })
  // Padding is never written: it must be zero after the pass as before.
  area.forEach((v, i) => {
    if (padding[i] === 1 && v !== 0) throw new Error(`padding was written at float ${i}`)
  })
  const logits = new Float64Array(wanted.length * plan.vocabulary)
  for (const i of wanted.keys()) logits.set(row(plan.logits, i), i * plan.vocabulary)
  return { logits, hidden, experts }
}

/** Softmax over all, the topK largest (ties: lower index), renormalized when asked. */
function choose(logits: number[], topK: number, normalize: boolean): { expert: number; weight: number }[] {
  const top = Math.max(...logits)
  const e = logits.map((v) => Math.exp(v - top))
  const sum = e.reduce((a, b) => a + b, 0)
  const best = e
    .map((v, expert) => ({ expert, weight: v / sum }))
    .sort((a, b) => b.weight - a.weight || a.expert - b.expert)
    .slice(0, topK)
  const total = normalize ? best.reduce((s, c) => s + c.weight, 0) : 1
  return best.map((c) => ({ expert: c.expert, weight: c.weight / total }))
}
