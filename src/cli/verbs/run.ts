// sluice run: a prompt in, text out, within a memory budget.
import type { Command } from 'commander'
import type { Model } from '../../api/model.ts'
import { formatBytes } from '../../base/bytes.ts'
import { ValidationError } from '../../base/errors.ts'
import type { Engine, EngineReport } from '../../engine/engine.ts'
import type { DraftCount } from '../../generate/decoder.ts'
import type { Usage } from '../../generate/generate.ts'
import type { GenerateRequest } from '../../generate/request.ts'
import type { SamplingOptions } from '../../sample/options.ts'
import { cancelOnSignals } from '../cancel.ts'
import type { EngineFlags } from '../engine-options.ts'
import { withEngine, withModel } from '../model.ts'
import { count, engineOptionsOf, idList, jsonOption, kernelsOption, number, repeat, withOptions } from '../options.ts'
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
  draftK?: number
  chat?: boolean
  quiet?: boolean
}

async function run(path: string, prompt: string | undefined, flags: RunFlags): Promise<void> {
  if ((prompt === undefined) === (flags.ids === undefined))
    throw new ValidationError('USAGE', {
      what: 'give a prompt or --ids, one of the two',
      remedy: 'Example: sluice run model.gguf "Once upon a time"',
    })
  const signal = cancelOnSignals()
  const hide = showProgress(flags.json || flags.quiet ? 'none' : 'auto')
  try {
    await withModel(path, { verify: flags.verify, signal }, async (model, openMs) => {
      // Before the budget is divided: the renderer of chat templates is gone by then.
      const request = { ...(await requestOf(model, prompt, flags)), signal }
      await withEngine(model, flags, async (engine) => {
        const result = await stream(model, engine, request, { print: !flags.json, first: hide })
        const report = engine.report()
        if (flags.json) console.log(JSON.stringify(facts(result, report, openMs)))
        else if (!flags.quiet) console.error(summary(result, report))
      })
    })
  } finally {
    hide()
  }
}

interface Result {
  text: string
  ids: number[]
  usage: Usage
  finishReason: string
}

/** Prints text as it becomes certain, if asked to; whatever ends it, what was printed ends with a line feed. */
async function stream(
  model: Model,
  engine: Engine,
  request: Omit<GenerateRequest, 'maxTokens'> & { maxTokens?: number },
  { print, first }: { print: boolean; first: () => void },
): Promise<Result> {
  const text: string[] = []
  const ids: number[] = []
  let usage: Usage = { promptTokens: 0, completionTokens: 0, prefillMs: 0, decodeMs: 0, tokensPerSecond: 0 }
  let finishReason = ''
  try {
    for await (const event of model.generate(engine, { maxTokens: engine.contextLength, ...request })) {
      first()
      if (event.type === 'usage') {
        usage = event
        continue
      }
      if (event.type === 'token') ids.push(event.id)
      else finishReason = event.finishReason
      text.push(event.text)
      if (print) process.stdout.write(event.text)
    }
  } finally {
    if (print && ids.length > 0) process.stdout.write('\n')
  }
  return { text: text.join(''), ids, usage, finishReason }
}

/** The line of --json: its fields are documented and do not change. */
function facts({ text, ids, usage, finishReason }: Result, report: EngineReport, openMs: number): object {
  const { promptTokens, completionTokens, prefillMs, decodeMs, tokensPerSecond } = usage
  return {
    text,
    ids,
    promptTokens,
    completionTokens,
    finishReason,
    timings: { openMs, prefillMs, decodeMs, tokensPerSecond },
    memory: {
      budgetBytes: report.budgetBytes,
      peakBytes: report.peakBytes,
      residentWeightBytes: report.pager.pinnedBytes,
      streamedBytes: report.pager.bytesRead,
    },
    ...(usage.draft === undefined ? {} : { draft: { ...usage.draft, acceptedRatio: ratio(usage.draft) } }),
  }
}

/** Share of the guessed tokens that the model then chose itself. */
function ratio({ drafted, accepted }: DraftCount): number {
  return drafted === 0 ? 0 : accepted / drafted
}

function summary({ usage }: Result, { pager, ...report }: EngineReport): string {
  const streamed = pager.streamedBytesPerPass
  const weights =
    streamed === 0
      ? `all ${formatBytes(pager.pinnedBytes)} of weights resident`
      : `${formatBytes(pager.pinnedBytes)} of weights pinned, ${formatBytes(streamed)} streamed a pass`
  const draft =
    usage.draft === undefined
      ? ''
      : `, ${Math.round(100 * ratio(usage.draft))} % of ${usage.draft.drafted} guesses right`
  return (
    `sluice: ${usage.promptTokens} + ${usage.completionTokens} tokens, ${usage.tokensPerSecond.toFixed(1)} tokens/s${draft}; ` +
    `memory ${formatBytes(report.peakBytes)} of ${formatBytes(report.budgetBytes)}, ${weights}; ` +
    `${report.kernels}, ${report.precision}, ${pager.ioMode}`
  )
}

async function requestOf(model: Model, prompt: string | undefined, flags: RunFlags) {
  return {
    ...(flags.ids === undefined ? { prompt: await promptOf(model, prompt!, flags) } : { ids: flags.ids }),
    ...(flags.chat ? { addSpecial: false } : {}),
    ...(flags.maxTokens === undefined ? {} : { maxTokens: flags.maxTokens }),
    ...(flags.stop === undefined ? {} : { stop: flags.stop }),
    ...(flags.draftK === undefined ? {} : { draftK: flags.draftK }),
    sampling: samplingOf(flags),
  }
}

async function promptOf(model: Model, prompt: string, flags: RunFlags): Promise<string> {
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
    .option('--draft-k <n>', 'guess up to n tokens ahead from the text itself: same text, fewer passes', count)
    .option('-q, --quiet', 'no progress, no statistics')
  withOptions(command, ...engineOptionsOf(), kernelsOption(), jsonOption())
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
