// The reader thread raises its flag and sends its error after it. Compute threads may leave in between: the error must not be lost.

import { describe, expect, it } from 'vitest'
import { isSluiceError, SluiceError } from '#sluice/base/errors.js'
import { type Parts, RunningEngine } from '#sluice/engine/running.js'
import { CONTROL } from '#sluice/pager/pager.js'

/** An engine whose threads leave at once because the reader failed, and whose reader's error comes `later`. */
function failing() {
  const control = new Int32Array(new SharedArrayBuffer(64))
  control[CONTROL.failed] = 1
  const listeners: ((error: Error) => void)[] = []
  const pager = {
    shared: { control },
    failure: undefined as Error | undefined,
    start: async () => undefined,
    close: async () => undefined,
    reset: async () => {
      control[CONTROL.failed] = 0
    },
    onError: (listener: (error: Error) => void) => void listeners.push(listener),
  }
  const parts = {
    plan: { kv: [], steps: [{ op: 'zero' }], vocabulary: 8, routes: [] },
    layout: { kvBlockBytes: 64, kvBlocks: 4, kvLayers: [], pagesMax: 4, tokensMax: 8, logitRows: 1 },
    bound: { kv: 0, kvTables: 0, program: { logitTokens: 0, ropes: [] } },
    memory: new WebAssembly.Memory({ initial: 1, maximum: 1, shared: true }),
    ropes: [],
    context: 64,
    pager,
    threads: { run: async () => false, close: async () => undefined },
  }
  const later = (error: Error) => {
    pager.failure = error
    for (const listener of listeners) listener(error)
  }
  return { engine: new RunningEngine(parts as unknown as Parts), later }
}

describe('a reader that fails', () => {
  it('is the reason of the pass, also when its error comes late', async () => {
    const { engine, later } = failing()
    setTimeout(() => later(new SluiceError('CHECKSUM_MISMATCH', { what: 'page' })), 20)
    await expect(engine.createSequence().forward([1], { logits: 'last' })).rejects.toMatchObject({
      code: 'CHECKSUM_MISMATCH',
    })
  })

  it('does not hang a pass when the engine is closed before the error comes', async () => {
    const { engine } = failing()
    const pass = engine.createSequence().forward([1], { logits: 'last' })
    setTimeout(() => void engine.close(), 20)
    const error = await pass.catch((e: unknown) => e)
    expect(isSluiceError(error, 'CLOSED')).toBe(true)
  })
})
