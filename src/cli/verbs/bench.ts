// sluice bench: prefill and decode speed of a model under a budget, medians over repetitions.
import type { Command } from 'commander'
import { open } from '../../api/model.ts'
import { formatBytes } from '../../base/bytes.ts'
import { attachAdapters, type EngineFlags, engineOptions } from '../engine-options.ts'
import {
  allowPartialOption,
  contextOption,
  count,
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

interface BenchFlags extends EngineFlags {
  promptTokens: number
  generate: number
  repeat: number
  json?: boolean
}

function spread(values: number[]): { min: number; median: number; max: number } {
  const sorted = [...values].sort((a, b) => a - b)
  return { min: sorted[0]!, median: sorted[Math.floor(sorted.length / 2)]!, max: sorted.at(-1)! }
}

async function bench(path: string, flags: BenchFlags): Promise<void> {
  const model = await open(path, { verify: flags.verify })
  try {
    const engine = await model.engine({ ...engineOptions(flags), adapters: await attachAdapters(model, flags) })
    try {
      const tokens = Math.min(flags.promptTokens, engine.contextLength - flags.generate)
      const ids = Array.from({ length: tokens }, (_, i) => 1 + ((i * 7919) % (engine.vocabulary - 1)))
      const prefill: number[] = []
      const decode: number[] = []
      for (let r = -1; r < flags.repeat; r++) {
        const sequence = engine.createSequence()
        const t0 = performance.now()
        await sequence.forward(ids, { logits: 'last' })
        const t1 = performance.now()
        for (let i = 0; i < flags.generate; i++) await sequence.forward([ids[i % tokens]!], { logits: 'last' })
        const t2 = performance.now()
        sequence.release()
        if (r < 0) continue // warm-up: pages are loaded, kernels compiled
        prefill.push((tokens * 1000) / (t1 - t0))
        decode.push((flags.generate * 1000) / (t2 - t1))
      }
      const report = engine.report()
      const facts = {
        model: path,
        promptTokens: tokens,
        generated: flags.generate,
        prefillTokensPerSecond: spread(prefill),
        decodeTokensPerSecond: spread(decode),
        report,
      }
      if (flags.json) console.log(JSON.stringify(facts))
      else {
        const line = (name: string, s: { min: number; median: number; max: number }) =>
          console.log(`${name.padEnd(10)} ${s.median.toFixed(2)} tokens/s (${s.min.toFixed(2)} … ${s.max.toFixed(2)})`)
        line('prefill', facts.prefillTokensPerSecond)
        line('decode', facts.decodeTokensPerSecond)
        console.log(
          `memory     ${formatBytes(report.peakBytes)} of ${formatBytes(report.budgetBytes)}; ${formatBytes(report.pager.streamedBytesPerPass)} streamed a pass; ${report.kernels}, ${report.precision}, ${report.threads} threads`,
        )
      }
    } finally {
      await engine.close()
    }
  } finally {
    await model.close()
  }
}

export function register(program: Command): void {
  const command = program
    .command('bench')
    .description('measure prefill and decode speed under a budget')
    .argument('<model>', 'package, safetensors directory or file, or GGUF')
    .option('--prompt-tokens <n>', 'tokens of the prompt', count, 128)
    .option('--generate <n>', 'tokens decoded after it', count, 32)
    .option('--repeat <n>', 'repetitions after one warm-up', count, 5)
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
    .addHelpText('after', '\nExample:\n  sluice bench model.wia --memory 2GiB --generate 64')
    .action(bench)
}
