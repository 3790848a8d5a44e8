// Stop strings, found across the borders of tokens: text that may yet become one is held back.

export class StopMatcher {
  readonly #stops: readonly string[]
  #held = ''
  /** The stop string that was met. */
  matched: string | undefined

  /** `stops`: non-empty strings. */
  constructor(stops: readonly string[]) {
    this.#stops = stops
  }

  /** Text that may be shown now. After a match: what came before the stop string, and then nothing more. */
  push(text: string): string {
    if (this.matched !== undefined) return ''
    const all = this.#held + text
    let at = -1
    for (const stop of this.#stops) {
      const found = all.indexOf(stop)
      if (found >= 0 && (at < 0 || found < at)) {
        at = found
        this.matched = stop
      }
    }
    if (at >= 0) {
      this.#held = ''
      return all.slice(0, at)
    }
    const keep = this.#prefixAtEnd(all)
    this.#held = all.slice(all.length - keep)
    return all.slice(0, all.length - keep)
  }

  /** What is held back, when no more text will come. */
  flush(): string {
    const text = this.#held
    this.#held = ''
    return text
  }

  /** Length of the longest end of the text that is the beginning of a stop string. */
  #prefixAtEnd(text: string): number {
    let longest = 0
    for (const stop of this.#stops)
      for (let n = Math.min(stop.length - 1, text.length); n > longest; n--)
        if (text.endsWith(stop.slice(0, n))) {
          longest = n
          break
        }
    return longest
  }
}
