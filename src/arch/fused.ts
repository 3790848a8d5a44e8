// Projections that a checkpoint stores as one matrix: rows of query, key and value in qkv_proj, of gate and up in gate_up_proj (Phi-3).
// The graph has them apart, so each is a range of rows of the stored tensor.
import { rowsName } from '../graph/tensors.ts'
import type { Dimensions } from './spec.ts'

/** The stored name of a graph weight: `…qkv_proj.weight[a:b]` for a projection that is part of one, else the name itself. */
export function fusedName(dimensions: Dimensions, name: string): string {
  const found = /^(model\.layers\.\d+\.)(self_attn|mlp)\.(q|k|v|gate|up)_proj\.weight$/.exec(name)
  if (found === null) return name
  const [, layer, , part] = found as unknown as [string, string, string, 'q' | 'k' | 'v' | 'gate' | 'up']
  const { heads, kvHeads, headDim, inner } = dimensions
  const [q, kv] = [heads * headDim, kvHeads * headDim]
  const [start, end] = {
    q: [0, q] as const,
    k: [q, q + kv] as const,
    v: [q + kv, q + 2 * kv] as const,
    gate: [0, inner] as const,
    up: [inner, 2 * inner] as const,
  }[part]
  const tensor = part === 'gate' || part === 'up' ? 'mlp.gate_up_proj' : 'self_attn.qkv_proj'
  return rowsName(`${layer}${tensor}.weight`, start, end)
}
