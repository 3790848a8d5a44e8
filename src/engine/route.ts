// Mixture of experts: which experts each token goes to, and the lists of tokens each expert works on.
import type { PlanStep } from '../graph/plan.ts'
import type { BoundBuffer, BoundRoute } from './program.ts'

const CHOSEN = -1

/**
 * Softmax over all experts in float32, the topK highest (ties: lower index), weights renormalized to sum 1 when the model says so.
 * Lists hold tokens in ascending order.
 */
export function route(
  r: BoundRoute,
  logits: BoundBuffer,
  step: Extract<PlanStep, { op: 'route' }>,
  tokens: number,
  i32: Int32Array,
  f32: Float32Array,
): void {
  const { experts, topK } = r
  const tokensMax = (r.listWeights - r.lists) / 4 / experts
  i32.fill(0, r.counts / 4, r.counts / 4 + experts)
  const p = new Float64Array(experts)
  for (let t = 0; t < tokens; t++) {
    const at = logits.address / 4 + t * logits.stride
    let max = -Infinity
    for (let e = 0; e < experts; e++) max = Math.max(max, f32[at + e]!)
    let sum = 0
    for (let e = 0; e < experts; e++) sum += p[e] = Math.exp(f32[at + e]! - max)
    let chosen = 0
    for (let k = 0; k < topK; k++) {
      let best = -1
      for (let e = 0; e < experts; e++) if (p[e]! >= 0 && (best < 0 || p[e]! > p[best]!)) best = e
      // Logits that are not numbers choose nobody: any expert will do, the weight (NaN) tells in the model's logits.
      if (best < 0) best = p.findIndex((v) => v !== CHOSEN)
      i32[r.choices / 4 + t * topK + k] = best
      f32[r.weights / 4 + t * topK + k] = p[best]! / sum
      chosen += p[best]! / sum
      p[best] = CHOSEN
    }
    for (let k = 0; k < topK; k++) {
      const weight = f32[r.weights / 4 + t * topK + k]!
      const e = i32[r.choices / 4 + t * topK + k]!
      const n = i32[r.counts / 4 + e]!
      i32[r.lists / 4 + e * tokensMax + n] = t
      f32[r.listWeights / 4 + e * tokensMax + n] = step.normalize ? weight / chosen : weight
      i32[r.counts / 4 + e] = n + 1
    }
  }
}
