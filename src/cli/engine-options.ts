// From command-line flags to engine options: one place for run, logits, plan and bench.

import type { Model } from '../api/model.ts'
import { ValidationError } from '../base/errors.ts'
import type { AttachedAdapter } from '../engine/adapters.ts'
import type { EngineOptions } from '../engine/create.ts'
import type { Precision } from '../engine/engine.ts'
import type { KernelSetName } from '../kernels/kernels.ts'

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
  quiet?: boolean
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

/** "path" or "path:scale" (a scale is a number after the last colon). */
export function parseLora(text: string): { path: string; scale: number } {
  const m = /^(.*):(-?\d+(?:\.\d+)?(?:e-?\d+)?)$/i.exec(text)
  return m === null ? { path: text, scale: 1 } : { path: m[1]!, scale: Number(m[2]) }
}

export async function attachAdapters(model: Model, flags: EngineFlags): Promise<AttachedAdapter[]> {
  const attached: AttachedAdapter[] = []
  for (const text of flags.lora ?? []) {
    const { path, scale } = parseLora(text)
    if (path === '') throw new ValidationError('USAGE', { what: 'adapter path is empty', got: text })
    const adapter = await model.adapter(path, { allowPartial: flags.allowPartial === true })
    attached.push({ name: adapter.name, scale, reader: adapter.reader, pairs: adapter.pairs })
  }
  return attached
}
