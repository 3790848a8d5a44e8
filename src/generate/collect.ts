// A whole generation at once.
import type { FinishReason, GenerateEvent, Usage } from './generate.ts'

/** A text that is complete. */
export interface Generation {
  readonly text: string
  /** Generated ids, an end token included. */
  readonly ids: readonly number[]
  readonly logprobs: readonly number[]
  readonly finishReason: FinishReason
  readonly usage: Usage
}

/** Runs a generation to its end. Throws what it throws. */
export async function collect(events: AsyncIterable<GenerateEvent>): Promise<Generation> {
  let text = ''
  const ids: number[] = []
  const logprobs: number[] = []
  let usage: Usage = { promptTokens: 0, completionTokens: 0, prefillMs: 0, decodeMs: 0, tokensPerSecond: 0 }
  let finishReason: FinishReason = 'length'
  for await (const event of events) {
    if (event.type === 'usage') {
      const { type: _, ...rest } = event
      usage = rest
      continue
    }
    text += event.text
    if (event.type === 'end') finishReason = event.finishReason
    else {
      ids.push(event.id)
      logprobs.push(event.logprob)
    }
  }
  return { text, ids, logprobs, finishReason, usage }
}
