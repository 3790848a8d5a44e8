// The checks every source makes before it touches a byte.
import { SourceError, ValidationError } from '../base/errors.ts'

/** Throws SOURCE_RANGE unless [offset, offset + length) lies inside `size` bytes. Safe for any input, NaN and 2^60 included. */
export function checkRange(id: string, size: number, offset: number, length: number): void {
  if (Number.isSafeInteger(offset) && Number.isSafeInteger(length) && offset >= 0 && length >= 0)
    if (offset <= size && length <= size - offset) return
  throw new SourceError('SOURCE_RANGE', {
    what: 'read reaches past the end of its source',
    where: id,
    expected: `a range inside ${size} bytes`,
    got: `${length} bytes at ${offset}`,
    details: { source: id, size, offset, length },
  })
}

/**
 * Where `length` bytes go: the first `length` bytes of `into`, or a new buffer.
 * Throws REQUEST_INVALID when `into` is too short, SOURCE_RANGE when no buffer of that length can be made.
 */
export function destination(id: string, length: number, into: Uint8Array | undefined): Uint8Array {
  if (into === undefined) {
    try {
      return new Uint8Array(length)
    } catch (cause) {
      throw new SourceError('SOURCE_RANGE', {
        what: 'no buffer can hold one read of that length',
        where: id,
        got: `${length} bytes`,
        remedy: 'Read in smaller parts.',
        details: { source: id, length },
        cause,
      })
    }
  }
  if (into.byteLength < length)
    throw new ValidationError('REQUEST_INVALID', {
      what: 'the buffer to read into is too short',
      where: id,
      expected: `${length} bytes`,
      got: `${into.byteLength} bytes`,
    })
  return into.byteLength === length ? into : into.subarray(0, length)
}

/** The error of a read after close(). */
export function closedError(id: string): SourceError {
  return new SourceError('SOURCE_CLOSED', { what: 'read after close', where: id, details: { source: id } })
}
