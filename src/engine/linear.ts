// A thread's share of a matrix product: page by page for weights that come and go, at once for resident ones (adapters).
import type { PlanStep } from '../graph/plan.ts'
import { computeBytes } from '../kernels/compute.ts'
import type { Kernels, MatrixBlock } from '../kernels/kernels.ts'
import type { PageClient, PagedMatrix } from '../pager/pager.ts'
import { barrier, type Control, WORD } from './control.ts'
import { TILE_ROWS, TILE_TOKENS } from './layout.ts'
import type { Program, ProgramStep } from './program.ts'
import { type Share, UNIT } from './share.ts'

/**
 * Multiplications a kernel call may take: 2 to 15 ms. Between calls a thread looks whether the pass was aborted. Rows are cut, never tokens,
 * so that no weight is decoded twice.
 */
const CALL_WORK = 2 ** 26

type LinearStep = Extract<PlanStep, { op: 'linear' }>

export class Linear {
  readonly #program: Program
  /** Kernel set bound to each arena, and the arenas as floats; arena 0 has the activations. */
  readonly #kernels: readonly Kernels[]
  readonly #base: Kernels
  readonly #arenas: readonly Float32Array[]
  readonly #f32: Float32Array
  readonly #pages: PageClient
  readonly #control: Control
  readonly #share: Share
  readonly #block: MatrixBlock = { encoding: 0, address: 0, rows: 0, cols: 0, block: 0, scaleF32: 0, multiplier: 1 }

  constructor(
    program: Program,
    kernels: readonly Kernels[],
    arenas: readonly Float32Array[],
    pages: PageClient,
    control: Control,
    share: Share,
  ) {
    this.#program = program
    this.#kernels = kernels
    this.#base = kernels[0]!
    this.#arenas = arenas
    this.#f32 = arenas[0]!
    this.#pages = pages
    this.#control = control
    this.#share = share
  }

  /** y = [y +] alpha·W x over n tokens. False when the pass was aborted. */
  run(s: LinearStep, bound: ProgramStep, n: number, pass: number): boolean {
    const x = this.#program.buffers[s.x]!
    if (bound.quantize > 0) {
      const from = this.#share.from(n, 1)
      const to = this.#share.to(n, 1)
      if (to > from) {
        const stride = this.#base.quantizedStride(x.width, bound.quantize)
        this.#base.quantize(
          x.address + from * x.stride * 4,
          x.stride,
          x.width,
          bound.quantize,
          to - from,
          this.#program.quantizedAt + from * stride,
        )
      }
      if (!barrier(this.#control, this.#share.threads)) return false
    }
    const weight = bound.weight!
    if ('resident' in weight) {
      return n === 0 || this.#resident(s, weight.resident, n)
    }
    return this.#paged(s, weight.paged, bound.quantized, n, pass)
  }

  #resident(s: LinearStep, m: MatrixBlock, n: number): boolean {
    const from = this.#share.from(m.rows, UNIT)
    const to = this.#share.to(m.rows, UNIT)
    return this.#here(s, m, m.address, from, to, 0, false, n)
  }

  /** Rows [from, to) of a run of rows at `address` in arena 0; row 0 of the run is row `first` of the matrix. False when aborted. */
  #here(
    s: LinearStep,
    m: Omit<MatrixBlock, 'address' | 'rows'>,
    address: number,
    from: number,
    to: number,
    first: number,
    quantized: boolean,
    n: number,
  ): boolean {
    const x = this.#program.buffers[s.x]!
    const y = this.#program.buffers[s.y]!
    const add = s.accumulate ? 1 : 0
    const step = Math.max(1, Math.floor(CALL_WORK / (m.cols * n * UNIT))) * UNIT
    for (let row = from; row < to; row += step) {
      if (row > from && this.#aborted()) return false
      const b = this.#rows(m, address, row, Math.min(to, row + step))
      const out = y.address + (first + row) * 4
      if (quantized) this.#base.matMulQ(b, this.#program.quantizedAt, out, y.stride, n, add, s.alpha)
      else this.#base.matMul(b, x.address, x.stride, out, y.stride, n, add, s.alpha)
    }
    return true
  }

  #aborted(): boolean {
    return Atomics.load(this.#control, WORD.abort) !== 0
  }

  /** Rows [from, to) of a run of rows at `address`. */
  #rows(m: Omit<MatrixBlock, 'address' | 'rows'>, address: number, from: number, to: number): MatrixBlock {
    const b = this.#block
    b.encoding = m.encoding
    b.cols = m.cols
    b.block = m.block
    b.scaleF32 = m.scaleF32
    b.multiplier = m.multiplier
    b.rows = to - from
    b.address = address + rowBytes(m) * from
    return b
  }

  #paged(s: LinearStep, m: PagedMatrix, quantized: boolean, n: number, pass: number): boolean {
    for (let p = 0; p < m.pageCount; p++) {
      const page = m.firstPage + p
      if (!this.#pages.acquire(page, pass)) return false
      const first = p * m.rowsPerPage
      const rows = Math.min(m.rowsPerPage, m.rows - first)
      const from = this.#share.from(rows, UNIT)
      const to = this.#share.to(rows, UNIT)
      if (n > 0 && to > from) {
        const arena = this.#pages.arenaOf(page)
        const address = this.#pages.addressOf(page)
        const ran =
          arena === 0
            ? this.#here(s, m, address, from, to, first, quantized, n)
            : this.#tiled(s, this.#rows(m, address, from, to), quantized, n, first + from, arena)
        if (!ran) return false
      }
      this.#pages.release(page)
    }
    return !this.#aborted()
  }

  /** Rows of a page in another arena: activations are carried there, results back, a tile at a time. False when aborted. */
  #tiled(s: LinearStep, b: MatrixBlock, quantized: boolean, n: number, firstRow: number, arena: number): boolean {
    const x = this.#program.buffers[s.x]!
    const y = this.#program.buffers[s.y]!
    const k = this.#kernels[arena]!
    const tile = this.#program.tiles[arena]![this.#share.thread]!
    const there = this.#arenas[arena]!
    const add = s.accumulate ? 1 : 0
    const { rows, address } = b
    const xStride = quantized ? k.quantizedStride(x.width, b.block) / 4 : x.stride
    const xAt = (quantized ? this.#program.quantizedAt : x.address) / 4
    const yAt = tile.y / 4
    for (let t = 0; t < n; t += TILE_TOKENS) {
      if (t > 0 && this.#aborted()) return false
      const m = Math.min(TILE_TOKENS, n - t)
      there.set(this.#f32.subarray(xAt + t * xStride, xAt + (t + m) * xStride), tile.x / 4)
      for (let r = 0; r < rows; r += TILE_ROWS) {
        b.rows = Math.min(TILE_ROWS, rows - r)
        b.address = address + rowBytes(b) * r
        const out = (i: number) => y.address / 4 + (t + i) * y.stride + firstRow + r
        if (s.accumulate)
          for (let i = 0; i < m; i++) there.set(this.#f32.subarray(out(i), out(i) + b.rows), yAt + i * TILE_ROWS)
        if (quantized) k.matMulQ(b, tile.x, tile.y, TILE_ROWS, m, add, s.alpha)
        else k.matMul(b, tile.x, xStride, tile.y, TILE_ROWS, m, add, s.alpha)
        for (let i = 0; i < m; i++)
          this.#f32.set(there.subarray(yAt + i * TILE_ROWS, yAt + i * TILE_ROWS + b.rows), out(i))
      }
    }
    return true
  }
}

/** Bytes from one row to the next; for panels a sixteenth of a panel: exact for multiples of 16 rows. */
function rowBytes(m: Omit<MatrixBlock, 'address' | 'rows'>): number {
  return computeBytes(m, UNIT, m.cols) / UNIT
}
