// --lora PATH or PATH:SCALE. A colon is also part of paths (C:\adapters, runs:2): what exists as it was written is taken as it was written.
import { ValidationError } from '../base/errors.ts'

const SCALED = /^(.+):([+-]?(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?)$/is

/**
 * Path and scale. `exists` tells whether a text is a path or the name of a packaged adapter. Throws USAGE for an empty path and a scale that
 * is no finite number.
 */
export function parseLora(text: string, exists: (path: string) => boolean): { path: string; scale: number } {
  const refuse = (what: string) =>
    new ValidationError('USAGE', {
      what,
      where: '--lora',
      got: text,
      remedy: 'Write it like --lora ./adapter or --lora ./adapter:0.5.',
    })
  if (text === '' || /^:[^/\\]*$/.test(text)) throw refuse('adapter path is empty')
  if (exists(text)) return { path: text, scale: 1 }
  const m = SCALED.exec(text)
  if (m !== null) {
    const scale = Number(m[2])
    if (!Number.isFinite(scale)) throw refuse('adapter scale is not a finite number')
    return { path: m[1]!, scale }
  }
  // "adapter:half" where "adapter" exists: the scale is what is wrong, not the path.
  const colon = text.lastIndexOf(':')
  if (colon > 0 && exists(text.slice(0, colon))) throw refuse('adapter scale is not a finite number')
  return { path: text, scale: 1 }
}
