// sluice plan: what a memory budget would mean for a model, before a weight is read.
import type { Command } from 'commander'
import { formatBytes } from '../../base/bytes.ts'
import type { Forecast } from '../../engine/forecast.ts'
import { attachAdapters, type EngineFlags, engineOptions } from '../engine-options.ts'
import { runnable, withModel } from '../model.ts'
import { engineOptionsOf, jsonOption, withOptions } from '../options.ts'

async function plan(path: string, flags: EngineFlags): Promise<void> {
  await withModel(path, { verify: flags.verify }, async (model) => {
    runnable(model, flags.json === true)
    await model.tokenizer() // its memory counts
    const adapters = await attachAdapters(model, flags)
    const forecast = await model.plan({ ...engineOptions(flags), adapters })
    if (flags.json) console.log(JSON.stringify(forecast))
    else print(forecast)
  })
}

function print(p: Forecast): void {
  const { pager } = p
  const all = pager.weightBytes
  const share = all === 0 ? 100 : Math.round((100 * pager.pinnedBytes) / all)
  const rows: [string, string][] = [
    ['budget', `${formatBytes(p.budgetBytes)} for the whole process`],
    ['process', `${formatBytes(p.processBytes)} for Node, ${p.threads} compute threads, one reader, tokenizer`],
    ['cache', `${formatBytes(p.kvBytes)} for ${p.context} tokens`],
    ['activations', `${formatBytes(p.scratchBytes)} for chunks of ${p.chunkTokens} tokens`],
  ]
  if (p.adapterBytes > 0) rows.push(['adapters', formatBytes(p.adapterBytes)])
  rows.push([
    'weights',
    `${formatBytes(all)}: ${formatBytes(pager.pinnedBytes)} pinned (${share} %), ring ${formatBytes(pager.ringBytes)}`,
  ])
  rows.push(['streamed', pager.streamedBytesPerPass === 0 ? 'nothing: the model fits' : streamedText(pager)])
  // Rounded up, never down: they are copied into --memory.
  const mib = (bytes: number) => `${Math.ceil(bytes / 1024 ** 2)}MiB`
  rows.push(['smallest', `--memory ${mib(p.requiredBytes)} runs it; ${mib(p.residentBytes)} holds all of it`])
  for (const [name, text] of rows) console.log(`${name.padEnd(12)} ${text}`)
}

function streamedText(p: { streamedBytesPerPass: number; optionalBytesPerPass: number }): string {
  const always = p.streamedBytesPerPass - p.optionalBytesPerPass
  if (p.optionalBytesPerPass === 0) return `${formatBytes(always)} read again for every token`
  return `${formatBytes(always)} read again for every token, and of ${formatBytes(p.optionalBytesPerPass)} the experts it chooses`
}

export function register(program: Command): void {
  const command = program
    .command('plan')
    .description('show what a budget would mean: bytes pinned, bytes streamed per token, the smallest budget')
    .argument('<model>', 'package, safetensors directory or file, or GGUF')
  withOptions(command, ...engineOptionsOf(), jsonOption())
    .addHelpText('after', '\nExample:\n  sluice plan model.wia --memory 2GiB')
    .action(plan)
}
