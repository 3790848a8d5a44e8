// What a budget means for a model, for people: computed like createEngine does, reading nothing.

import type { ArchOutput } from '../arch/arch.ts'
import type { ModelReader } from '../format/reader.ts'
import type { PagerPlan } from '../pager/pager.ts'
import { type EngineOptions, planWeights, sizeEngine } from './create.ts'
import { scratchBytes } from './layout.ts'
import { Weights } from './weights.ts'

/** What an engine would hold, and stream. Bytes. */
export interface Forecast {
  readonly budgetBytes: number
  readonly processBytes: number
  readonly kvBytes: number
  readonly adapterBytes: number
  readonly scratchBytes: number
  readonly threads: number
  readonly context: number
  /** Tokens of a prompt that share a pass. */
  readonly chunkTokens: number
  readonly pager: PagerPlan
  /** A budget that runs the model so (a smaller one may, with smaller pages), and one that holds all of it. */
  readonly requiredBytes: number
  readonly residentBytes: number
}

/** Throws BUDGET_TOO_SMALL, with the smallest budget that works. */
export function forecast(reader: ModelReader, arch: ArchOutput, options: EngineOptions): Forecast {
  const s = sizeEngine(reader, arch, options)
  const weights = new Weights(reader, arch, options.adapters ?? [])
  const b = s.layout.bytes
  const pager = planWeights(s, weights, options)
  return {
    budgetBytes: s.totalBytes,
    processBytes: s.processBytes,
    kvBytes: b.kv,
    adapterBytes: b.adapters,
    scratchBytes: scratchBytes(s.layout),
    threads: s.threads,
    context: s.context,
    chunkTokens: s.layout.tokensMax,
    pager,
    requiredBytes: s.requiredBytes(pager.requiredBytes),
    residentBytes: s.residentBytes(pager.residentBytes),
  }
}
