// Regular expressions that come from a file: they may be written to run for ever, so each match has a time limit.
import vm from 'node:vm'
import { ModelFormatError } from '../base/errors.ts'

/** Real patterns are under 300 characters. */
const MAX_PATTERN = 2000
/** Wall-clock time of one match, and of all matches of an adapter: a real one takes microseconds, a busy machine some milliseconds. */
const TIME_LIMIT_MS = 1000
const TOTAL_LIMIT_MS = 5000

const cache = new Map<string, boolean>()
let context: vm.Context | undefined
let spentMs = 0

/** The patterns of another adapter begin: its matches have all the time again. */
export function startMatching(): void {
  spentMs = 0
}

/** Whether `pattern` matches all of `text` (Python's re.fullmatch). Throws ADAPTER_INVALID for a pattern that is malformed or too slow. */
export function matchesPattern(pattern: string, text: string): boolean {
  const key = `${pattern}\n${text}`
  const known = cache.get(key)
  if (known !== undefined) return known
  if (pattern.length > MAX_PATTERN)
    throw new ModelFormatError('ADAPTER_INVALID', {
      what: 'module pattern is too long',
      expected: `≤ ${MAX_PATTERN}`,
      got: pattern.length,
    })
  context ??= vm.createContext(Object.create(null))
  let result: boolean
  const started = performance.now()
  try {
    result = vm.runInContext(
      `new RegExp(${JSON.stringify(`^(?:${pattern})$`)}, 'u').test(${JSON.stringify(text)})`,
      context,
      { timeout: Math.max(1, Math.min(TIME_LIMIT_MS, Math.ceil(TOTAL_LIMIT_MS - spentMs))) },
    ) as boolean
  } catch (cause) {
    const slow = (cause as NodeJS.ErrnoException).code === 'ERR_SCRIPT_EXECUTION_TIMEOUT'
    throw new ModelFormatError('ADAPTER_INVALID', {
      what: slow ? 'module pattern takes too long to match' : 'module pattern is not a regular expression',
      got: pattern,
      cause,
    })
  } finally {
    spentMs += performance.now() - started
  }
  if (cache.size > 10_000) cache.clear()
  cache.set(key, result)
  return result
}
