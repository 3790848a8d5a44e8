// What engine tests do again and again.
import type { Engine } from '#sluice/engine/engine.js'

/** Logits of every token, [tokens, vocabulary]. */
export async function logitsOf(
  engine: Engine,
  ids: readonly number[],
  trace?: { experts: number[][][] },
): Promise<Float32Array> {
  const sequence = engine.createSequence()
  try {
    return await sequence.forward(ids, { logits: 'all', ...(trace === undefined ? {} : { trace }) })
  } finally {
    sequence.release()
  }
}

export function argmax(logits: Float32Array): number {
  let best = 0
  for (let i = 1; i < logits.length; i++) if (logits[i]! > logits[best]!) best = i
  return best
}

/** `count` ids, the most likely one each time. */
export async function greedy(engine: Engine, prompt: readonly number[], count: number): Promise<number[]> {
  const sequence = engine.createSequence()
  try {
    const ids: number[] = []
    let next: readonly number[] = prompt
    while (ids.length < count) {
      const id = argmax(await sequence.forward(next, { logits: 'last' }))
      ids.push(id)
      next = [id]
    }
    return ids
  } finally {
    sequence.release()
  }
}
