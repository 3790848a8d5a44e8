// One tensor on its way: rows in, encoded rows out, a few MiB at a time, the error measured on the way.
import { ConversionError, SluiceError, throwIfAborted } from '../base/errors.ts'
import { codecOf, encodedBytes } from '../quant/codec.ts'
import { type QuantError, QuantErrorMeter } from '../quant/error.ts'
import { toExactForm } from '../quant/ggml-form.ts'
import { type Encoding, PANEL_ROWS } from '../quant/scheme.ts'
import type { LazyTensor } from '../tensor/lazy.ts'
import type { ConversionStep } from './plan.ts'

/** float32 bytes worked on at a time. */
const CHUNK_BYTES = 4 * 1024 * 1024

/** Rows a chunk: whole panels. */
function rowsAtATime(cols: number): number {
  return Math.max(PANEL_ROWS, Math.floor(CHUNK_BYTES / Math.max(1, cols * 4) / PANEL_ROWS) * PANEL_ROWS)
}

/** Ranges of rows of the source that make up a step's tensor. */
function* ranges(step: ConversionStep): Generator<[number, number]> {
  const end = step.target.rows
  const at = rowsAtATime(step.target.cols)
  for (let r = 0; r < end; r += at) yield [r, Math.min(end, r + at)]
}

/** Largest power of two the scales need (docs/FORMAT.md, "exponent"): one look over the tensor. */
export async function measureAbsmax(step: ConversionStep, tensor: LazyTensor, signal?: AbortSignal): Promise<number> {
  let max = 0
  for (const [a, b] of ranges(step)) {
    throwIfAborted(signal)
    const values = await tensor.rows(a, b)
    for (let i = 0; i < values.length; i++) {
      const v = Math.abs(values[i]!)
      if (v > max) max = v
      else if (Number.isNaN(v)) throw notFinite(step, a, i)
    }
    if (max === Number.POSITIVE_INFINITY) throw notFinite(step, a, values.indexOf(max))
  }
  return max
}

function notFinite(step: ConversionStep, row: number, i: number): ConversionError {
  return new ConversionError('QUANT_RANGE', {
    what: 'value cannot be quantized',
    where: `tensor ${step.source.name}, element ${row * step.target.cols + i}`,
    expected: 'a finite number',
    got: 'NaN or infinity',
    remedy: 'The checkpoint is damaged, or this tensor must be kept unquantized.',
  })
}

/** Stored bytes of the step's tensor. `report` is called once at the end of an encoding that rounds. */
export async function* transform(
  step: ConversionStep,
  encoding: Encoding,
  tensor: LazyTensor,
  report: (r: QuantError) => void,
  signal?: AbortSignal,
): AsyncGenerator<Uint8Array> {
  const { cols } = step.target
  if (step.how !== 'encode') {
    for (const [a, b] of ranges(step)) {
      throwIfAborted(signal)
      const stored = await tensor.rowBytes(a, b)
      yield step.how === 'copy' ? stored : relayout(step, encoding, stored, b - a)
    }
    return
  }
  const codec = codecOf(encoding)
  if (codec.encode === undefined)
    throw new ConversionError('QUANT_UNSUPPORTED', {
      what: 'this encoding can be read but not written',
      where: step.target.name,
      got: JSON.stringify(encoding),
    })
  const meter = new QuantErrorMeter()
  for (const [a, b] of ranges(step)) {
    throwIfAborted(signal)
    const values = await tensor.rows(a, b)
    const out = new Uint8Array(encodedBytes(encoding, b - a, cols))
    codec.encode(values, b - a, cols, out)
    const decoded = new Float32Array(values.length)
    codec.decode(out, b - a, cols, decoded)
    meter.push(values, decoded)
    yield out
  }
  report(meter.result())
}

function relayout(step: ConversionStep, encoding: Encoding, stored: Uint8Array, rows: number): Uint8Array {
  const source = step.source.encoding
  if (source.kind !== 'ggml')
    throw new SluiceError('INTERNAL', { what: 'only ggml blocks are laid out anew', got: source.kind })
  const out = new Uint8Array(encodedBytes(encoding, rows, step.target.cols))
  toExactForm(source.type, stored, rows, step.target.cols, out, source.bigEndian)
  return out
}
