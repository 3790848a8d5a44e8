// sluice run: a prompt in, text out, within a memory budget.
import type { Command } from 'commander'
import { open } from '../../api/model.ts'
import { formatBytes } from '../../base/bytes.ts'
import { ValidationError } from '../../base/errors.ts'
import type { SamplingOptions } from '../../sample/options.ts'
import { cancelOnSignals } from '../cancel.ts'
import { attachAdapters, type EngineFlags, engineOptions } from '../engine-options.ts'
import {
  allowPartialOption,
  contextOption,
  count,
  idList,
  ioModeOption,
  jsonOption,
  kernelsOption,
  loraOption,
  memoryOption,
  number,
  precisionOption,
  repeat,
  threadsOption,
  verifyOption,
  weightMemoryOption,
  withOptions,
} from '../options.ts'
import { showProgress } from '../progress.ts'

interface RunFlags extends EngineFlags {
  ids?: number[]
  maxTokens?: number
  temperature: number
  topK?: number
  topP?: number
  minP?: number
  repetitionPenalty?: number
  presencePenalty?: number
  frequencyPenalty?: number
  seed?: number
  stop?: string[]
  chat?: boolean
  json?: boolean
  stats?: boolean
}

async function run(path: string, prompt: string | undefined, flags: RunFlags): Promise<void> {
  if ((prompt === undefined) === (flags.ids === undefined))
    throw new ValidationError('USAGE', {
      what: 'give a prompt or --ids, one of the two',
      remedy: 'Example: sluice run model.gguf "Once upon a time"',
    })
  const signal = cancelOnSignals()
  const hide = showProgress(flags.json || flags.quiet ? 'none' : 'auto')
  const started = performance.now()
  const model = await open(path, { verify: flags.verify })
  try {
    const openMs = performance.now() - started
    const adapters = await attachAdapters(model, flags)
    // Before the budget is divided: the tokenizer's memory counts, and the renderer of chat templates is gone by then.
    await model.tokenizer()
    const given = flags.ids === undefined ? { prompt: await promptOf(model, prompt!, flags) } : { ids: flags.ids }
    const engine = await model.engine({ ...engineOptions(flags), adapters })
    try {
      const text: string[] = []
      const ids: number[] = []
      let usage = { promptTokens: 0, completionTokens: 0, prefillMs: 0, decodeMs: 0, tokensPerSecond: 0 }
      let finishReason = ''
      const request = {
        ...given,
        ...(flags.chat ? { addSpecial: false } : {}),
        maxTokens: flags.maxTokens ?? engine.contextLength,
        ...(flags.stop === undefined ? {} : { stop: flags.stop }),
        sampling: samplingOf(flags),
        signal,
      }
      for await (const event of model.generate(engine, request)) {
        if (event.type === 'token') {
          hide()
          ids.push(event.id)
          text.push(event.text)
          if (!flags.json) process.stdout.write(event.text)
        } else if (event.type === 'usage') usage = event
        else {
          finishReason = event.finishReason
          text.push(event.text)
          if (!flags.json) process.stdout.write(event.text)
        }
      }
      const report = engine.report()
      const memory = {
        budgetBytes: report.budgetBytes,
        peakBytes: report.peakBytes,
        residentWeightBytes: report.pager.pinnedBytes,
        streamedBytes: report.pager.bytesRead,
      }
      const timings = {
        openMs,
        prefillMs: usage.prefillMs,
        decodeMs: usage.decodeMs,
        tokensPerSecond: usage.tokensPerSecond,
      }
      if (flags.json)
        console.log(
          JSON.stringify({
            text: text.join(''),
            ids,
            promptTokens: usage.promptTokens,
            completionTokens: usage.completionTokens,
            finishReason,
            timings,
            memory,
          }),
        )
      else {
        process.stdout.write('\n')
        if (!flags.quiet)
          console.error(
            `sluice: ${usage.promptTokens} + ${usage.completionTokens} tokens, ${usage.tokensPerSecond.toFixed(1)} tokens/s; memory ${formatBytes(memory.peakBytes)} of ${formatBytes(memory.budgetBytes)} (${formatBytes(report.pager.pinnedBytes)} of weights pinned, ${formatBytes(report.pager.streamedBytesPerPass)} streamed a pass); ${report.kernels}, ${report.precision}, ${report.pager.ioMode}`,
          )
      }
    } finally {
      await engine.close()
    }
  } finally {
    hide()
    await model.close()
  }
}

async function promptOf(model: Awaited<ReturnType<typeof open>>, prompt: string, flags: RunFlags): Promise<string> {
  if (!flags.chat) return prompt
  const { renderChat } = await import('../../text/template.ts')
  const tokenizer = await model.tokenizer()
  if (tokenizer?.chatTemplate === undefined)
    throw new ValidationError('REQUEST_INVALID', {
      what: 'model has no chat template',
      where: model.reader.path,
      remedy: 'Leave --chat out.',
    })
  return renderChat(tokenizer.chatTemplate, {
    messages: [{ role: 'user', content: prompt }],
    addGenerationPrompt: true,
    ...(tokenizer.bosId === undefined ? {} : { bosToken: tokenizer.idToToken(tokenizer.bosId) ?? '' }),
    ...(tokenizer.eosIds[0] === undefined ? {} : { eosToken: tokenizer.idToToken(tokenizer.eosIds[0]) ?? '' }),
  })
}

function samplingOf(f: RunFlags): SamplingOptions {
  const { temperature, topK, topP, minP, repetitionPenalty, presencePenalty, frequencyPenalty, seed } = f
  const given = { topK, topP, minP, repetitionPenalty, presencePenalty, frequencyPenalty, seed }
  return { temperature, ...Object.fromEntries(Object.entries(given).filter(([, v]) => v !== undefined)) }
}

export function register(program: Command): void {
  const command = program
    .command('run')
    .description('generate text within a memory budget')
    .argument('<model>', 'package, safetensors directory or file, or GGUF')
    .argument('[prompt]', 'text to continue')
    .option('--ids <list>', 'token ids instead of text, e.g. 1,403,407', idList)
    .option('--chat', "wrap the prompt in the model's chat template")
    .option('--max-tokens <n>', 'stop after so many tokens', count)
    .option('--temperature <t>', '0 is greedy', number, 0.8)
    .option('--top-k <k>', 'keep the k most likely tokens', count)
    .option('--top-p <p>', 'keep the most likely tokens that add up to p', number)
    .option('--min-p <p>', 'drop tokens below p times the most likely', number)
    .option('--repetition-penalty <f>', 'divide logits of tokens already there', number)
    .option('--presence-penalty <f>', 'subtract once from tokens already there', number)
    .option('--frequency-penalty <f>', 'subtract for every time a token is already there', number)
    .option('--seed <n>', 'same seed, same text', count)
    .option('--stop <text>', 'stop before this text; repeat for several', repeat)
    .option('-q, --quiet', 'no progress, no statistics')
  withOptions(
    command,
    memoryOption(),
    weightMemoryOption(),
    threadsOption(),
    contextOption(),
    loraOption(),
    allowPartialOption(),
    precisionOption(),
    ioModeOption(),
    verifyOption(),
    kernelsOption(),
    jsonOption(),
  )
    .addHelpText(
      'after',
      `
Examples:
  sluice run model.gguf "Once upon a time" --memory 2GiB
  sluice run model.wia --ids 1,403,407 --temperature 0 --max-tokens 32 --json
  sluice run model.wia "A story about a fox." --lora ./adapter:0.8 --seed 7`,
    )
    .action(run)
}
