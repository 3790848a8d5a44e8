// One tensor out of a model of any size: only its rows are read.
//
//   node examples/read-tensor.mjs [model] [tensor]
import { join } from 'node:path'
import { open } from 'sluice'

const [path = join(import.meta.dirname, 'storyteller.wia'), name = 'model.embed_tokens.weight'] = process.argv.slice(2)

const model = await open(path)
try {
  const tensor = model.tensor(name)
  console.log(`${name}: ${tensor.dtype} [${tensor.shape.join(', ')}], ${tensor.entry.byteLength} bytes stored`)

  const rows = await tensor.rows(0, 2) // float32, whatever is stored
  console.log('row 0 begins', [...rows.subarray(0, 4)])

  // The whole tensor, a piece at a time: memory stays small however large it is.
  let largest = 0
  for await (const { data } of tensor.stream({ as: 'float32', bytes: 1 << 20 }))
    for (const value of data) largest = Math.max(largest, Math.abs(value))
  console.log('largest magnitude', largest)
} finally {
  await model.close()
}
