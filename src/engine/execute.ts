// What one compute thread does in a pass. Runs every step of the program over its own share: rows of matrices, heads, columns or
// tokens. Never does I/O: it waits for pages (PageClient) and for the other threads (barrier), nothing else.

import type { PlanStep, TokenSet } from '../graph/plan.ts'
import { computeBytes } from '../kernels/compute.ts'
import type { Kernels, MatrixBlock } from '../kernels/kernels.ts'
import type { PageClient, PagedMatrix } from '../pager/pager.ts'
import { barrier, type Control, WORD } from './control.ts'
import { TILE_ROWS, TILE_TOKENS } from './layout.ts'
import type { Program, ProgramStep } from './program.ts'
import { route } from './route.ts'

type Step<K extends PlanStep['op']> = Extract<PlanStep, { op: K }>

/** Rows are divided between threads in whole panels. */
const UNIT = 16

export class Executor {
  readonly #program: Program
  /** Kernel set bound to each arena. */
  readonly #kernels: readonly Kernels[]
  readonly #base: Kernels
  readonly #pages: PageClient
  readonly #control: Control
  readonly #thread: number
  readonly #threads: number
  readonly #i32: Int32Array
  /** Arena 0, where activations live. */
  readonly #f32: Float32Array
  readonly #arenas: readonly Float32Array[]
  readonly #block: MatrixBlock = { encoding: 0, address: 0, rows: 0, cols: 0, block: 0, scaleF32: 0, multiplier: 1 }
  #tokens = 0
  #position = 0
  #pass = 0

  constructor(
    program: Program,
    kernels: readonly Kernels[],
    memories: readonly ArrayBufferLike[],
    pages: PageClient,
    control: Control,
    thread: number,
    threads: number,
  ) {
    this.#program = program
    this.#kernels = kernels
    this.#base = kernels[0]!
    this.#pages = pages
    this.#control = control
    this.#thread = thread
    this.#threads = threads
    this.#i32 = new Int32Array(memories[0]!)
    this.#arenas = memories.map((m) => new Float32Array(m))
    this.#f32 = this.#arenas[0]!
  }

  /** Runs the pass that the control words describe. False when it was aborted. */
  run(): boolean {
    this.#tokens = this.#control[WORD.tokens]!
    this.#position = this.#control[WORD.position]!
    this.#pass = this.#control[WORD.pass]!
    for (const step of this.#program.steps) {
      if (step.barrier && !barrier(this.#control, this.#threads)) return false
      if (!this.#step(step)) return false
    }
    return barrier(this.#control, this.#threads)
  }

  #step(bound: ProgramStep): boolean {
    const s = bound.step
    switch (s.op) {
      case 'embed':
        return true
      case 'rmsNorm':
        this.#norm(s, bound.vector)
        return true
      case 'linear':
        return this.#linear(s, bound)
      case 'bias':
        this.#bias(s, bound.vector)
        return true
      case 'rope':
        this.#rope(s)
        return true
      case 'attention':
        return this.#attention(s)
      case 'swiglu':
        this.#swiglu(s)
        return true
      case 'add':
        this.#add(s)
        return true
      case 'route':
        if (this.#thread === 0)
          route(this.#program.routes[s.route]!, this.#buffer(s.logits), s, this.#tokens, this.#i32, this.#f32)
        return true
      case 'gatherExpert':
        this.#gather(s)
        return true
      case 'scatterExpert':
        this.#scatter(s)
        return true
      case 'zero':
        this.#zero(s)
        return true
      case 'selectLogits':
        this.#select(s)
        return true
    }
  }

  #buffer(id: number) {
    return this.#program.buffers[id]!
  }

  #count(set: TokenSet): number {
    if (set.kind === 'all') return this.#tokens
    if (set.kind === 'logits') return this.#control[WORD.logitTokens]!
    return this.#i32[this.#program.routes[set.route]!.counts / 4 + set.expert]!
  }

  /** This thread's part of n things, in multiples of `unit`. */
  #from(n: number, unit: number, thread = this.#thread): number {
    return Math.min(n, Math.floor((Math.ceil(n / unit) * thread) / this.#threads) * unit)
  }

  #to(n: number, unit: number): number {
    return this.#from(n, unit, this.#thread + 1)
  }

  #norm(s: Step<'rmsNorm'>, weight: number): void {
    const x = this.#buffer(s.x)
    const y = this.#buffer(s.y)
    const n = this.#count(s.tokens)
    const from = this.#from(n, 1)
    const to = this.#to(n, 1)
    if (to <= from) return
    if (s.groups === 1) {
      this.#base.rmsNorm(
        x.address + from * x.stride * 4,
        x.stride,
        weight,
        y.address + from * y.stride * 4,
        y.stride,
        x.width,
        s.epsilon,
        s.offset,
        to - from,
      )
      return
    }
    const dim = x.width / s.groups
    for (let t = from; t < to; t++)
      this.#base.rmsNorm(
        x.address + t * x.stride * 4,
        dim,
        weight,
        y.address + t * y.stride * 4,
        dim,
        dim,
        s.epsilon,
        s.offset,
        s.groups,
      )
  }

  #linear(s: Step<'linear'>, bound: ProgramStep): boolean {
    const n = this.#count(s.tokens)
    const x = this.#buffer(s.x)
    if (bound.quantize > 0) {
      const from = this.#from(n, 1)
      const to = this.#to(n, 1)
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
      if (!barrier(this.#control, this.#threads)) return false
    }
    const weight = bound.weight!
    if ('resident' in weight) {
      if (n > 0) this.#resident(s, weight.resident, n)
      return true
    }
    return this.#paged(s, weight.paged, bound.quantized, n)
  }

  #resident(s: Step<'linear'>, m: MatrixBlock, n: number): void {
    const from = this.#from(m.rows, UNIT)
    const to = this.#to(m.rows, UNIT)
    if (to <= from) return
    const x = this.#buffer(s.x)
    const y = this.#buffer(s.y)
    const b = this.#share(m, m.address, from, to)
    this.#base.matMul(b, x.address, x.stride, y.address + from * 4, y.stride, n, s.accumulate ? 1 : 0, s.alpha)
  }

  /** Rows [from, to) of a run of rows at `address`. */
  #share(m: Omit<MatrixBlock, 'address'>, address: number, from: number, to: number): MatrixBlock {
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

  #paged(s: Step<'linear'>, m: PagedMatrix, quantized: boolean, n: number): boolean {
    const x = this.#buffer(s.x)
    const y = this.#buffer(s.y)
    for (let p = 0; p < m.pageCount; p++) {
      const page = m.firstPage + p
      if (!this.#pages.acquire(page, this.#pass)) return false
      const first = p * m.rowsPerPage
      const rows = Math.min(m.rowsPerPage, m.rows - first)
      const from = this.#from(rows, UNIT)
      const to = this.#to(rows, UNIT)
      if (n > 0 && to > from) {
        const arena = this.#pages.arenaOf(page)
        const b = this.#share(m, this.#pages.addressOf(page), from, to)
        const out = y.address + (first + from) * 4
        const add = s.accumulate ? 1 : 0
        if (arena > 0) this.#tiled(s, b, quantized, n, first + from, arena)
        else if (quantized) this.#base.matMulQ(b, this.#program.quantizedAt, out, y.stride, n, add, s.alpha)
        else this.#base.matMul(b, x.address, x.stride, out, y.stride, n, add, s.alpha)
      }
      this.#pages.release(page)
    }
    return Atomics.load(this.#control, WORD.abort) === 0
  }

  /** Rows of a page in another arena: activations are carried there, results back, a tile at a time. */
  #tiled(s: Step<'linear'>, b: MatrixBlock, quantized: boolean, n: number, firstRow: number, arena: number): void {
    const x = this.#buffer(s.x)
    const y = this.#buffer(s.y)
    const k = this.#kernels[arena]!
    const tile = this.#program.tiles[arena]![this.#thread]!
    const there = this.#arenas[arena]!
    const add = s.accumulate ? 1 : 0
    const { rows, address } = b
    const xStride = quantized ? k.quantizedStride(x.width, b.block) / 4 : x.stride
    const xAt = (quantized ? this.#program.quantizedAt : x.address) / 4
    const yAt = tile.y / 4
    for (let t = 0; t < n; t += TILE_TOKENS) {
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
  }

  #bias(s: Step<'bias'>, vector: number): void {
    const y = this.#buffer(s.y)
    const from = this.#from(y.width, UNIT)
    const to = this.#to(y.width, UNIT)
    const n = this.#count(s.tokens)
    for (let t = 0; t < n; t++)
      if (to > from) this.#base.add(vector, y.stride, y.address + t * y.stride * 4, y.stride, from, to, 1, 1)
  }

  #rope(s: Step<'rope'>): void {
    const x = this.#buffer(s.x)
    const table = this.#program.ropes[s.rope]!
    const from = this.#from(s.heads, 1)
    const to = this.#to(s.heads, 1)
    if (to > from)
      this.#base.rope(
        x.address + from * s.headDim * 4,
        x.stride,
        to - from,
        s.headDim,
        s.rotaryDim,
        s.interleaved ? 1 : 0,
        table.address,
        this.#tokens,
      )
  }

  #attention(s: Step<'attention'>): boolean {
    const { kvPageTokens, kvF16, kvTableWords } = this.#program
    const [q, k, v, y] = [this.#buffer(s.q), this.#buffer(s.k), this.#buffer(s.v), this.#buffer(s.y)]
    const pages = (this.#control[WORD.kvTable]! >>> 0) + s.layer * kvTableWords * 4
    const kvFrom = this.#from(s.kvHeads, 1)
    const kvTo = this.#to(s.kvHeads, 1)
    if (kvTo > kvFrom)
      this.#base.kvAppend(
        k.address,
        v.address,
        k.stride,
        pages,
        kvPageTokens,
        kvF16,
        s.kvHeads,
        s.headDim,
        kvFrom,
        kvTo,
        this.#position,
        this.#tokens,
      )
    if (!barrier(this.#control, this.#threads)) return false
    const headStart = this.#from(s.heads, 1)
    const headEnd = this.#to(s.heads, 1)
    if (headEnd > headStart)
      this.#base.attention({
        q: q.address,
        qStride: q.stride,
        y: y.address,
        yStride: y.stride,
        heads: s.heads,
        kvHeads: s.kvHeads,
        headDim: s.headDim,
        headStart,
        headEnd,
        tokens: this.#tokens,
        position: this.#position,
        pages,
        pageTokens: kvPageTokens,
        kvF16,
        scale: s.scale,
        window: s.window,
        scratch: this.#program.scores[this.#thread]!,
      })
    return true
  }

  #swiglu(s: Step<'swiglu'>): void {
    const gate = this.#buffer(s.gate)
    const from = this.#from(gate.width, UNIT)
    const to = this.#to(gate.width, UNIT)
    const n = this.#count(s.tokens)
    if (to > from && n > 0)
      this.#base.swiglu(gate.address, this.#buffer(s.up).address, this.#buffer(s.y).address, gate.stride, from, to, n)
  }

  #add(s: Step<'add'>): void {
    const x = this.#buffer(s.x)
    const y = this.#buffer(s.y)
    const from = this.#from(y.width, UNIT)
    const to = this.#to(y.width, UNIT)
    const n = this.#count(s.tokens)
    if (to > from && n > 0) this.#base.add(x.address, x.stride, y.address, y.stride, from, to, n, 1)
  }

  #gather(s: Step<'gatherExpert'>): void {
    const r = this.#program.routes[s.route]!
    const n = this.#i32[r.counts / 4 + s.expert]!
    for (let i = this.#from(n, 1); i < this.#to(n, 1); i++)
      this.#copyRow(s.x, this.#i32[r.lists / 4 + s.expert * this.#program.tokensMax + i]!, s.y, i)
  }

  #scatter(s: Step<'scatterExpert'>): void {
    const r = this.#program.routes[s.route]!
    const n = this.#i32[r.counts / 4 + s.expert]!
    const x = this.#buffer(s.x)
    const y = this.#buffer(s.y)
    for (let i = this.#from(n, 1); i < this.#to(n, 1); i++) {
      const at = s.expert * this.#program.tokensMax + i
      const token = this.#i32[r.lists / 4 + at]!
      const weight = this.#f32[r.listWeights / 4 + at]!
      this.#base.add(
        x.address + i * x.stride * 4,
        x.stride,
        y.address + token * y.stride * 4,
        y.stride,
        0,
        x.width,
        1,
        weight,
      )
    }
  }

  #zero(s: Step<'zero'>): void {
    const y = this.#buffer(s.y)
    const n = this.#count(s.tokens)
    for (let t = this.#from(n, 1); t < this.#to(n, 1); t++) {
      const at = y.address / 4 + t * y.stride
      this.#f32.fill(0, at, at + y.width)
    }
  }

  #select(s: Step<'selectLogits'>): void {
    const n = this.#control[WORD.logitTokens]!
    for (let i = this.#from(n, 1); i < this.#to(n, 1); i++)
      this.#copyRow(s.x, this.#i32[this.#program.logitTokens / 4 + i]!, s.y, i)
  }

  #copyRow(from: number, fromRow: number, to: number, toRow: number): void {
    const x = this.#buffer(from)
    const y = this.#buffer(to)
    const at = x.address / 4 + fromRow * x.stride
    this.#f32.copyWithin(y.address / 4 + toRow * y.stride, at, at + x.width)
  }
}

/** Bytes from one row to the next; for panels a sixteenth of a panel: exact for multiples of 16 rows. */
function rowBytes(m: Omit<MatrixBlock, 'address'>): number {
  return computeBytes(m, UNIT, m.cols) / UNIT
}
