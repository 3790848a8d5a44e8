// Options that several verbs share, parsed once and refused with a sentence.
import { InvalidArgumentError, Option } from 'commander'
import { parseBytes } from '../base/bytes.ts'

export function bytes(text: string): number {
  try {
    return parseBytes(text)
  } catch (err) {
    throw new InvalidArgumentError((err as Error).message)
  }
}

export function count(text: string): number {
  const n = Number(text)
  if (!/^\d+$/.test(text) || !Number.isSafeInteger(n)) throw new InvalidArgumentError('Expected a whole number.')
  return n
}

export function countFromOne(text: string): number {
  const n = count(text)
  if (n === 0) throw new InvalidArgumentError('Expected a whole number from 1.')
  return n
}

export function number(text: string): number {
  const n = Number(text)
  if (text.trim() === '' || !Number.isFinite(n)) throw new InvalidArgumentError('Expected a number.')
  return n
}

export function idList(text: string): number[] {
  return text.split(',').map((part) => count(part.trim()))
}

export function repeat(value: string, before: string[] | undefined): string[] {
  return [...(before ?? []), value]
}

export const jsonOption = () => new Option('--json', 'print JSON for programs')
export const ioModeOption = () =>
  new Option('--io-mode <mode>', 'how files are read').choices(['auto', 'mmap', 'pread', 'direct']).default('auto')
export const verifyOption = () =>
  new Option('--verify <mode>', 'when checksums are checked: before, on first touch, never')
    .choices(['eager', 'lazy', 'off'])
    .default('lazy')
export const memoryOption = () =>
  new Option('--memory <size>', 'memory of the whole process, page cache included (e.g. 2GiB)').argParser(bytes)
export const weightMemoryOption = () =>
  new Option('--weight-memory <size>', 'cap on resident weight pages alone').argParser(bytes)
export const threadsOption = () =>
  new Option('--threads <n>', 'compute threads (default: the cores this process may use)').argParser(count)
export const precisionOption = () =>
  new Option('--precision <p>', 'exact: float32 activations; fast: 8-bit activations on quantized weights')
    .choices(['exact', 'fast'])
    .default('fast')
export const contextOption = () => new Option('--context <tokens>', 'positions to keep room for').argParser(count)
export const kernelsOption = () =>
  new Option('--kernels <set>', 'force a kernel set').choices(['scalar', 'wasm-baseline', 'wasm-relaxed'])
export const loraOption = () =>
  new Option('--lora <path[:scale]>', 'attach a LoRA adapter; repeat for several').argParser(repeat)
export const allowPartialOption = () =>
  new Option('--allow-partial', 'accept an adapter that matches only some of its modules')

/** What every verb that sizes an engine takes (EngineFlags), but for the kernel set. */
export const engineOptionsOf = () => [
  memoryOption(),
  weightMemoryOption(),
  threadsOption(),
  contextOption(),
  loraOption(),
  allowPartialOption(),
  precisionOption(),
  ioModeOption(),
  verifyOption(),
]

/** Adds options to a command, in order. */
export function withOptions<T extends { addOption(o: Option): T }>(command: T, ...options: Option[]): T {
  for (const o of options) command.addOption(o)
  return command
}
