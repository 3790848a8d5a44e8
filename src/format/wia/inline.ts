// Constants that stand in the index as base64 (FORMAT §4): at most 1 MiB each, served from memory like any other tensor.
import type { JsonValue } from '../../base/json.ts'
import { MAX_INLINE_BYTES } from './layout.ts'
import { invalid, tooMany } from './refuse.ts'

const BASE64 = /^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$/

/** Bytes of an `inline` field, which must be `length`. Throws FORMAT_INVALID, FORMAT_LIMIT. */
export function decodeInline(value: JsonValue | undefined, length: number, where: string): Uint8Array {
  if (length > MAX_INLINE_BYTES) tooMany('an inline tensor is too large', where, MAX_INLINE_BYTES, length)
  if (typeof value !== 'string') invalid("field 'inline' is not text", where)
  if (value.length !== Math.ceil(length / 3) * 4)
    invalid('inline data has another length than dtype, shape and encoding take', where, {
      expected: `${length} bytes`,
      got: `${value.length} base64 characters`,
    })
  const bytes = Buffer.from(value, 'base64')
  // Node skips what is not base64; round trip and pattern together accept one spelling only.
  if (!BASE64.test(value) || bytes.length !== length || bytes.toString('base64') !== value)
    invalid('inline data is not base64 of the tensor', where)
  return new Uint8Array(bytes.buffer, bytes.byteOffset, bytes.length)
}

export function encodeInline(bytes: Uint8Array): string {
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length).toString('base64')
}
