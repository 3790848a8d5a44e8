// Copies chosen elements of a plain tensor into a result: plan the reads of some thousand runs, read, scatter, go on.
import { DTYPE_BYTES } from '../base/dtype.ts'
import { ModelFormatError } from '../base/errors.ts'
import { codecOf } from '../quant/codec.ts'
import { asArray, bytesOf, HOST_BIG_ENDIAN, swapBytes, swapSize, type TensorArray } from './array.ts'
import { mergeReads, planUnits, type ReadRange } from './plan.ts'
import { CHUNK_BYTES, type StoredTensor } from './stored.ts'
import { type Axis, type Run, runs } from './strided.ts'

interface RunRange extends ReadRange {
  readonly run: Run
  /** Elements of the run before this range. */
  readonly skip: number
}

/** Takes `count` elements in `bytes`: they go to `to`, `to` + `step` … of the result. */
type Scatter = (bytes: Uint8Array, count: number, to: number, step: number) => void

/**
 * Elements of the slice into `out`: as the tensor's own type, or as float32 when `out` is to be that. Reads at most 1 MiB at a time.
 * Throws what the source throws, CHECKSUM_MISMATCH, QUANT_UNSUPPORTED.
 */
export async function gather(
  stored: StoredTensor,
  start: number,
  axes: readonly Axis[],
  out: TensorArray,
  to: number,
  asFloat: boolean,
  signal?: AbortSignal,
): Promise<void> {
  const scatter = asFloat ? floatScatter(stored, out as Float32Array) : rawScatter(stored, out)
  const { unitBytes } = stored.layout
  for (const batch of runs(start, axes, to)) {
    const first = batch[0]!
    const last = batch.at(-1)!
    await stored.check(first.from, last.from + last.length, signal)
    for (const read of mergeReads(
      batch.flatMap((run) => runRanges(stored, run)),
      { maxReadBytes: CHUNK_BYTES },
    )) {
      const bytes = await stored.source(read.source).read(read.offset, read.length, signal && { signal })
      for (const { range, from, at, length } of read.parts) {
        const { run, skip } = range
        const target = run.to + (skip + from / unitBytes) * run.step
        scatter(bytes.subarray(at, at + length), length / unitBytes, target, run.step)
      }
    }
  }
}

function runRanges(stored: StoredTensor, run: Run): RunRange[] {
  let skip = 0
  return planUnits(stored.layout, run.from, run.from + run.length).map((range) => {
    const here = { ...range, run, skip }
    skip += range.length / stored.layout.unitBytes
    return here
  })
}

function plainEncoding(stored: StoredTensor) {
  const e = stored.entry.encoding
  if (e.kind !== 'plain')
    throw new ModelFormatError('FORMAT_INVALID', {
      what: 'only plain elements can lie apart',
      where: `tensor ${stored.entry.name}`,
      got: e.kind,
    })
  return e
}

function floatScatter(stored: StoredTensor, out: Float32Array): Scatter {
  const codec = codecOf(plainEncoding(stored))
  let values = new Float32Array(0)
  return (bytes, count, to, step) => {
    if (step === 1) return codec.decode(bytes, 1, count, out.subarray(to, to + count))
    if (values.length < count) values = new Float32Array(count)
    codec.decode(bytes, 1, count, values.subarray(0, count))
    for (let i = 0; i < count; i++) out[to + i * step] = values[i]!
  }
}

function rawScatter(stored: StoredTensor, out: TensorArray): Scatter {
  const { dtype, bigEndian } = plainEncoding(stored)
  const size = DTYPE_BYTES[dtype]
  const target = bytesOf(out)
  const swap = (bigEndian === true) !== HOST_BIG_ENDIAN ? swapSize(dtype) : 1
  return (bytes, count, to, step) => {
    if (step === 1) {
      target.set(bytes, to * size)
      swapBytes(target.subarray(to * size, (to + count) * size), swap)
      return
    }
    const own = bytes.slice()
    swapBytes(own, swap)
    for (let i = 0; i < count; i++) target.set(own.subarray(i * size, (i + 1) * size), (to + i * step) * size)
  }
}

/** Elements of whole plain tensors are read into the result itself: this puts their bytes in order. */
export function toHostOrder(stored: StoredTensor, out: TensorArray): void {
  const { dtype, bigEndian } = plainEncoding(stored)
  if ((bigEndian === true) !== HOST_BIG_ENDIAN) swapBytes(bytesOf(out), swapSize(dtype))
}

/** A view of the stored bytes as elements, where source, byte order and address allow; else undefined. */
export function viewElements(stored: StoredTensor, from: number, to: number): TensorArray | undefined {
  const e = stored.entry.encoding
  const { layout } = stored
  if (e.kind !== 'plain' || layout.segments.length !== 1 || to <= from) return undefined
  if (swapSize(e.dtype) > 1 && (e.bigEndian === true) !== HOST_BIG_ENDIAN) return undefined
  const [range] = planUnits(layout, from, to)
  if (range === undefined) return undefined
  const bytes = stored.source(range.source).view?.(range.offset, range.length)
  return bytes === undefined ? undefined : asArray(e.dtype, bytes, to - from)
}
