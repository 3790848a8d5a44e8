// sluice bench: prefill and decode speed of a model under a budget, medians over repetitions.
import type { Command } from 'commander'
import { formatBytes } from '../../base/bytes.ts'
import { ValidationError } from '../../base/errors.ts'
import type { Engine, EngineReport } from '../../engine/engine.ts'
import { cancelOnSignals } from '../cancel.ts'
import type { EngineFlags } from '../engine-options.ts'
import { withEngine, withModel } from '../model.ts'
import { countFromOne, engineOptionsOf, jsonOption, kernelsOption, withOptions } from '../options.ts'

interface BenchFlags extends EngineFlags {
  promptTokens: number
  generate: number
  repeat: number
}

interface Spread {
  min: number
  median: number
  max: number
}

function spread(values: number[]): Spread {
  const sorted = [...values].sort((a, b) => a - b)
  return { min: sorted[0]!, median: sorted[Math.floor(sorted.length / 2)]!, max: sorted.at(-1)! }
}

async function bench(path: string, flags: BenchFlags): Promise<void> {
  const { promptTokens, generate } = flags
  const signal = cancelOnSignals()
  await withModel(path, { verify: flags.verify, signal }, (model) =>
    withEngine(model, flags, async (engine) => {
      if (promptTokens + generate > engine.contextLength)
        throw new ValidationError('CONTEXT_FULL', {
          what: 'prompt and generated tokens do not fit into the context',
          expected: `≤ ${engine.contextLength} tokens`,
          got: `${promptTokens} + ${generate}`,
          remedy: 'Give fewer --prompt-tokens, or a larger --context.',
        })
      const speeds = await measure(engine, flags, signal)
      const report = engine.report()
      const facts = { model: path, promptTokens, generated: generate, ...speeds, report }
      if (flags.json) console.log(JSON.stringify(facts))
      else print(facts)
    }),
  )
}

/** Tokens a second of every repetition after one that loads pages and compiles kernels. */
async function measure(engine: Engine, { promptTokens, generate, repeat }: BenchFlags, signal: AbortSignal) {
  const ids = Array.from({ length: promptTokens }, (_, i) => 1 + ((i * 7919) % (engine.vocabulary - 1)))
  const prefill: number[] = []
  const decode: number[] = []
  for (let r = -1; r < repeat; r++) {
    const sequence = engine.createSequence()
    try {
      const t0 = performance.now()
      await sequence.forward(ids, { logits: 'last', signal })
      const t1 = performance.now()
      for (let i = 0; i < generate; i++) await sequence.forward([ids[i % promptTokens]!], { logits: 'last', signal })
      if (r < 0) continue
      prefill.push((promptTokens * 1000) / (t1 - t0))
      decode.push((generate * 1000) / (performance.now() - t1))
    } finally {
      sequence.release()
    }
  }
  return { prefillTokensPerSecond: spread(prefill), decodeTokensPerSecond: spread(decode) }
}

function print(f: { prefillTokensPerSecond: Spread; decodeTokensPerSecond: Spread; report: EngineReport }): void {
  const { report: r } = f
  const line = (name: string, s: Spread) =>
    console.log(`${name.padEnd(10)} ${s.median.toFixed(1)} tokens/s (${s.min.toFixed(1)} … ${s.max.toFixed(1)})`)
  line('prefill', f.prefillTokensPerSecond)
  line('decode', f.decodeTokensPerSecond)
  const streamed = r.pager.streamedBytesPerPass
  console.log(`memory     ${formatBytes(r.peakBytes)} of ${formatBytes(r.budgetBytes)}`)
  console.log(`streamed   ${streamed === 0 ? 'nothing' : `${formatBytes(streamed)} a pass, ${r.pager.ioMode}`}`)
  console.log(`kernels    ${r.kernels}, ${r.precision}, ${r.threads} threads`)
}

export function register(program: Command): void {
  const command = program
    .command('bench')
    .description('measure prefill and decode speed under a budget')
    .argument('<model>', 'package, safetensors directory or file, or GGUF')
    .option('--prompt-tokens <n>', 'tokens of the prompt', countFromOne, 128)
    .option('--generate <n>', 'tokens decoded after it', countFromOne, 32)
    .option('--repeat <n>', 'repetitions after one warm-up', countFromOne, 5)
  withOptions(command, ...engineOptionsOf(), kernelsOption(), jsonOption())
    .addHelpText('after', '\nExample:\n  sluice bench model.wia --memory 2GiB --generate 64')
    .action(bench)
}
