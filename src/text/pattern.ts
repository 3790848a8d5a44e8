// Regular expressions come with models and run over user text: those that can backtrack exponentially are refused.
import { ModelFormatError } from '../base/errors.ts'

/** Longest pattern seen in real tokenizers: about 1,500 characters (DeepSeek's letter ranges). */
const MAX_PATTERN = 8192

interface Group {
  /** Holds a `*`, `+` or `{n,}`. */
  unbounded: boolean
  /** Holds a `|`. */
  alternation: boolean
}

/**
 * Refuses an unbounded quantifier over a group that itself repeats or branches, `(a+)+` or `(a|b)*`: the classic exponential
 * patterns. No tokenizer of the model families known here has one.
 * @throws TOKENIZER_UNSUPPORTED
 */
export function checkPattern(pattern: string, where: string): void {
  const refuse = (what: string): never => {
    throw new ModelFormatError('TOKENIZER_UNSUPPORTED', { what, where, got: pattern })
  }
  if (pattern.length > MAX_PATTERN) refuse('regular expression is too long')
  const stack: Group[] = [{ unbounded: false, alternation: false }]
  let closed: Group | undefined
  for (let i = 0; i < pattern.length; i++) {
    const c = pattern[i]
    const top = stack[stack.length - 1] as Group
    const last = closed
    closed = undefined
    if (c === '\\') i++
    else if (c === '[') i = endOfClass(pattern, i)
    else if (c === '(') stack.push({ unbounded: false, alternation: false })
    else if (c === '|') top.alternation = true
    else if (c === ')') {
      if (stack.length === 1) refuse('regular expression closes a group that it did not open')
      closed = stack.pop() as Group
      const parent = stack[stack.length - 1] as Group
      parent.unbounded ||= closed.unbounded
      parent.alternation ||= closed.alternation
    } else if (c === '*' || c === '+' || (c === '{' && /^\{\d*,\}/.test(pattern.slice(i, i + 12)))) {
      if (last !== undefined && (last.unbounded || last.alternation))
        refuse('regular expression repeats a group that repeats or branches')
      top.unbounded = true
    }
  }
  if (stack.length !== 1) refuse('regular expression leaves a group open')
}

/** Index of the bracket that closes the class opened at i (classes nest in the dialect of tokenizer.json). */
function endOfClass(pattern: string, i: number): number {
  let depth = 0
  for (let j = i; j < pattern.length; j++) {
    const c = pattern[j]
    if (c === '\\') j++
    else if (c === '[') depth++
    else if (c === ']' && --depth === 0) return j
  }
  return pattern.length
}
