// sluice logits: the logits of every token of a text, as .npy [tokens, vocabulary] float32.
import type { Command } from 'commander'
import { open } from '../../api/model.ts'
import { InferenceError, ValidationError } from '../../base/errors.ts'
import { npyHeader } from '../../tensor/npy.ts'
import { cancelOnSignals } from '../cancel.ts'
import { attachAdapters, type EngineFlags, engineOptions } from '../engine-options.ts'
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
  json?: boolean
}

async function logits(path: string, flags: LogitsFlags): Promise<void> {
  if ((flags.prompt === undefined) === (flags.ids === undefined))
    throw new ValidationError('USAGE', { what: 'give --prompt or --ids, one of the two' })
  const signal = cancelOnSignals()
  const hide = showProgress(flags.json ? 'none' : 'auto')
  const model = await open(path, { verify: flags.verify })
  try {
    const tokenizer = await model.tokenizer()
    if (flags.prompt !== undefined && tokenizer === undefined)
      throw new InferenceError('TOKENIZER_MISSING', {
        what: 'model has no tokenizer',
        where: path,
        remedy: 'Use --ids.',
      })
    const ids = flags.ids ?? tokenizer!.encode(flags.prompt!)
    const adapters = await attachAdapters(model, flags)
    const engine = await model.engine({ ...engineOptions(flags), adapters })
    try {
      const sequence = engine.createSequence()
      const out = new Output(flags.output)
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
      }
      const report = engine.report()
      const facts = {
        output: flags.output,
        shape: [ids.length, engine.vocabulary],
        ids,
        memory: { budgetBytes: report.budgetBytes, peakBytes: report.peakBytes },
      }
      hide()
      console.log(flags.json ? JSON.stringify(facts) : `${flags.output}: float32 [${facts.shape.join(', ')}]`)
    } finally {
      await engine.close()
    }
  } finally {
    hide()
    await model.close()
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
