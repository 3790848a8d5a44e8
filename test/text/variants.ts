// Tokenizers that differ in one component each, and texts that show it. What the Rust library makes of them is in rust-golden.json.
import type { JsonObject } from '#sluice/base/json.js'
import { byteLevelJson, sentencePieceJson } from './fixtures.ts'

const bytes = (pre: JsonObject): JsonObject => ({ ...byteLevelJson(261), pre_tokenizer: pre })
const pieces = (more: JsonObject): JsonObject => ({
  ...sentencePieceJson(),
  normalizer: null,
  post_processor: null,
  ...more,
})
const byteLevel = { type: 'ByteLevel', add_prefix_space: false, trim_offsets: true, use_regex: false }
const then = (...pretokenizers: JsonObject[]): JsonObject => ({
  type: 'Sequence',
  pretokenizers: [...pretokenizers, byteLevel],
})
const split = (pattern: JsonObject, behavior: string, invert = false): JsonObject => ({
  type: 'Split',
  pattern,
  behavior,
  invert,
})
const metaspace = (prepend_scheme: string, split: boolean): JsonObject => {
  const m = { type: 'Metaspace', replacement: '▁', prepend_scheme, split }
  return pieces({ pre_tokenizer: m, decoder: m })
}

const LLAMA3 =
  "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

export const variants: Record<string, JsonObject> = {
  'byte-level': byteLevelJson(261),
  'byte-level without a pattern': bytes(byteLevel),
  'digits, one by one': bytes(then({ type: 'Digits', individual_digits: true })),
  'digits, together': bytes(then({ type: 'Digits', individual_digits: false })),
  'punctuation, contiguous': bytes(then({ type: 'Punctuation', behavior: 'Contiguous' })),
  'split, isolated': bytes(then(split({ Regex: LLAMA3 }, 'Isolated'))),
  'split, removed and inverted': bytes(then(split({ Regex: LLAMA3 }, 'Removed', true))),
  'split at a string, merged with previous': bytes(then(split({ String: ' ' }, 'MergedWithPrevious'))),
  'metaspace always, split': metaspace('always', true),
  'metaspace first, whole': metaspace('first', false),
  'metaspace first, split': metaspace('first', true),
  'metaspace never, split': metaspace('never', true),
  sentencepiece: sentencePieceJson(),
  'nfkc and replace': pieces({
    normalizer: {
      type: 'Sequence',
      normalizers: [{ type: 'NFKC' }, { type: 'Replace', pattern: { Regex: '\\s+' }, content: '▁' }],
    },
  }),
}

export const texts: string[] = [
  'the the  once   upon the time ',
  ' the\n\n\tin THE 12345 6½ ٣٤ the',
  "It's the cat's, isn't it? WE'LL see... ***",
  'the\u0085in\ufeffthe\u00a0the\u3000in',
  'ﬁne ①② e\u0301 é 日本語 🦊 ǅ',
  '',
  ' ',
  'the</s>the <s> the<|end|> in',
  'a_b-c (d) [e] {f} <g> $1.50 #h @i',
  '  the',
  'inthe in the',
]
