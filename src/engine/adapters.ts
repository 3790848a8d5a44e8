// Adapters as the engine sees them: pairs of matrices that are placed in arena 0 as they are stored.

import type { ModelReader } from '../format/reader.ts'
import type { LoraPair } from '../lora/adapter.ts'

/** An adapter that was read and matched (lora/), with the scale of the request. */
export interface AttachedAdapter {
  readonly name: string
  /** The request's factor on top of each pair's own scale. */
  readonly scale: number
  readonly reader: ModelReader
  readonly pairs: readonly LoraPair[]
}

/** Weight names of an adapter's matrices inside a graph. */
export function adapterWeight(index: number, pair: LoraPair, side: 'A' | 'B'): string {
  return `adapter:${index}:${pair.target}:${side}`
}

/**
 * Rows of B in the order of a base whose q and k rows were reordered within each head (graph/adapters.ts, permutedRows): row
 * h·d + j·d/2 + i of the family's order becomes row h·d + 2i + j.
 */
export function reorderRows(bytes: Uint8Array, rows: number, heads: number): Uint8Array {
  const out = new Uint8Array(bytes.length)
  const rowBytes = bytes.length / rows
  const d = rows / heads
  for (let h = 0; h < heads; h++)
    for (let j = 0; j < 2; j++)
      for (let i = 0; i < d / 2; i++) {
        const from = (h * d + (j * d) / 2 + i) * rowBytes
        out.set(bytes.subarray(from, from + rowBytes), (h * d + 2 * i + j) * rowBytes)
      }
  return out
}
