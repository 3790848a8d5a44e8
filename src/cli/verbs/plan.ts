// sluice plan: what a memory budget would mean for a model, before a weight is read.
import type { Command } from 'commander'
import { open } from '../../api/model.ts'
import { formatBytes } from '../../base/bytes.ts'
import { attachAdapters, type EngineFlags, engineOptions } from '../engine-options.ts'
import {
  allowPartialOption,
  contextOption,
  ioModeOption,
  jsonOption,
  loraOption,
  memoryOption,
  precisionOption,
  threadsOption,
  verifyOption,
  weightMemoryOption,
  withOptions,
} from '../options.ts'

async function plan(path: string, flags: EngineFlags & { json?: boolean }): Promise<void> {
  const model = await open(path)
  try {
    await model.tokenizer()
    const adapters = await attachAdapters(model, flags)
    const p = model.plan({ ...engineOptions(flags), adapters })
    if (flags.json) {
      console.log(JSON.stringify(p))
      return
    }
    const { pager } = p
    const all = pager.weightBytes
    const share = all === 0 ? 100 : Math.round((100 * pager.pinnedBytes) / all)
    const rows: [string, string][] = [
      ['budget', `${formatBytes(p.budgetBytes)} for the whole process`],
      ['process', `${formatBytes(p.processBytes)} for Node, ${p.threads} compute threads, one reader, tokenizer`],
      ['cache', `${formatBytes(p.kvBytes)} for ${p.context} tokens`],
      ['activations', `${formatBytes(p.scratchBytes)} for chunks of ${p.chunkTokens} tokens`],
      ...(p.adapterBytes > 0 ? ([['adapters', formatBytes(p.adapterBytes)]] as [string, string][]) : []),
      [
        'weights',
        `${formatBytes(all)}: ${formatBytes(pager.pinnedBytes)} pinned (${share} %), ring ${formatBytes(pager.ringBytes)}`,
      ],
      ['streamed', pager.streamedBytesPerPass === 0 ? 'nothing: the model fits' : streamedText(pager)],
      ['smallest', `${formatBytes(p.requiredBytes)} runs it; ${formatBytes(p.residentBytes)} holds all of it`],
    ]
    for (const [name, text] of rows) console.log(`${name.padEnd(12)} ${text}`)
  } finally {
    await model.close()
  }
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
    jsonOption(),
  )
    .addHelpText('after', '\nExample:\n  sluice plan model.wia --memory 2GiB')
    .action(plan)
}
