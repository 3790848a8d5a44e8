// One tensor on its way: rows in, encoded rows out, a few MiB at a time, the error measured on the way.

import { DTYPE_BYTES } from '../base/dtype.ts'
import { ConversionError, isSluiceError, throwIfAborted } from '../base/errors.ts'
import { codecOf, encodedBytes } from '../quant/codec.ts'
import { type QuantError, QuantErrorMeter } from '../quant/error.ts'
import { repackQ4_0ToPanel, repackQ8_0ToPanel } from '../quant/ggml-repack.ts'
import type { Encoding } from '../quant/scheme.ts'
import { swapBytes } from '../tensor/array.ts'
import { type Buffers, rowRanges } from './buffers.ts'
import type { ConversionStep } from './plan.ts'
import type { RowInput } from './rows.ts'

/** Largest magnitude of a tensor: what the power of two of its scales is chosen from (docs/FORMAT.md, "exponent"). Throws QUANT_RANGE. */
export async function measureAbsmax(step: ConversionStep, input: RowInput, signal?: AbortSignal): Promise<number> {
  const { rows, cols } = step.target
  let max = 0
  for (const [a, b] of rowRanges(rows, cols)) {
    throwIfAborted(signal)
    const m = finiteAbsmax(step, a, await input.rows(a, b))
    if (m > max) max = m
  }
  return max
}

/** Largest magnitude of rows that begin at `row`. Throws QUANT_RANGE for NaN and infinity. */
function finiteAbsmax(step: ConversionStep, row: number, values: Float32Array): number {
  let max = 0
  let sum = 0
  for (let i = 0; i < values.length; i++) {
    const v = values[i]!
    // 0·v is NaN for NaN and infinity: one test at the end instead of one an element.
    sum += 0 * v
    const m = Math.abs(v)
    if (m > max) max = m
  }
  if (sum === 0) return max
  const at = values.findIndex((v) => !Number.isFinite(v))
  throw outOfRange(step, row * step.target.cols + at, values[at]!, 'a finite number')
}

function outOfRange(
  step: ConversionStep,
  element: number,
  got: number,
  expected: string,
  cause?: unknown,
): ConversionError {
  return new ConversionError('QUANT_RANGE', {
    what: 'value cannot be quantized',
    where: `tensor ${step.source.name}, element ${element}`,
    expected,
    got,
    remedy: 'The checkpoint is damaged, or this tensor must be kept unquantized.',
    details: { tensor: step.source.name, element, value: got },
    cause,
  })
}

/**
 * Stored bytes of the step's tensor; a chunk is valid until the next one is asked for. `report` is called at the end of an
 * encoding through float32. Throws QUANT_RANGE naming tensor and element, QUANT_UNSUPPORTED, ABORTED, what reading throws.
 */
export async function* transform(
  step: ConversionStep,
  encoding: Encoding,
  input: RowInput,
  buffers: Buffers,
  report: (r: QuantError) => void,
  signal?: AbortSignal,
): AsyncGenerator<Uint8Array> {
  if (step.how === 'encode') yield* encode(step, encoding, input, buffers, report, signal)
  else
    for (const [a, b] of input.storedRanges()) {
      throwIfAborted(signal)
      const stored = await input.stored(a, b)
      yield step.how === 'copy' ? stored : relayout(step, stored, b - a)
    }
}

async function* encode(
  step: ConversionStep,
  encoding: Encoding,
  input: RowInput,
  buffers: Buffers,
  report: (r: QuantError) => void,
  signal: AbortSignal | undefined,
): AsyncGenerator<Uint8Array> {
  const { rows, cols } = step.target
  const codec = codecOf(encoding)
  if (codec.encode === undefined)
    throw new ConversionError('QUANT_UNSUPPORTED', {
      what: 'this encoding can be read but not written',
      where: step.target.name,
      got: JSON.stringify(encoding),
    })
  const meter = new QuantErrorMeter()
  for (const [a, b] of rowRanges(rows, cols)) {
    throwIfAborted(signal)
    const values = await input.rows(a, b)
    // Panels were looked through when their exponent was chosen.
    if (encoding.kind !== 'panel') finiteAbsmax(step, a, values)
    const out = buffers.encoded(encodedBytes(encoding, b - a, cols))
    try {
      codec.encode(values, b - a, cols, out)
    } catch (cause) {
      throw isSluiceError(cause, 'QUANT_RANGE') ? locate(step, a, cause) : cause
    }
    const decoded = buffers.decoded(values.length)
    codec.decode(out, b - a, cols, decoded)
    meter.push(values, decoded)
    yield out
  }
  report(meter.result())
}

/** A codec knows rows and columns of what it was given; people know tensors. */
function locate(step: ConversionStep, firstRow: number, cause: ConversionError): ConversionError {
  const { row = 0, column = 0, value, scale } = cause.details as Record<string, number | undefined>
  const element = (firstRow + row) * step.target.cols + column
  return outOfRange(step, element, value ?? scale ?? Number.NaN, 'a number the encoding can hold', cause)
}

function relayout(step: ConversionStep, stored: Uint8Array, rows: number): Uint8Array {
  const { encoding, cols } = step.target
  const from = step.source.encoding
  if (encoding.kind === 'plain') {
    swapBytes(stored, DTYPE_BYTES[encoding.dtype])
    return stored
  }
  const out = new Uint8Array(encodedBytes(encoding, rows, cols))
  const bigEndian = from.kind === 'ggml' && from.bigEndian === true
  if (encoding.kind === 'panel' && encoding.scheme === 'int4') repackQ4_0ToPanel(stored, rows, cols, out, bigEndian)
  else repackQ8_0ToPanel(stored, rows, cols, out, bigEndian)
  return out
}
