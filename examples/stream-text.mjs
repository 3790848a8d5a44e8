// Text within a memory budget, printed as it comes. The budget is for the whole process: what does not fit is streamed from disk.
//
//   node examples/stream-text.mjs [model] [prompt] [memory]
import { join } from 'node:path'
import { formatBytes, open } from 'sluice'

const [
  path = join(import.meta.dirname, 'storyteller.wia'),
  prompt = 'A story about a fox and a lantern.\n',
  memory = '256MiB',
] = process.argv.slice(2)

const model = await open(path)
await model.tokenizer() // loaded before the budget is divided: its memory counts
const engine = await model.engine({ memory })
try {
  const request = { prompt, maxTokens: 80, sampling: { temperature: 0.8, topP: 0.95, seed: 12 } }
  for await (const event of model.generate(engine, request)) {
    if (event.type !== 'usage') process.stdout.write(event.text)
    else console.error(`[${event.completionTokens} tokens, ${event.tokensPerSecond.toFixed(0)} tokens/s]`)
  }
  const { peakBytes, budgetBytes } = engine.report()
  console.error(`[memory: ${formatBytes(peakBytes)} of ${formatBytes(budgetBytes)}]`)
} finally {
  await engine.close()
  await model.close()
}
