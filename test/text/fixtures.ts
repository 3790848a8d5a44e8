// Small tokenizers written out here: tokenizer.json in the two layouts that language models use.
import type { JsonObject } from '#sluice/base/json.js'

const PIECES = ['▁', 't', 'h', 'e', 'a', 's', 'o', 'n', 'u', 'p', 'i', 'm', 'c', '.', '<', '>', '/']
const MERGES = [
  't h',
  'th e',
  '▁ the',
  'o n',
  'on c',
  'onc e',
  '▁ a',
  '▁ t',
  'i m',
  'im e',
  '▁t ime',
  'u p',
  '▁ up',
  '▁up on',
  '▁ ▁',
]

const special = (content: string, id: number): JsonObject => ({
  id,
  content,
  single_word: false,
  lstrip: false,
  rstrip: false,
  normalized: false,
  special: true,
})

/** Llama 2's layout: SentencePiece pieces, byte fallback, "▁" before the text, BOS in front. */
export function sentencePieceJson(): JsonObject {
  const vocab: JsonObject = { '<unk>': 0, '<s>': 1, '</s>': 2 }
  let id = 3
  for (let byte = 0; byte < 256; byte++) vocab[`<0x${byte.toString(16).toUpperCase().padStart(2, '0')}>`] = id++
  for (const merge of MERGES) vocab[merge.replace(' ', '')] = id++
  for (const piece of PIECES) vocab[piece] ??= id++
  return {
    version: '1.0',
    truncation: null,
    padding: null,
    added_tokens: [special('<unk>', 0), special('<s>', 1), special('</s>', 2)],
    normalizer: {
      type: 'Sequence',
      normalizers: [
        { type: 'Prepend', prepend: '▁' },
        { type: 'Replace', pattern: { String: ' ' }, content: '▁' },
      ],
    },
    pre_tokenizer: null,
    post_processor: {
      type: 'TemplateProcessing',
      single: [{ SpecialToken: { id: '<s>', type_id: 0 } }, { Sequence: { id: 'A', type_id: 0 } }],
      pair: [{ Sequence: { id: 'A', type_id: 0 } }, { Sequence: { id: 'B', type_id: 1 } }],
      special_tokens: { '<s>': { id: '<s>', ids: [1], tokens: ['<s>'] } },
    },
    decoder: {
      type: 'Sequence',
      decoders: [
        { type: 'Replace', pattern: { String: '▁' }, content: ' ' },
        { type: 'ByteFallback' },
        { type: 'Fuse' },
        { type: 'Strip', content: ' ', start: 1, stop: 0 },
      ],
    },
    model: {
      type: 'BPE',
      dropout: null,
      unk_token: '<unk>',
      continuing_subword_prefix: null,
      end_of_word_suffix: null,
      fuse_unk: true,
      byte_fallback: true,
      ignore_merges: false,
      vocab,
      merges: MERGES,
    },
  }
}

/** GPT-2's layout: bytes written as characters, no BOS. `end` is the id of the end token: 261 follows the vocabulary without a gap. */
export function byteLevelJson(end = 300): JsonObject {
  const vocab: JsonObject = {}
  let extra = 256
  for (let byte = 0; byte < 256; byte++) {
    const printable = (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae
    vocab[String.fromCharCode(printable ? byte : extra++)] = byte
  }
  const merges = ['h e', 'Ġ t', 'Ġt he', 'i n', 'Ã ©']
  for (const [i, merge] of merges.entries()) vocab[merge.replace(' ', '')] = 256 + i
  return {
    version: '1.0',
    added_tokens: [special('<|end|>', end)],
    normalizer: null,
    pre_tokenizer: { type: 'ByteLevel', add_prefix_space: false, trim_offsets: true, use_regex: true },
    post_processor: { type: 'ByteLevel', add_prefix_space: true, trim_offsets: true, use_regex: true },
    decoder: { type: 'ByteLevel', add_prefix_space: true, trim_offsets: true, use_regex: true },
    model: { type: 'BPE', unk_token: null, vocab, merges },
  }
}

/** Files as a reader offers them. */
export function files(contents: Record<string, string | JsonObject>): Map<string, () => Promise<Uint8Array>> {
  return new Map(
    Object.entries(contents).map(([name, value]) => {
      const bytes = new TextEncoder().encode(typeof value === 'string' ? value : JSON.stringify(value))
      return [name, async () => bytes]
    }),
  )
}
