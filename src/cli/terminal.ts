// A terminal acts on what is written to it. Names, texts and metadata come from files, so only what shows reaches it.
import { printable } from '../base/printable.ts'

/** Replaces control characters in everything written to a terminal from now on; pipes and files get every byte. */
export function guardTerminal(stream: NodeJS.WriteStream): void {
  if (!stream.isTTY) return
  const write = stream.write.bind(stream) as (...args: unknown[]) => boolean
  stream.write = ((chunk: unknown, ...rest: unknown[]) =>
    write(typeof chunk === 'string' ? printable(chunk, '\n\t') : chunk, ...rest)) as typeof stream.write
}
