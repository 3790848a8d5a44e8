// Ends a generation from outside. The engine can be used again at once.
//
//   node examples/cancel.mjs [model]
import { join } from 'node:path'
import { isSluiceError, open } from 'sluice'

const [path = join(import.meta.dirname, 'storyteller.wia')] = process.argv.slice(2)

const model = await open(path)
const engine = await model.engine({ memory: '256MiB' })
try {
  const abort = new AbortController()
  let tokens = 0
  try {
    const request = { prompt: 'A story about a fox and a lantern.\n', maxTokens: 400, signal: abort.signal }
    for await (const event of model.generate(engine, request)) {
      if (event.type === 'token' && ++tokens === 10) abort.abort() // a timer, a closed connection, Ctrl-C …
    }
  } catch (err) {
    if (!isSluiceError(err, 'ABORTED')) throw err
    console.log(`cancelled after ${tokens} tokens`)
  }

  let text = ''
  for await (const event of model.generate(engine, { prompt: 'Once upon a time', maxTokens: 10 }))
    if (event.type !== 'usage') text += event.text
  console.log(`and again: Once upon a time${text}`)
} finally {
  await engine.close()
  await model.close()
}
