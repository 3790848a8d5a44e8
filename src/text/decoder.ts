// From token to bytes. A text is the bytes of its tokens, decoded as UTF-8 with U+FFFD for what is not, less the leading space that
// SentencePiece put there. Whole texts and streams both go through here, so they cannot differ.
import type { JsonValue } from '../base/json.ts'
import { own } from '../base/json.ts'
import { arrayAt, objectAt, stringField, unsupported } from './fields.ts'

export interface DecoderSpec {
  /** 'byte-level': each character of a token stands for one byte (GPT-2); 'plain': tokens are text. */
  readonly kind: 'byte-level' | 'plain'
  /** Replacements inside a token: "▁" → " ". */
  readonly replace: readonly (readonly [string, string])[]
  /** "<0x0A>" is the byte 10. */
  readonly byteFallback: boolean
  /** Up to this many spaces are cut from the start of a text. */
  readonly stripSpaces: number
}

const plain = (part: Partial<DecoderSpec>): DecoderSpec => ({
  kind: 'plain',
  replace: [],
  byteFallback: false,
  stripSpaces: 0,
  ...part,
})

export function readDecoder(value: JsonValue | undefined, where: string): DecoderSpec {
  if (value === null || value === undefined) unsupported('tokenizer without a decoder', where)
  const d = objectAt(value, where)
  const type = stringField(d, 'type', where)
  if (type === 'ByteLevel') return { kind: 'byte-level', replace: [], byteFallback: false, stripSpaces: 0 }
  if (type === 'Metaspace') {
    const never = own(d, 'prepend_scheme') === 'never' || own(d, 'add_prefix_space') === false
    return plain({ replace: [[stringField(d, 'replacement', where, '▁'), ' ']], stripSpaces: never ? 0 : 1 })
  }
  if (type !== 'Sequence') unsupported(`decoder "${type}" is not implemented`, where)
  const parts = arrayAt(own(d, 'decoders'), `${where}.decoders`)
  if (parts.length === 1) {
    const only = objectAt(parts[0], where)
    if (own(only, 'type') === 'ByteLevel' || own(only, 'type') === 'Metaspace') return readDecoder(only, where)
  }
  return readSequence(parts, where)
}

/** Replace… ByteFallback Fuse Strip, in this order: as written for models that come from SentencePiece. */
function readSequence(parts: readonly JsonValue[], where: string): DecoderSpec {
  const order = ['Replace', 'ByteFallback', 'Fuse', 'Strip']
  const replace: [string, string][] = []
  let byteFallback = false
  let stripSpaces = 0
  let stage = 0
  for (const [i, part] of parts.entries()) {
    const at = `${where}[${i}]`
    const d = objectAt(part, at)
    const type = stringField(d, 'type', at)
    const rank = order.indexOf(type)
    if (rank < 0) unsupported(`decoder "${type}" is not implemented`, at)
    if (rank < stage) unsupported(`decoder "${type}" in this place`, at)
    if (type === 'Replace') {
      const from = own(objectAt(own(d, 'pattern'), at), 'String')
      if (typeof from !== 'string' || from === '') unsupported('decoder Replace by a regular expression', at)
      replace.push([from, stringField(d, 'content', at)])
    } else if (type === 'ByteFallback') byteFallback = true
    else if (type === 'Strip') {
      const start = own(d, 'start') ?? 0
      const stop = own(d, 'stop') ?? 0
      if (stage !== 2 || own(d, 'content') !== ' ' || stop !== 0 || typeof start !== 'number' || start < 0)
        unsupported('decoder Strip other than of leading spaces after Fuse', at)
      stripSpaces = start
    }
    stage = rank
  }
  return plain({ replace, byteFallback, stripSpaces })
}

/** GPT-2's alphabet: printable Latin-1 characters stand for themselves, the other bytes for U+0100 onwards (openai/gpt-2, encoder.py). */
export const BYTE_OF_CHAR: ReadonlyMap<string, number> = (() => {
  const map = new Map<string, number>()
  let extra = 256
  for (let byte = 0; byte < 256; byte++) {
    const printable = (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae
    map.set(String.fromCharCode(printable ? byte : extra++), byte)
  }
  return map
})()

const encoder = new TextEncoder()
const BYTE_TOKEN = /^<0x([0-9A-Fa-f]{2})>$/

/** Bytes of a token. `literal`: an added token, whose characters are never byte codes. */
export function tokenBytes(token: string, literal: boolean, spec: DecoderSpec): Uint8Array {
  if (spec.kind === 'byte-level') {
    if (literal) return encoder.encode(token)
    const bytes: number[] = []
    for (const char of token) {
      const byte = BYTE_OF_CHAR.get(char)
      // As the reference does: a token with a foreign character is text as it stands.
      if (byte === undefined) return encoder.encode(token)
      bytes.push(byte)
    }
    return Uint8Array.from(bytes)
  }
  let text = token
  for (const [from, to] of spec.replace) text = text.split(from).join(to)
  const byte = spec.byteFallback ? BYTE_TOKEN.exec(text) : null
  return byte === null ? encoder.encode(text) : Uint8Array.of(Number.parseInt(byte[1] as string, 16))
}
