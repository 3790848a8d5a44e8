// Slices of what is not plain elements: block formats, whose rows are decoded whole, and LINEAR codes, which need their channel.
import type { TensorEntry } from '../format/reader.ts'
import { PANEL_ROWS } from '../quant/scheme.ts'
import { bytesOf, HOST_BIG_ENDIAN, newArray } from './array.ts'
import { type RangeDecoder, unitDecoder } from './decode.ts'
import { gather } from './gather.ts'
import { CHUNK_BYTES, type StoredTensor } from './stored.ts'
import { type Range, runs, sliceAxes } from './strided.ts'

/** A box of rows that follow each other: decodes some rows at a time and takes the columns. */
export async function sliceBlocks(
  decoder: RangeDecoder,
  box: readonly Range[],
  out: Float32Array,
  signal?: AbortSignal,
): Promise<void> {
  const { cols, shape } = decoder.stored.entry
  const [left, right] = box.at(-1) ?? [0, 1]
  const perChunk = Math.max(PANEL_ROWS, Math.floor(CHUNK_BYTES / Math.max(1, cols * 4) / PANEL_ROWS) * PANEL_ROWS)
  let at = 0
  for (const [first, end] of rowRuns(shape, box))
    for (let row = first; row < end; ) {
      // Chunks end on whole panels, so that none is decoded twice.
      const next = Math.min(end, Math.floor(row / PANEL_ROWS) * PANEL_ROWS + perChunk)
      const values = new Float32Array((next - row) * cols)
      await decoder.range(row * cols, next * cols, values, signal)
      for (let r = 0; r < next - row; r++, at += right - left)
        out.set(values.subarray(r * cols + left, r * cols + right), at)
      row = next
    }
}

/** LINEAR codes that do not follow each other: gathered, then scaled by the channel of each. Takes the slice's codes on top of its values. */
export async function gatherLinear(
  stored: StoredTensor,
  box: readonly Range[],
  out: Float32Array,
  signal?: AbortSignal,
): Promise<void> {
  const { encoding, linear, name } = stored.entry
  if (encoding.kind !== 'plain' || linear === undefined) return
  const { start, axes } = sliceAxes(stored.entry, box)
  const codes = newArray(encoding.dtype, out.length, name)
  await gather(stored, start, axes, codes, 0, false, signal)
  const channels = linear.axis === undefined ? undefined : box[linear.axis]!
  const sliced: TensorEntry = {
    ...stored.entry,
    shape: box.map(([a, b]) => b - a),
    encoding: { kind: 'plain', dtype: encoding.dtype, bigEndian: HOST_BIG_ENDIAN },
    linear: {
      ...linear,
      scales: channels === undefined ? linear.scales : linear.scales.slice(...channels),
      zeroPoints: channels === undefined ? linear.zeroPoints : linear.zeroPoints.slice(...channels),
    },
  }
  unitDecoder(sliced, stored.layout)(bytesOf(codes), 0, out.length, out)
}

/** Consecutive rows of the matrix view that a box covers, in order. */
function* rowRuns(shape: readonly number[], box: readonly Range[]): Generator<[number, number]> {
  const axes = []
  let step = 1
  let start = 0
  for (let k = shape.length - 2; k >= 0; k--) {
    const [a, b] = box[k]!
    start += a * step
    axes.push({ count: b - a, stride: step, step })
    step *= shape[k]!
  }
  for (const batch of runs(start, axes)) for (const run of batch) yield [run.from, run.from + run.length]
}
