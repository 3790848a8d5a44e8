// Models split over files, as llama.cpp's gguf-split writes them: <name>-00001-of-00003.gguf, each with its own header.
// The first has all metadata; each has split.no (from 0), split.count and split.tensors.count (of all files together).
import { ModelFormatError } from '../../base/errors.ts'
import type { JsonValue } from '../../base/json.ts'
import type { GgufHeader } from './header.ts'
import { decodeValue } from './metadata.ts'

const NAME = /^(.*)-(\d{5})-of-(\d{5})\.gguf$/s
/** Five digits name a part. */
const MAX_PARTS = 99_999
/** These describe the file, not the model. */
const OWN_KEYS = new Set(['split.no', 'split.count', 'split.tensors.count', 'general.alignment'])

export interface SplitPlan {
  /** File names, first to last, beside each other. */
  readonly files: readonly string[]
  /** Tensors of all files. */
  readonly tensorCount: number
}

function refuse(what: string, where: string, extra: object = {}): never {
  throw new ModelFormatError('FORMAT_INVALID', { what, where, ...extra })
}

function value(header: GgufHeader, key: string, where: string): JsonValue | undefined {
  const raw = header.metadata.get(key)
  return raw === undefined ? undefined : decodeValue(raw, `${where}, key ${key}`)
}

function count(header: GgufHeader, key: string, most: number, where: string): number {
  const n = value(header, key, where)
  if (typeof n !== 'number' || !Number.isSafeInteger(n) || n < 0 || n > most)
    refuse(`${key} is missing or not a count`, where, { expected: `0 … ${most}`, got: n })
  return n
}

/** The part that a file name says it is: 1-based. */
export function partOf(
  file: string,
): { readonly stem: string; readonly part: number; readonly parts: number } | undefined {
  const found = NAME.exec(file)
  return found === null ? undefined : { stem: found[1]!, part: Number(found[2]), parts: Number(found[3]) }
}

/** The files of a split model whose first file is open; undefined when the model is one file. Throws FORMAT_INVALID. */
export function planSplit(header: GgufHeader, file: string, where: string): SplitPlan | undefined {
  if (!header.metadata.has('split.count')) {
    if (header.metadata.has('split.no') || header.metadata.has('split.tensors.count'))
      refuse('split.count is missing', where)
    return undefined
  }
  const parts = count(header, 'split.count', MAX_PARTS, where)
  if (parts <= 1) return undefined
  const name = partOf(file)
  const no = count(header, 'split.no', parts - 1, where)
  if (no !== 0)
    refuse('this is not the first file of a split model', where, {
      expected: 'split.no 0',
      got: no,
      remedy: name === undefined ? 'Open the first file.' : `Open ${name.stem}-00001-of-${pad(parts)}.gguf.`,
    })
  if (name === undefined || name.parts !== parts || name.part !== 1)
    refuse('the name of a split model does not say which part it is', where, {
      expected: `<name>-00001-of-${pad(parts)}.gguf`,
      got: file,
      remedy: 'Give the files their original names.',
    })
  return {
    files: Array.from({ length: parts }, (_, i) => `${name.stem}-${pad(i + 1)}-of-${pad(parts)}.gguf`),
    tensorCount: count(header, 'split.tensors.count', Number.MAX_SAFE_INTEGER, where),
  }
}

function pad(n: number): string {
  return String(n).padStart(5, '0')
}

/** Checks part `no` (from 1 on) against the first. What a part repeats of the metadata must be the same bytes. Throws FORMAT_INVALID. */
export function checkPart(first: GgufHeader, header: GgufHeader, no: number, plan: SplitPlan, where: string): void {
  const parts = plan.files.length
  if (count(header, 'split.count', MAX_PARTS, where) !== parts || count(header, 'split.no', MAX_PARTS, where) !== no)
    refuse('a file is another part than its name says, or of another model', where, {
      expected: `split.no ${no}, split.count ${parts}`,
      got: `split.no ${value(header, 'split.no', where)}, split.count ${value(header, 'split.count', where)}`,
    })
  const tensors = count(header, 'split.tensors.count', Number.MAX_SAFE_INTEGER, where)
  if (tensors !== plan.tensorCount)
    refuse('files of a split model disagree about split.tensors.count', where, {
      expected: plan.tensorCount,
      got: tensors,
    })
  if (header.bigEndian !== first.bigEndian) refuse('files of a split model have different byte orders', where)
  for (const [key, raw] of header.metadata) {
    if (OWN_KEYS.has(key)) continue
    const there = first.metadata.get(key)
    if (there === undefined || there.type !== raw.type || Buffer.compare(there.bytes, raw.bytes) !== 0)
      refuse('a later file of a split model contradicts the metadata of the first', where, { got: key })
  }
}
