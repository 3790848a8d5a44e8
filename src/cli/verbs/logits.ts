// sluice logits: the logits of every token of a text, as .npy [tokens, vocabulary] float32.
import type { Command } from 'commander'
import type { Model } from '../../api/model.ts'
import { InferenceError, ValidationError } from '../../base/errors.ts'
import type { Engine } from '../../engine/engine.ts'
import { cancelOnSignals } from '../cancel.ts'
import type { EngineFlags } from '../engine-options.ts'
import { withEngine, withModel } from '../model.ts'
import {
  allowPartialOption,
  contextOption,
  idList,
  ioModeOption,
  jsonOption,
  kernelsOption,
  loraOption,
  memoryOption,
  precisionOption,
  threadsOption,
  verifyOption,
  weightMemoryOption,
  withOptions,
} from '../options.ts'
import { Output } from '../output.ts'
import { showProgress } from '../progress.ts'

interface LogitsFlags extends EngineFlags {
  prompt?: string
  ids?: number[]
  output: string
}

async function logits(path: string, flags: LogitsFlags): Promise<void> {
  if ((flags.prompt === undefined) === (flags.ids === undefined))
    throw new ValidationError('USAGE', {
      what: 'give --prompt or --ids, one of the two',
      remedy: 'Example: sluice logits model.wia --prompt "Once upon a time" -o logits.npy',
    })
  const signal = cancelOnSignals()
  const hide = showProgress(flags.json ? 'none' : 'auto')
  try {
    await withModel(path, { verify: flags.verify, signal }, async (model) => {
      const ids = flags.ids ?? (await encode(model, flags.prompt!))
      await withEngine(model, flags, async (engine) => {
        await write(engine, ids, flags.output, signal)
        hide()
        const { budgetBytes, peakBytes } = engine.report()
        const shape = [ids.length, engine.vocabulary]
        const facts = { output: flags.output, shape, ids, memory: { budgetBytes, peakBytes } }
        console.log(flags.json ? JSON.stringify(facts) : `${flags.output}: float32 [${shape.join(', ')}]`)
      })
    })
  } finally {
    hide()
  }
}

async function encode(model: Model, text: string): Promise<number[]> {
  const tokenizer = await model.tokenizer()
  if (tokenizer === undefined)
    throw new InferenceError('TOKENIZER_MISSING', {
      what: 'model has no tokenizer',
      where: model.reader.path,
      remedy: 'Use --ids.',
    })
  return tokenizer.encode(text)
}

async function write(engine: Engine, ids: readonly number[], path: string, signal: AbortSignal): Promise<void> {
  const { npyHeader } = await import('../../tensor/npy.ts')
  const sequence = engine.createSequence()
  const out = new Output(path)
  try {
    out.write(npyHeader('float32', [ids.length, engine.vocabulary]))
    await sequence.forward(ids, {
      logits: 'all',
      signal,
      onLogits: (rows) => out.write(new Uint8Array(rows.buffer, rows.byteOffset, rows.byteLength)),
    })
    out.commit()
  } finally {
    out.discard()
    sequence.release()
  }
}

export function register(program: Command): void {
  const command = program
    .command('logits')
    .description('write the logits of every token of a text as .npy')
    .argument('<model>', 'package, safetensors directory or file, or GGUF')
    .option('--prompt <text>', 'text')
    .option('--ids <list>', 'token ids instead of text', idList)
    .requiredOption('-o, --output <file>', 'npy file to write')
  withOptions(
    command,
    loraOption(),
    allowPartialOption(),
    precisionOption(),
    memoryOption(),
    weightMemoryOption(),
    threadsOption(),
    contextOption(),
    ioModeOption(),
    verifyOption(),
    kernelsOption(),
    jsonOption(),
  )
    .addHelpText('after', '\nExample:\n  sluice logits model.wia --ids 1,403,407 --precision exact -o logits.npy')
    .action(logits)
}
