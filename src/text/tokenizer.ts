// The contract of tokenizers.

export interface EncodeOptions {
  /** Add BOS/EOS as the tokenizer's post-processor says (default true). Never adds a second BOS. */
  addSpecial?: boolean
  /** Read "<s>" in the text as the special token (default true, as Hugging Face does). */
  parseSpecial?: boolean
}

/** Turns a stream of ids into a stream of text without ever cutting a UTF-8 character. */
export interface TextStream {
  /** Text that became certain with this id ('' while a character is incomplete). */
  push(id: number): string
  /** What is left at the end (replacement characters for an incomplete one). */
  flush(): string
}

/** Text to token ids and back. */
export interface Tokenizer {
  readonly vocabularySize: number
  readonly bosId?: number
  /** Ids that end a text. */
  readonly eosIds: readonly number[]
  /** Jinja source, where the model has a chat template. */
  readonly chatTemplate?: string
  /** Ids of a text. The same text gives the same ids. */
  encode(text: string, options?: EncodeOptions): number[]
  /**
   * UTF-8 with U+FFFD for what is not, without SentencePiece's leading space. Special tokens are left out (`skipSpecial`, default true).
   * Nothing is "cleaned up": a space before a full stop stays. Throws REQUEST_INVALID for an id outside the vocabulary.
   */
  decode(ids: readonly number[], options?: { skipSpecial?: boolean }): string
  /**
   * Continues after `prompt` (ids): the text is what the whole decodes to, less the prompt's. A character that the prompt leaves
   * incomplete belongs to the continuation. Special tokens have no text.
   */
  stream(prompt?: readonly number[]): TextStream
  /** The token as the vocabulary spells it ('▁the', '<s>'); undefined for an id it does not have. */
  idToToken(id: number): string | undefined
}
