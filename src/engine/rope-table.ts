// Rotary tables of a pass, computed in float64 from positions.
import type { PlanRope } from '../graph/plan.ts'

/** float32 [tokens, n, 2] (cos, sin) for positions position … position+tokens-1, written to out. */
export function writeRopeTable(rope: PlanRope, position: number, tokens: number, out: Float32Array): void {
  const f = rope.inverseFrequencies
  const n = f.length
  for (let t = 0; t < tokens; t++) {
    for (let i = 0; i < n; i++) {
      const angle = (position + t) * f[i]!
      const at = (t * n + i) * 2
      out[at] = Math.cos(angle) * rope.attentionScale
      out[at + 1] = Math.sin(angle) * rope.attentionScale
    }
  }
}
