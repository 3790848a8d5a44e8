// Entry of the reader thread: opens the files again and runs the loop of stream.ts over them.
import { createHash } from 'node:crypto'
import { parentPort, workerData } from 'node:worker_threads'
import { toPlainError } from '../base/transfer.ts'
import { openFileSync } from '../source/openFile.ts'
import type { ByteSource } from '../source/source.ts'
import { BehindSource } from './behind.ts'
import type { FromReader, ReaderInput, ToReader } from './messages.ts'
import { repackFor } from './repack.ts'
import { createStream } from './stream.ts'

const input = workerData as ReaderInput
const port = parentPort!
const say = (message: FromReader): void => port.postMessage(message)

const sources = new Map<number, ByteSource>()
const closeSources = (): Promise<unknown> => Promise.allSettled([...sources.values()].map(async (s) => s.close()))

async function run(): Promise<void> {
  for (const [index, descriptor] of input.files) {
    const source = openFileSync(descriptor)
    sources.set(index, descriptor.dropBehind === true ? new BehindSource(source) : source)
  }
  const { stage, memories } = input.stream
  const repack = input.kernels === undefined ? undefined : repackFor(input.kernels, memories[stage.arena]!)
  const stream = createStream(input.stream, sources, {
    ...(repack === undefined ? {} : { repack }),
    sha256: (bytes) => createHash('sha256').update(bytes).digest(),
    onError: (error) => say({ kind: 'failed', error: toPlainError(error) }),
    ...(input.news === true ? { onPage: (page) => say({ kind: 'page', page }) } : {}),
  })
  port.on('message', async (message: ToReader) => {
    if (message.kind === 'reset') {
      await stream.reset(message.pass)
      say({ kind: 'reset', id: message.id })
    } else {
      await stream.stop()
      await closeSources()
      port.close() // nothing else keeps the thread
    }
  })
  stream.start()
  say({ kind: 'started' })
}

run().catch(async (error: unknown) => {
  say({ kind: 'refused', error: toPlainError(error) })
  await closeSources()
  port.close()
})
