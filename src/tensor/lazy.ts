// A tensor whose bytes are read when they are asked for, and only those. No method needs more memory than what it returns plus a chunk.
//
//   const tensors = openTensors(reader)
//   const rows = await tensors.get('model.embed_tokens.weight').rows(10, 12)      // Float32Array [2, cols]
import type { DType } from '../base/dtype.ts'
import { DTYPE_BYTES } from '../base/dtype.ts'
import { ModelFormatError, ValidationError } from '../base/errors.ts'
import { elementCount } from '../base/shape.ts'
import type { ModelReader, TensorEntry } from '../format/reader.ts'
import { refuseOpaque } from '../quant/codec.ts'
import { PANEL_ROWS } from '../quant/scheme.ts'
import { bytesOf, newArray, type TensorArray } from './array.ts'
import { RangeDecoder } from './decode.ts'
import { gather, toHostOrder, viewElements } from './gather.ts'
import { isStrided, mergeReads, planUnits } from './plan.ts'
import { gatherLinear, sliceBlocks } from './slice.ts'
import { CHUNK_BYTES, StoredTensor } from './stored.ts'
import { checkRanges, type Range, rowSlices, sliceAxes, stridesOf } from './strided.ts'

export interface TensorOptions {
  /** `lazy` (default): pages that have a SHA-256 are checked when first touched. `off`: never. */
  verify?: 'lazy' | 'off'
}

export interface ReadTensorOptions {
  signal?: AbortSignal
}

/** `dtype`: elements as the tensor's `dtype` says (quantized ones are float32). `float32`: decoded. */
export type ReadAs = 'dtype' | 'float32'

/** Some elements of a tensor that is read in order. */
export interface TensorChunk<T extends TensorArray = TensorArray> {
  /** Index of the first element, row-major. */
  readonly start: number
  readonly data: T
}

/** Tensors of an open model. They share what was verified; they end with the reader. */
export interface Tensors {
  /** Throws TENSOR_NOT_FOUND. */
  get(name: string): LazyTensor
}

export function openTensors(
  reader: Pick<ModelReader, 'tensors' | 'sources' | 'path'>,
  options: TensorOptions = {},
): Tensors {
  const open = new Map<string, LazyTensor>()
  return {
    get(name) {
      const known = open.get(name)
      if (known !== undefined) return known
      const entry = reader.tensors.get(name)
      if (entry === undefined)
        throw new ModelFormatError('TENSOR_NOT_FOUND', {
          what: 'no tensor of that name',
          where: reader.path,
          got: name,
          details: { tensor: name },
        })
      const tensor = new LazyTensor(new StoredTensor(entry, reader.sources, options.verify !== 'off'))
      open.set(name, tensor)
      return tensor
    },
  }
}

/** A tensor of an open model: shape and type now, numbers when a method asks for them. Ends with its reader. */
export class LazyTensor {
  readonly entry: TensorEntry
  readonly #stored: StoredTensor
  readonly #elements: number
  readonly #decoder: RangeDecoder

  constructor(stored: StoredTensor) {
    this.entry = stored.entry
    this.#stored = stored
    this.#decoder = new RangeDecoder(stored)
    this.#elements = elementCount(stored.entry.shape, `tensor ${stored.entry.name}`)
  }

  get name(): string {
    return this.entry.name
  }

  get shape(): readonly number[] {
    return this.entry.shape
  }

  get dtype(): DType {
    return this.entry.dtype
  }

  /** Elements between neighbours along each axis, as stored. */
  get strides(): readonly number[] {
    return stridesOf(this.entry)
  }

  /** The whole tensor, row-major. Throws SOURCE_*, CHECKSUM_MISMATCH, QUANT_UNSUPPORTED, TENSOR_RANGE (larger than an array), ABORTED. */
  read(options: ReadTensorOptions = {}): Promise<TensorArray> {
    return this.#rows(0, this.entry.rows, 'dtype', options.signal)
  }

  /** The whole tensor as float32. Throws as read, and REQUEST_INVALID for another type. */
  async astype(dtype: 'float32', options: ReadTensorOptions = {}): Promise<Float32Array> {
    if (dtype !== 'float32')
      throw new ValidationError('REQUEST_INVALID', { what: 'tensors convert to float32 only', got: dtype })
    return this.rows(0, this.entry.rows, options)
  }

  /** Rows [from, to) of the matrix view (TensorEntry.rows) as float32 [to − from, cols]. Throws as read, and TENSOR_RANGE. */
  async rows(from: number, to: number, options: ReadTensorOptions = {}): Promise<Float32Array> {
    this.#checkRows(from, to)
    return (await this.#rows(from, to, 'float32', options.signal)) as Float32Array
  }

  /** Rows by number, in any order and repeated, as float32 [ids.length, cols]. Near ones are read together. Throws as rows. */
  async rowsAt(ids: ArrayLike<number>, options: ReadTensorOptions = {}): Promise<Float32Array> {
    const list = Array.from(ids)
    for (const id of list) this.#checkRows(id, id + 1)
    const { cols } = this.entry
    const out = newArray('float32', list.length * cols, this.name) as Float32Array
    if (isStrided(this.entry)) {
      for (const [i, id] of list.entries())
        out.set((await this.#rows(id, id + 1, 'float32', options.signal)) as Float32Array, i * cols)
      return out
    }
    const places = new Map<number, number[]>()
    for (const [i, id] of list.entries()) {
      const known = places.get(id)
      if (known === undefined) places.set(id, [i])
      else known.push(i)
    }
    const values = new Float32Array(cols)
    for await (const { row, unit, count, bytes } of this.#storedRows([...places.keys()], options.signal)) {
      this.#decoder.part(bytes, unit, count, row * cols, (row + 1) * cols, values)
      for (const i of places.get(row)!) out.set(values, i * cols)
    }
    return out
  }

  /**
   * A box: [from, to) for each axis (missing ones are whole), row-major. As the tensor's own type, or as float32.
   * Throws as read, and TENSOR_RANGE.
   */
  async slice(
    ranges: readonly (Range | undefined)[],
    options: ReadTensorOptions & { as?: ReadAs } = {},
  ): Promise<TensorArray> {
    const box = checkRanges(this.entry, ranges)
    const as = options.as ?? 'dtype'
    const out = newArray(this.#resultType(as), elementCount(box.map(([a, b]) => b - a)), this.name)
    const { start, axes } = sliceAxes(this.entry, box)
    if (this.entry.encoding.kind === 'plain' && this.entry.linear === undefined)
      await gather(this.#stored, start, axes, out, 0, as === 'float32', options.signal)
    else if (isStrided(this.entry)) await gatherLinear(this.#stored, box, out as Float32Array, options.signal)
    else await sliceBlocks(this.#decoder, box, out as Float32Array, options.signal)
    return out
  }

  /**
   * All elements in order, in chunks of about `bytes` (default 4 MiB), whole rows where a row is not larger.
   * Throws as read.
   */
  async *stream(options: ReadTensorOptions & { bytes?: number; as?: ReadAs } = {}): AsyncGenerator<TensorChunk> {
    const { bytes = 4 * CHUNK_BYTES, as = 'dtype', signal } = options
    const step = this.#streamStep(Math.max(1, Math.floor(bytes / DTYPE_BYTES[this.#resultType(as)])))
    const { cols } = this.entry
    for (let start = 0; start < this.#elements; start += step) {
      const end = Math.min(this.#elements, start + step)
      const data = isStrided(this.entry)
        ? await this.#rows(start / cols, end / cols, as, signal)
        : await this.#elementRange(start, end, as, signal)
      yield { start, data }
    }
  }

  /** Stored bytes of rows [from, to), checked; `from` and `to` on whole panels. A strided tensor has only all its rows. Throws TENSOR_RANGE. */
  async rowBytes(from: number, to: number, options: ReadTensorOptions = {}): Promise<Uint8Array> {
    this.#checkRows(from, to)
    const { rows, cols } = this.entry
    const { units, unitElements: size, unitBytes } = this.#stored.layout
    const whole = from === 0 && to === rows
    const first = (from * cols) / size
    const last = to === rows ? units : (to * cols) / size
    if (!whole && (isStrided(this.entry) || !Number.isInteger(first) || !Number.isInteger(last)))
      throw new ValidationError('TENSOR_RANGE', {
        what: 'rows are not whole in the stored bytes',
        where: `tensor ${this.name}`,
        expected: isStrided(this.entry) ? 'all rows' : `multiples of ${PANEL_ROWS}`,
        got: `${from}:${to}`,
      })
    const [a, b] = whole ? [0, units] : [first, last]
    const out = bytesOf(newArray('uint8', (b - a) * unitBytes, this.name))
    await this.#stored.readInto(a, b, out, options.signal)
    return out
  }

  /** All stored bytes, checked. */
  bytes(options: ReadTensorOptions = {}): Promise<Uint8Array> {
    return this.rowBytes(0, this.entry.rows, options)
  }

  /**
   * Rows [from, to) without a copy, where the source shows its memory and elements lie there as arrays need them (plain, contiguous, this
   * machine's byte order, aligned); else undefined: use read. Pages are checked first. Valid until the reader closes; not to be written to.
   */
  async view(from = 0, to = this.entry.rows, options: ReadTensorOptions = {}): Promise<TensorArray | undefined> {
    this.#checkRows(from, to)
    if (isStrided(this.entry) || this.entry.linear !== undefined) return undefined
    const { cols } = this.entry
    const found = viewElements(this.#stored, from * cols, to * cols)
    if (found !== undefined) await this.#stored.check(from * cols, to * cols, options.signal)
    return found
  }

  #checkRows(from: number, to: number): void {
    const { rows } = this.entry
    if (Number.isSafeInteger(from) && Number.isSafeInteger(to) && from >= 0 && from <= to && to <= rows) return
    throw new ValidationError('TENSOR_RANGE', {
      what: 'rows do not exist',
      where: `tensor ${this.name}`,
      expected: `0 ≤ from ≤ to ≤ ${rows}`,
      got: `${from}:${to}`,
      details: { tensor: this.name, rows, from, to },
    })
  }

  #resultType(as: ReadAs): DType {
    if (this.entry.encoding.kind === 'opaque') refuseOpaque(this.entry.encoding.type, this.name)
    return as === 'float32' || this.entry.linear !== undefined ? 'float32' : this.entry.dtype
  }

  async #rows(from: number, to: number, as: ReadAs, signal?: AbortSignal): Promise<TensorArray> {
    const { cols, shape } = this.entry
    if (!isStrided(this.entry)) return this.#elementRange(from * cols, to * cols, as, signal)
    const out = newArray(this.#resultType(as), (to - from) * cols, this.name)
    let at = 0
    for (const box of rowSlices(shape, from, to)) {
      const n = elementCount(box.map(([a, b]) => b - a))
      const { start, axes } = sliceAxes(this.entry, box)
      if (this.entry.linear === undefined) await gather(this.#stored, start, axes, out, at, as === 'float32', signal)
      else await gatherLinear(this.#stored, box, (out as Float32Array).subarray(at, at + n), signal)
      at += n
    }
    return out
  }

  /** Elements [from, to) of a tensor whose elements follow each other. */
  async #elementRange(from: number, to: number, as: ReadAs, signal?: AbortSignal): Promise<TensorArray> {
    const { encoding, linear } = this.entry
    const out = newArray(this.#resultType(as), to - from, this.name)
    const same = encoding.kind === 'plain' && linear === undefined && (as === 'dtype' || encoding.dtype === 'float32')
    if (same) {
      await this.#stored.readInto(from, to, bytesOf(out), signal)
      toHostOrder(this.#stored, out)
      return out
    }
    if (to > from) await this.#decoder.range(from, to, out as Float32Array, signal)
    return out
  }

  /** Stored units of single rows, near ones read together. Each is complete. */
  async *#storedRows(
    rows: readonly number[],
    signal?: AbortSignal,
  ): AsyncGenerator<{ row: number; unit: number; count: number; bytes: Uint8Array }> {
    const { cols } = this.entry
    const { layout } = this.#stored
    const ranges = []
    for (const row of rows) {
      const unit = Math.floor((row * cols) / layout.unitElements)
      const count = Math.ceil(((row + 1) * cols) / layout.unitElements) - unit
      await this.#stored.check(unit, unit + count, signal)
      for (const range of planUnits(layout, unit, unit + count)) ranges.push({ ...range, row, unit, count })
    }
    const longest = ranges.reduce((n, r) => Math.max(n, r.length), 0)
    for (const read of mergeReads(ranges, { maxReadBytes: Math.max(CHUNK_BYTES, Math.ceil(longest / 8) * 8) })) {
      const bytes = await this.#stored.source(read.source).read(read.offset, read.length, signal && { signal })
      for (const { range, at, length } of read.parts)
        yield { row: range.row, unit: range.unit, count: range.count, bytes: bytes.subarray(at, at + length) }
    }
  }

  /** Elements a chunk, at most about `most`: whole pages if they fit, else whole panels, else whole rows, else whole units. */
  #streamStep(most: number): number {
    const { cols, encoding, pages } = this.entry
    const size = this.#stored.layout.unitElements
    if (cols === 0) return Math.max(1, most)
    const rows = Math.floor(most / cols)
    const group = encoding.kind === 'panel' ? PANEL_ROWS : 1
    if (pages !== undefined && pages.count > 1 && rows >= pages.rowsPerPage)
      return Math.floor(rows / pages.rowsPerPage) * pages.rowsPerPage * cols
    if (rows >= group) return Math.floor(rows / group) * group * cols
    if (encoding.kind === 'panel' || isStrided(this.entry)) return group * cols
    return Math.max(size, Math.floor(most / size) * size)
  }
}
