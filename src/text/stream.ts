// Bytes of tokens in, text out, never cutting a UTF-8 character.
import type { TextStream } from './tokenizer.ts'

/** Gives the bytes of an id; empty for ids that have no text. */
export type BytesOf = (id: number) => Uint8Array

/** Incremental decoding. All pushes and the flush joined are the decoding of all bytes joined: it is the same code. */
export class ByteTextStream implements TextStream {
  readonly #bytesOf: BytesOf
  readonly #decoder = new TextDecoder('utf-8', { ignoreBOM: true })
  #spaces: number

  /** `spaces`: how many leading spaces of the whole text are not part of it. */
  constructor(bytesOf: BytesOf, spaces: number) {
    this.#bytesOf = bytesOf
    this.#spaces = spaces
  }

  push(id: number): string {
    return this.#strip(this.#decoder.decode(this.#bytesOf(id), { stream: true }))
  }

  flush(): string {
    return this.#strip(this.#decoder.decode())
  }

  #strip(text: string): string {
    if (this.#spaces === 0 || text === '') return text
    let cut = 0
    while (cut < text.length && cut < this.#spaces && text[cut] === ' ') cut++
    this.#spaces = cut === text.length ? this.#spaces - cut : 0
    return text.slice(cut)
  }
}
