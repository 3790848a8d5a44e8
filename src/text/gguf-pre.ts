// Pre-tokenizers by the name a GGUF file gives in tokenizer.ggml.pre. The name is all the file says; the patterns are those of the
// models' own tokenizer.json, as llama.cpp lists them (ggml-org/llama.cpp, src/llama-vocab.cpp). Each pattern splits the pieces that the
// one before it left, keeping matches and gaps.
import { GPT2_PATTERN } from './components.ts'

export interface PreTokenizer {
  readonly patterns: readonly string[]
  /** A piece that is a token as a whole is taken without looking at merges. */
  readonly ignoreMerges?: boolean
  /** Begin a text with BOS where the file does not say (tokenizer.ggml.add_bos_token). */
  readonly addBos?: boolean
}

const CONTRACTION = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
const TAIL = '\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+'
/** The family begun by cl100k: they differ in how digits are grouped. */
const cl100k = (digits: string): string =>
  `${CONTRACTION}|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|${digits}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|${TAIL}`

const UPPER = '[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]'
const LOWER = '[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]'
/** The family begun by o200k: words split where lower case turns to upper case. */
const o200k = (digits: string, contraction: string): string =>
  `[^\\r\\n\\p{L}\\p{N}]?${UPPER}*${LOWER}+${contraction}|[^\\r\\n\\p{L}\\p{N}]?${UPPER}+${LOWER}*${contraction}` +
  `|${digits}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|${TAIL}`

const gpt2: PreTokenizer = { patterns: [GPT2_PATTERN] }
const digitsThenGpt2: PreTokenizer = { patterns: ['\\p{N}', GPT2_PATTERN] }
const llama3: PreTokenizer = { patterns: [cl100k('\\p{N}{1,3}')], ignoreMerges: true, addBos: true }
const qwen2: PreTokenizer = { patterns: [cl100k('\\p{N}')] }
const gpt4o: PreTokenizer = { patterns: [o200k('\\p{N}{1,3}', `${CONTRACTION}?`)] }
const deepseek3: PreTokenizer = {
  patterns: [
    '\\p{N}{1,3}',
    '[一-龥\\u3040-ゟ゠-ヿ]+',
    '[!"#$%&\'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+' +
      `| ?[\\p{P}\\p{S}]+[\\r\\n]*|${TAIL}`,
  ],
}

const qwen35: PreTokenizer = {
  patterns: [
    `${CONTRACTION}|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|${TAIL}`,
  ],
}
const deepseekCoder: PreTokenizer = {
  patterns: ['[\\r\\n]', '\\s?\\p{L}+', '\\s?\\p{P}+', '[一-龥ࠀ-一가-\\uD7FF]+', '\\p{N}'],
}

const TABLE: readonly (readonly [names: string, pre: PreTokenizer])[] = [
  // What llama.cpp falls back to for files that name no pre-tokenizer.
  ['default', { patterns: ['[\\p{P}\\$\\+<=>\\^~\\|]+', GPT2_PATTERN, '\\p{N}+', '[0-9][0-9][0-9]'] }],
  ['gpt-2 phi-2 mpt olmo jais trillion granite-docling exaone4 gigachat mellum', gpt2],
  ['smollm starcoder refact command-r codeshell exaone minerva-7b mellum2', digitsThenGpt2],
  ['llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral lfm2', llama3],
  ['dbrx smaug-bpe glm4 chatglm-bpe', { patterns: llama3.patterns }],
  ['qwen2 deepseek-r1-qwen stablelm2 megrez hunyuan grok-2 solar-open', qwen2],
  ['gpt-4o llama4 kanana2 minimax-m2', gpt4o],
  ['tekken', { patterns: [o200k('\\p{N}', '')], ignoreMerges: true, addBos: true }],
  ['qwen35', qwen35],
  ['deepseek-coder', deepseekCoder],
  ['deepseek-v3 hunyuan-dense', deepseek3],
  ['falcon', { patterns: ['[\\p{P}\\$\\+<=>\\^~\\|`]+', GPT2_PATTERN, '[0-9][0-9][0-9]'] }],
]

/** Names that are not here are refused: a wrong split gives wrong ids without any sign of it. */
export const PRE_TOKENIZERS: ReadonlyMap<string, PreTokenizer> = new Map(
  TABLE.flatMap(([names, pre]) => names.split(' ').map((name) => [name, pre] as const)),
)
