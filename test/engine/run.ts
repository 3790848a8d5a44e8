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

/** Bit for bit: NaN equals itself, 0 does not equal -0. */
export function sameBytes(a: Float32Array, b: Float32Array): boolean {
  return Buffer.from(a.buffer, a.byteOffset, a.byteLength).equals(Buffer.from(b.buffer, b.byteOffset, b.byteLength))
}

/** Whole numbers below n, the same for the same seed. */
export function randomOf(seed: number): (n: number) => number {
  let x = (seed * 2654435761) >>> 0
  return (n) => {
    x = (Math.imul(x, 1664525) + 1013904223) >>> 0
    return Math.floor((x / 2 ** 32) * n)
  }
}
