// From command-line flags to engine options: one place for run, logits, plan and bench.

import { existsSync } from 'node:fs'
import type { Model, ScaledAdapter } from '../api/model.ts'
import type { EngineOptions } from '../engine/create.ts'
import type { Precision } from '../engine/engine.ts'
import type { KernelSetName } from '../kernels/kernels.ts'
import { parseLora } from './lora.ts'
import { warn } from './warn.ts'

export interface EngineFlags {
  memory?: number
  weightMemory?: number
  threads?: number
  context?: number
  precision: Precision
  ioMode: 'auto' | 'mmap' | 'pread' | 'direct'
  verify: 'eager' | 'lazy' | 'off'
  kernels?: KernelSetName
  lora?: string[]
  allowPartial?: boolean
  json?: boolean
}

export function engineOptions(f: EngineFlags): EngineOptions {
  return {
    ...(f.memory === undefined ? {} : { memory: f.memory }),
    ...(f.weightMemory === undefined ? {} : { weightMemory: f.weightMemory }),
    ...(f.threads === undefined ? {} : { threads: f.threads }),
    ...(f.context === undefined ? {} : { context: f.context }),
    ...(f.kernels === undefined ? {} : { kernels: f.kernels }),
    precision: f.precision,
    ioMode: f.ioMode,
    verify: f.verify,
  }
}

/** Reads the adapters of --lora. They are closed with the model. A partial match that was allowed is said. */
export async function attachAdapters(model: Model, flags: EngineFlags): Promise<ScaledAdapter[]> {
  const packaged = new Set(model.reader.adapters.map((a) => a.name))
  const attached: ScaledAdapter[] = []
  for (const text of flags.lora ?? []) {
    const { path, scale } = parseLora(text, (p) => packaged.has(p) || existsSync(p))
    const adapter = await model.adapter(path, { scale, allowPartial: flags.allowPartial === true })
    const { unmatched, missing } = adapter.report
    const left = [...unmatched.map((m) => `${m} is not in the model`), ...missing.map((m) => `${m} has no tensors`)]
    if (left.length > 0) warn(`adapter ${adapter.name} is attached in part: ${left.join(', ')}`, flags.json === true)
    attached.push(adapter)
  }
  return attached
}
