// A verb's model, adapters and engine: opened, warned about, closed, whatever happens in between. The code behind them is loaded here,
// when a verb runs, so that --help and --version start at once.

import type { Model, OpenOptions } from '../api/model.ts'
import type { ArchOutput } from '../arch/arch.ts'
import type { Engine } from '../engine/engine.ts'
import { attachAdapters, type EngineFlags, engineOptions } from './engine-options.ts'
import { warn } from './warn.ts'

/** Opens, uses, closes. `openMs` is what opening took. */
export async function withModel<T>(
  path: string,
  options: OpenOptions,
  use: (model: Model, openMs: number) => Promise<T>,
): Promise<T> {
  const { open } = await import('../api/model.ts')
  const started = performance.now()
  const model = await open(path, options)
  try {
    return await use(model, performance.now() - started)
  } finally {
    await model.close()
  }
}

/** An engine over the model with the adapters of the flags. The tokenizer is loaded first: its memory counts. */
export async function withEngine<T>(model: Model, flags: EngineFlags, use: (engine: Engine) => Promise<T>): Promise<T> {
  runnable(model, flags.json === true)
  const adapters = await attachAdapters(model, flags)
  await model.tokenizer()
  const engine = await model.engine({ ...engineOptions(flags), adapters })
  try {
    return await use(engine)
  } finally {
    await engine.close()
  }
}

/** The architecture of a model that is to be run or converted, with its warnings shown. */
export function runnable(model: Model, json: boolean): ArchOutput {
  const arch = model.architecture()
  for (const text of arch.warnings) warn(text, json)
  return arch
}
