// The tokenizer of a model, wherever its format keeps it.
import { own } from '../base/json.ts'
import type { ModelReader } from '../format/reader.ts'
import { loadGgufTokenizer } from './gguf.ts'
import { loadHfTokenizer } from './hf.ts'
import type { Tokenizer } from './tokenizer.ts'

/** What of a reader is needed here. */
export type TokenizerHolder = Pick<ModelReader, 'config' | 'tokenizerFiles'>

/**
 * tokenizer.json and the files beside it, or the vocabulary in GGUF metadata; undefined when there is neither (text then gives
 * TOKENIZER_MISSING).
 * @throws TOKENIZER_UNSUPPORTED, FORMAT_INVALID, JSON_INVALID, FORMAT_LIMIT
 */
export async function loadTokenizer({ config, tokenizerFiles }: TokenizerHolder): Promise<Tokenizer | undefined> {
  if (tokenizerFiles.has('tokenizer.json')) return loadHfTokenizer(tokenizerFiles, config)
  const model = own(config, 'tokenizer.ggml.model')
  // Files made for tests and embeddings say that they have none.
  if (model === undefined || model === 'none' || model === 'no_vocab') return undefined
  return loadGgufTokenizer(config)
}
