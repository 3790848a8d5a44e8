// SentencePiece keeps scores of pieces, not merges: a merge is any way to cut a piece into two pieces, as good as the whole piece's score.

/**
 * Merges of a SentencePiece BPE vocabulary, best first: by score of the merged piece (ties: its id), then id of the left part, then of
 * the right. This is the order in which Hugging Face's converter writes them (SentencePieceExtractor in transformers,
 * convert_slow_tokenizer.py).
 * `takesPart`: whether a token may be merged or be the result of one.
 */
export function deriveMerges(
  tokens: readonly string[],
  scores: readonly number[],
  takesPart: (id: number) => boolean,
): [string, string][] {
  const ids = new Map<string, number>()
  for (const [id, token] of tokens.entries()) if (token !== '' && takesPart(id)) ids.set(token, id)
  const order = [...ids.values()].sort((a, b) => (scores[b] as number) - (scores[a] as number) || a - b)
  const merges: [string, string][] = []
  for (const id of order) {
    const token = tokens[id] as string
    const pairs: [number, number][] = []
    for (const cut of cuts(token)) {
      const left = ids.get(token.slice(0, cut))
      const right = left === undefined ? undefined : ids.get(token.slice(cut))
      if (left !== undefined && right !== undefined) pairs.push([left, right])
    }
    pairs.sort((a, b) => a[0] - b[0] || a[1] - b[1])
    for (const [left, right] of pairs) merges.push([tokens[left] as string, tokens[right] as string])
  }
  return merges
}

/** Indices between characters, never inside a surrogate pair. */
function* cuts(text: string): Generator<number> {
  let at = 0
  for (const char of text) {
    if (at > 0) yield at
    at += char.length
  }
}
