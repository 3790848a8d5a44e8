// Normalizers and pre-tokenizers of tokenizer.json (the format of the Hugging Face tokenizers library): which are understood, and how
// each is written so that the JavaScript library does what the Rust one does. What is not in this file is refused by name.
import { isJsonObject, type JsonObject, type JsonValue, own } from '../base/json.ts'
import { arrayAt, booleanField, knownKeys, malformed, objectAt, stringField, unsupported } from './fields.ts'
import { checkPattern } from './pattern.ts'

/** GPT-2's pre-tokenizer, built into ByteLevel; written out because JavaScript's own \s is not Unicode White_Space. */
export const GPT2_PATTERN = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"

/** Pieces are the matches and what lies between them. */
export const isolated = (pattern: string): JsonObject => ({
  type: 'Split',
  pattern: { Regex: pattern },
  behavior: 'Isolated',
  invert: false,
})

export const byteLevel: JsonObject = {
  type: 'ByteLevel',
  add_prefix_space: false,
  trim_offsets: false,
  use_regex: false,
}

const sequence = (pretokenizers: JsonObject[]): JsonObject => ({ type: 'Sequence', pretokenizers })

const escapeRegex = (text: string): string => text.replace(/[\\^$.*+?()[\]{}|/-]/g, '\\$&')

function patternOf(component: JsonObject, where: string): { regex: string } | { string: string } {
  const pattern = objectAt(own(component, 'pattern'), `${where}.pattern`)
  knownKeys(pattern, ['String', 'Regex'], `${where}.pattern`)
  const text = own(pattern, 'String')
  if (typeof text === 'string') {
    if (text === '') malformed('pattern is empty', where)
    return { string: text }
  }
  const regex = stringField(pattern, 'Regex', `${where}.pattern`)
  checkPattern(regex, where)
  return { regex }
}

export function translateNormalizer(value: JsonValue | undefined, where: string): JsonObject | null {
  if (value === null || value === undefined) return null
  const n = objectAt(value, where)
  const type = stringField(n, 'type', where)
  switch (type) {
    case 'NFC':
    case 'NFD':
    case 'NFKC':
    case 'NFKD':
      knownKeys(n, ['type'], where)
      return { type }
    case 'Prepend':
      knownKeys(n, ['type', 'prepend'], where)
      return { type, prepend: stringField(n, 'prepend', where) }
    case 'Replace': {
      knownKeys(n, ['type', 'pattern', 'content'], where)
      const pattern = patternOf(n, where)
      // The library hands the content to String.replaceAll, where "$" is special.
      const content = stringField(n, 'content', where).replaceAll('$', '$$$$')
      return { type, pattern: 'string' in pattern ? { String: pattern.string } : { Regex: pattern.regex }, content }
    }
    case 'Sequence': {
      knownKeys(n, ['type', 'normalizers'], where)
      const parts = arrayAt(own(n, 'normalizers'), `${where}.normalizers`).map((p, i) =>
        translateNormalizer(objectAt(p, `${where}[${i}]`), `${where}[${i}]`),
      )
      return { type, normalizers: parts }
    }
    default:
      return unsupported(`normalizer "${type}" is not implemented`, where)
  }
}

function translateSplit(p: JsonObject, where: string): JsonObject {
  knownKeys(p, ['type', 'pattern', 'behavior', 'invert'], where)
  const pattern = patternOf(p, where)
  const behavior = stringField(p, 'behavior', where).toLowerCase()
  const invert = booleanField(p, 'invert', where, false)
  const regex = 'regex' in pattern ? pattern.regex : escapeRegex(pattern.string)
  // Isolated keeps matches and gaps alike, so inverting changes nothing.
  if (behavior === 'isolated') return isolated(regex)
  if (behavior === 'removed' && invert)
    return { type: 'Split', pattern: { Regex: regex }, behavior: 'Removed', invert: true }
  if (behavior === 'mergedwithprevious' && !invert && 'string' in pattern && [...pattern.string].length === 1)
    return isolated(`[^${regex}]*${regex}|[^${regex}]+`)
  return unsupported(`pre-tokenizer Split with behavior "${behavior}"${invert ? ' inverted' : ''}`, where)
}

function translateMetaspace(p: JsonObject, where: string): JsonObject {
  knownKeys(p, ['type', 'replacement', 'prepend_scheme', 'split', 'add_prefix_space', 'str_rep'], where)
  const replacement = stringField(p, 'replacement', where, '▁')
  const legacy = booleanField(p, 'add_prefix_space', where, true)
  const scheme = legacy ? stringField(p, 'prepend_scheme', where, 'always') : 'never'
  if (!['always', 'first', 'never'].includes(scheme)) unsupported(`Metaspace prepend_scheme "${scheme}"`, where)
  if ((own(p, 'str_rep') ?? replacement) !== replacement) unsupported('Metaspace with another str_rep', where)
  const metaspace: JsonObject = { type: 'Metaspace', replacement, prepend_scheme: scheme }
  if (!booleanField(p, 'split', where, true)) return metaspace
  // split: a new piece begins at every replacement character.
  const c = escapeRegex(replacement)
  return sequence([metaspace, isolated(`${c}[^${c}]*|[^${c}]+`)])
}

export function translatePreTokenizer(value: JsonValue | undefined, where: string): JsonObject | null {
  if (value === null || value === undefined) return null
  const p = objectAt(value, where)
  const type = stringField(p, 'type', where)
  switch (type) {
    case 'ByteLevel':
      knownKeys(p, ['type', 'add_prefix_space', 'trim_offsets', 'use_regex'], where)
      if (booleanField(p, 'add_prefix_space', where, true))
        unsupported('pre-tokenizer ByteLevel with add_prefix_space', where)
      return booleanField(p, 'use_regex', where, true) ? sequence([isolated(GPT2_PATTERN), byteLevel]) : byteLevel
    case 'Split':
      return translateSplit(p, where)
    case 'Digits':
      // Rust's is_numeric is category N; the library's own version knows ASCII only.
      knownKeys(p, ['type', 'individual_digits'], where)
      return isolated(booleanField(p, 'individual_digits', where, false) ? '\\p{N}' : '\\p{N}+')
    case 'Punctuation':
      knownKeys(p, ['type', 'behavior'], where)
      if (own(p, 'behavior') !== 'Contiguous')
        unsupported('pre-tokenizer Punctuation is implemented for behavior "Contiguous"', where, own(p, 'behavior'))
      return { type }
    case 'Metaspace':
      return translateMetaspace(p, where)
    case 'Sequence': {
      knownKeys(p, ['type', 'pretokenizers'], where)
      const parts = arrayAt(own(p, 'pretokenizers'), `${where}.pretokenizers`)
      return sequence(
        parts.map((part, i) => translatePreTokenizer(objectAt(part, `${where}[${i}]`), `${where}[${i}]`) as JsonObject),
      )
    }
    default:
      return unsupported(`pre-tokenizer "${type}" is not implemented`, where)
  }
}

/** Ids that a post-processor puts before and after a text. */
export interface Frame {
  readonly before: readonly number[]
  readonly after: readonly number[]
}

/** Reads TemplateProcessing (for one text); ByteLevel only changes offsets. `idOf` finds the token that a name stands for. */
export function readPostProcessor(
  value: JsonValue | undefined,
  idOf: (token: string) => number | undefined,
  where: string,
): Frame {
  if (value === null || value === undefined) return { before: [], after: [] }
  const p = objectAt(value, where)
  const type = stringField(p, 'type', where)
  if (type === 'ByteLevel') return { before: [], after: [] }
  if (type === 'Sequence') {
    const frames: Frame[] = [{ before: [], after: [] }]
    for (const [i, part] of arrayAt(own(p, 'processors'), where).entries())
      frames.push(readPostProcessor(part, idOf, `${where}[${i}]`))
    // Each processor wraps what the one before it made.
    return frames.reduce((inner, outer) => ({
      before: [...outer.before, ...inner.before],
      after: [...inner.after, ...outer.after],
    }))
  }
  if (type !== 'TemplateProcessing') unsupported(`post-processor "${type}" is not implemented`, where)
  const before: number[] = []
  const after: number[] = []
  let seen = false
  for (const item of arrayAt(own(p, 'single'), `${where}.single`)) {
    const special = isJsonObject(item) ? own(item, 'SpecialToken') : undefined
    if (special === undefined) {
      const text = objectAt(own(objectAt(item, where), 'Sequence'), `${where}.single`)
      if (own(text, 'id') !== 'A' || seen) unsupported('template that does not hold the text exactly once', where)
      seen = true
      continue
    }
    const name = stringField(objectAt(special, where), 'id', where)
    const id = idOf(name)
    if (id === undefined) malformed('template names a token that is not in the vocabulary', where, { got: name })
    const declared = own(objectAt(own(p, 'special_tokens') ?? {}, where), name)
    const ids = isJsonObject(declared) ? own(declared, 'ids') : undefined
    if (Array.isArray(ids) && (ids.length !== 1 || ids[0] !== id))
      malformed('template and vocabulary disagree on the id of a token', where, { expected: id, got: ids })
    ;(seen ? after : before).push(id)
  }
  if (!seen) unsupported('template without the text', where)
  return { before, after }
}
