// What one compute thread does in a pass. Runs every step of the program over its own share: rows of matrices, heads, columns or
// tokens. Never does I/O: it waits for pages (PageClient) and for the other threads (barrier), nothing else.

import type { PlanStep, TokenSet } from '../graph/plan.ts'
import type { Kernels } from '../kernels/kernels.ts'
import type { PageClient } from '../pager/pager.ts'
import { barrier, type Control, WORD } from './control.ts'
import { Linear } from './linear.ts'
import type { Program, ProgramStep } from './program.ts'
import { route } from './route.ts'
import { type Share, UNIT } from './share.ts'

/** Multiplications an attention call may take, as CALL_WORK in linear.ts; attention is slower a multiplication. */
const ATTENTION_WORK = 2 ** 25

type Step<K extends PlanStep['op']> = Extract<PlanStep, { op: K }>

export class Executor {
  readonly #program: Program
  readonly #base: Kernels
  readonly #control: Control
  readonly #share: Share
  readonly #pages: PageClient
  readonly #i32: Int32Array
  /** Arena 0, where activations live. */
  readonly #f32: Float32Array
  readonly #linear: Linear
  #tokens = 0
  #position = 0
  #pass = 0

  constructor(
    program: Program,
    kernels: readonly Kernels[],
    memories: readonly ArrayBufferLike[],
    pages: PageClient,
    control: Control,
    share: Share,
  ) {
    this.#program = program
    this.#base = kernels[0]!
    this.#control = control
    this.#share = share
    this.#pages = pages
    this.#i32 = new Int32Array(memories[0]!)
    const arenas = memories.map((m) => new Float32Array(m))
    this.#f32 = arenas[0]!
    this.#linear = new Linear(program, kernels, arenas, pages, control, share)
  }

  /** Runs the pass that the control words describe. False when it was aborted. */
  run(): boolean {
    this.#tokens = this.#control[WORD.tokens]!
    this.#position = this.#control[WORD.position]!
    this.#pass = this.#control[WORD.pass]!
    let owed = false // a step that was left out may have been the one to wait for the others
    for (const step of this.#program.steps) {
      if (this.#idle(step.step)) {
        owed ||= step.barrier
        continue
      }
      if ((step.barrier || owed) && !barrier(this.#control, this.#share.threads)) return false
      owed = false
      if (!this.#step(step)) return false
    }
    return barrier(this.#control, this.#share.threads)
  }

  /** A step of an expert that no token of this pass goes to. All threads agree: the lists are complete when `route` ends. */
  #idle(s: PlanStep): boolean {
    if (s.op === 'gatherExpert' || s.op === 'scatterExpert') return this.#count({ kind: 'expert', ...s }) === 0
    return 'tokens' in s && s.tokens.kind === 'expert' && this.#count(s.tokens) === 0
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
        return this.#linear.run(s, bound, this.#count(s.tokens), this.#pass)
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
        return this.#route(s)
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

  #norm(s: Step<'rmsNorm'>, weight: number): void {
    const x = this.#buffer(s.x)
    const y = this.#buffer(s.y)
    const n = this.#count(s.tokens)
    const from = this.#share.from(n, 1)
    const to = this.#share.to(n, 1)
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

  #bias(s: Step<'bias'>, vector: number): void {
    const y = this.#buffer(s.y)
    const from = this.#share.from(y.width, UNIT)
    const to = this.#share.to(y.width, UNIT)
    const n = this.#count(s.tokens)
    for (let t = 0; t < n; t++)
      if (to > from) this.#base.add(vector, y.stride, y.address + t * y.stride * 4, y.stride, from, to, 1, 1)
  }

  #rope(s: Step<'rope'>): void {
    const x = this.#buffer(s.x)
    const table = this.#program.ropes[s.rope]!
    const from = this.#share.from(s.heads, 1)
    const to = this.#share.to(s.heads, 1)
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
    const kvFrom = this.#share.from(s.kvHeads, 1)
    const kvTo = this.#share.to(s.kvHeads, 1)
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
    if (!barrier(this.#control, this.#share.threads)) return false
    const headStart = this.#share.from(s.heads, 1)
    const headEnd = this.#share.to(s.heads, 1)
    // Cut into calls by heads, in whole groups that share keys, and by tokens: each token of each head stands for itself.
    const tokens = this.#tokens
    const group = s.heads / s.kvHeads
    const perHead = 2 * s.headDim * (this.#position + tokens)
    const headStep = Math.max(1, Math.floor(ATTENTION_WORK / (perHead * group))) * group
    for (let head = headStart; head < headEnd; head += headStep) {
      const end = Math.min(headEnd, head + headStep)
      const tokenStep = Math.max(1, Math.floor(ATTENTION_WORK / (perHead * (end - head))))
      for (let t = 0; t < tokens; t += tokenStep) {
        if (Atomics.load(this.#control, WORD.abort) !== 0) return false
        this.#base.attention({
          q: q.address + t * q.stride * 4,
          qStride: q.stride,
          y: y.address + t * y.stride * 4,
          yStride: y.stride,
          heads: s.heads,
          kvHeads: s.kvHeads,
          headDim: s.headDim,
          headStart: head,
          headEnd: end,
          tokens: Math.min(tokenStep, tokens - t),
          position: this.#position + t,
          pages,
          pageTokens: kvPageTokens,
          kvF16,
          scale: s.scale,
          window: s.window,
          scratch: this.#program.scores[this.#share.thread]!,
        })
      }
    }
    return true
  }

  #swiglu(s: Step<'swiglu'>): void {
    const gate = this.#buffer(s.gate)
    const from = this.#share.from(gate.width, UNIT)
    const to = this.#share.to(gate.width, UNIT)
    const n = this.#count(s.tokens)
    if (to > from && n > 0)
      this.#base.swiglu(gate.address, this.#buffer(s.up).address, this.#buffer(s.y).address, gate.stride, from, to, n)
  }

  #add(s: Step<'add'>): void {
    const x = this.#buffer(s.x)
    const y = this.#buffer(s.y)
    const from = this.#share.from(y.width, UNIT)
    const to = this.#share.to(y.width, UNIT)
    const n = this.#count(s.tokens)
    if (to > from && n > 0) this.#base.add(x.address, x.stride, y.address, y.stride, from, to, n, 1)
  }

  /** One thread decides; the reader and the other threads learn of it before they go on. */
  #route(s: Step<'route'>): boolean {
    if (this.#share.thread === 0) {
      const r = this.#program.routes[s.route]!
      route(r, this.#buffer(s.logits), s, this.#tokens, this.#i32, this.#f32)
      for (let e = 0; e < r.experts; e++)
        this.#pages.choose(r.firstGroup + e, this.#pass, this.#i32[r.counts / 4 + e]! > 0)
      this.#pages.announce()
    }
    return barrier(this.#control, this.#share.threads)
  }

  #gather(s: Step<'gatherExpert'>): void {
    const r = this.#program.routes[s.route]!
    const n = this.#i32[r.counts / 4 + s.expert]!
    for (let i = this.#share.from(n, 1); i < this.#share.to(n, 1); i++)
      this.#copyRow(s.x, this.#i32[r.lists / 4 + s.expert * this.#program.tokensMax + i]!, s.y, i)
  }

  #scatter(s: Step<'scatterExpert'>): void {
    const r = this.#program.routes[s.route]!
    const n = this.#i32[r.counts / 4 + s.expert]!
    const x = this.#buffer(s.x)
    const y = this.#buffer(s.y)
    for (let i = this.#share.from(n, 1); i < this.#share.to(n, 1); i++) {
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
    for (let t = this.#share.from(n, 1); t < this.#share.to(n, 1); t++) {
      const at = y.address / 4 + t * y.stride
      this.#f32.fill(0, at, at + y.width)
    }
  }

  #select(s: Step<'selectLogits'>): void {
    const n = this.#control[WORD.logitTokens]!
    for (let i = this.#share.from(n, 1); i < this.#share.to(n, 1); i++)
      this.#copyRow(s.x, this.#i32[this.#program.logitTokens / 4 + i]!, s.y, i)
  }

  #copyRow(from: number, fromRow: number, to: number, toRow: number): void {
    const x = this.#buffer(from)
    const y = this.#buffer(to)
    const at = x.address / 4 + fromRow * x.stride
    this.#f32.copyWithin(y.address / 4 + toRow * y.stride, at, at + x.width)
  }
}
