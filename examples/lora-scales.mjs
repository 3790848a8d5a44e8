// The same prompt with an adapter at two scales. An adapter is applied beside the weights: the model on disk is not changed.
//
//   node examples/lora-scales.mjs [model] [adapter]
import { join } from 'node:path'
import { collect, open } from 'sluice'

const [path = join(import.meta.dirname, 'storyteller.wia'), adapter = 'pirate'] = process.argv.slice(2)

const model = await open(path)
try {
  for (const scale of [0, 1]) {
    const adapters = [await model.adapter(adapter, { scale })]
    const engine = await model.engine({ memory: '256MiB', adapters })
    try {
      const request = { prompt: 'A story about a fox and a lantern.\n', maxTokens: 30 } // greedy
      const { text } = await collect(model.generate(engine, request))
      console.log(`scale ${scale}: ${text}`)
    } finally {
      await engine.close()
    }
  }
} finally {
  await model.close()
}
