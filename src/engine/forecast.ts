// What a budget means for a model, for people: computed like createEngine does, reading nothing.

import type { ArchOutput } from '../arch/arch.ts'
import { isSluiceError } from '../base/errors.ts'
import type { ModelReader } from '../format/reader.ts'
import { planPager } from '../pager/create.ts'
import type { PagerPlan } from '../pager/pager.ts'
import { type EngineOptions, pagedGroups, pagedNames, sizeEngine } from './create.ts'
import { Weights } from './weights.ts'

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
  /** The smallest budget that runs the model so, and the one that holds all of it. */
  readonly requiredBytes: number
  readonly residentBytes: number
}

/** Throws BUDGET_TOO_SMALL, with the smallest budget that works. */
export function forecast(reader: ModelReader, arch: ArchOutput, options: EngineOptions): Forecast {
  const s = sizeEngine(reader, arch, options)
  const weights = new Weights(reader, arch, options.adapters ?? [])
  const b = s.layout.bytes
  const own = Object.values(b).reduce((x, y) => x + y, 0) + s.processBytes
  try {
    const { plan } = planPager({
      reader: weights.reader,
      names: pagedNames(s.plan, weights),
      groups: pagedGroups(s.plan, weights),
      weightBytes: s.weightBytes,
      ioMode: options.ioMode ?? 'auto',
    })
    return {
      budgetBytes: s.totalBytes,
      processBytes: s.processBytes,
      kvBytes: b.kv,
      adapterBytes: b.adapters,
      scratchBytes: b.activations + b.logits + b.quantized + b.tables + b.vectors,
      threads: s.threads,
      context: s.context,
      chunkTokens: s.layout.tokensMax,
      pager: plan.summary,
      requiredBytes: own + plan.summary.requiredBytes,
      residentBytes: own + plan.summary.residentBytes,
    }
  } catch (err) {
    throw isSluiceError(err, 'BUDGET_TOO_SMALL') ? s.tooSmall(err) : err
  }
}
