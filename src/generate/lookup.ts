// Prompt lookup: a draft without a model. What followed the same few tokens earlier in the text is proposed again
// (A. Saxena 2023, "Prompt Lookup Decoding"). Costs nothing when it is wrong but the columns of one pass.

/** Longest and shortest run of tokens that must repeat. */
const LONGEST = 4
const SHORTEST = 2

/** Up to `most` tokens that followed the latest earlier occurrence of the longest repeated ending; [] when nothing repeats. */
export function lookup(history: readonly number[], most: number): number[] {
  const n = history.length
  if (most < 1) return []
  for (let length = Math.min(LONGEST, n - 1); length >= SHORTEST; length--) {
    for (let at = n - length - 1; at >= 0; at--) {
      let same = 0
      while (same < length && history[at + same] === history[n - length + same]) same++
      if (same === length) return history.slice(at + length, at + length + most)
    }
  }
  return []
}
