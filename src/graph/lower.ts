// Turns nodes into steps over virtual buffers. A value gets a buffer of its own unless an operator may overwrite an input that
// nobody reads afterwards; where the buffers lie is decided later (passes/memory.ts).
import type { GraphNode } from './graph.ts'
import { failNode, LOGIT_TOKENS, nodeLabel, TOKENS, type ValueType } from './op.ts'
import type { BufferId, Plan, PlanRope, PlanStep, TokenSet } from './plan.ts'

export interface VirtualBuffer {
  readonly name: string
  readonly width: number
  /** Symbolic row count: tokens or logit_tokens. */
  readonly rows: string
}

/** 100 layers of 512 experts take 310,000 steps. */
const MAX_PLAN_STEPS = 1_000_000
/** Models have one or two tables of 32 to 256 frequencies. */
const MAX_ROPE_FLOATS = 2 ** 20

/** Names of the graph inputs the engine provides. */
export const ENGINE_INPUTS = { ids: 'input_ids', positions: 'position_ids', logits: 'logit_indices' } as const

export class Lowering {
  readonly buffers: VirtualBuffer[] = []
  readonly steps: PlanStep[] = []
  readonly ropes: PlanRope[] = []
  readonly kv: Plan['kv'][number][] = []
  readonly routes: Plan['routes'][number][] = []
  readonly #bufferOf = new Map<string, BufferId>()
  readonly #ropeOf = new Map<string, { rope: number; part: 'cos' | 'sin' }>()
  readonly #types: ReadonlyMap<string, ValueType>
  readonly #lastUse: ReadonlyMap<string, number>
  #node: GraphNode | undefined
  #index = -1
  #ropeFloats = 0

  /** types: of every value. lastUse: index of the last node that reads a value; Infinity for graph outputs. */
  constructor(types: ReadonlyMap<string, ValueType>, lastUse: ReadonlyMap<string, number>) {
    this.#types = types
    this.#lastUse = lastUse
  }

  begin(node: GraphNode, index: number): void {
    this.#node = node
    this.#index = index
  }

  emit(step: PlanStep): void {
    if (this.steps.length >= MAX_PLAN_STEPS)
      failNode(this.#node!, 'the plan has too many steps', { expected: `≤ ${MAX_PLAN_STEPS}` })
    this.steps.push(step)
  }

  /** The buffer that holds a value. */
  buffer(value: string): BufferId {
    const id = this.#bufferOf.get(value)
    if (id === undefined)
      failNode(
        this.#node!,
        `value ${value} is in no buffer`,
        { remedy: 'Only activations can be read here.' },
        'OP_UNSUPPORTED',
      )
    return id
  }

  bufferOrNone(value: string): BufferId | undefined {
    return this.#bufferOf.get(value)
  }

  /** A new buffer for an output. */
  define(value: string): BufferId {
    const { shape } = this.#types.get(value)!
    const id = this.scratch(value, shape[1] as number, shape[0] as string)
    this.#bufferOf.set(value, id)
    return id
  }

  /** A new buffer that lives within this node only. */
  scratch(name: string, width: number, rows: string): BufferId {
    this.buffers.push({ name, width, rows })
    return this.buffers.length - 1
  }

  /** True when nobody reads the value after this node, and this node does not read it as `others` either. */
  canOverwrite(value: string, others: readonly string[]): boolean {
    return this.#lastUse.get(value) === this.#index && !others.includes(value) && this.#bufferOf.has(value)
  }

  /** The output's buffer, holding the input's numbers: the input's own buffer when it may be overwritten, else a copy. */
  takeOver(value: string, output: string, others: readonly string[]): BufferId {
    if (this.canOverwrite(value, others)) {
      const id = this.buffer(value)
      this.#bufferOf.set(output, id)
      return id
    }
    const x = this.buffer(value)
    const y = this.define(output)
    const tokens = this.tokens(output)
    this.emit({ op: 'zero', y, tokens })
    this.emit({ op: 'add', x, y, tokens })
    return y
  }

  /** The token set a value's rows stand for. */
  tokens(value: string): TokenSet {
    const rows = this.#types.get(value)!.shape[0]
    if (rows === TOKENS) return { kind: 'all' }
    if (rows === LOGIT_TOKENS) return { kind: 'logits' }
    return failNode(this.#node!, `value ${value} has no token dimension`, { got: String(rows) }, 'OP_UNSUPPORTED')
  }

  /** Steps such as attention run over all tokens of the pass only. */
  requireAllTokens(value: string): void {
    if (this.tokens(value).kind !== 'all')
      failNode(
        this.#node!,
        `value ${value} must have all tokens`,
        { expected: TOKENS, got: LOGIT_TOKENS },
        'OP_UNSUPPORTED',
      )
  }

  requireInput(value: string, name: string): void {
    if (value !== name)
      failNode(this.#node!, 'the engine provides another input here', { expected: name, got: value }, 'OP_UNSUPPORTED')
  }

  /** Registers a rotary table under its two values. */
  addRope(rope: PlanRope, cos: string, sin: string): void {
    this.#ropeFloats += rope.inverseFrequencies.length
    if (this.#ropeFloats > MAX_ROPE_FLOATS)
      failNode(this.#node!, 'the rotary tables are too large', { expected: `≤ ${MAX_ROPE_FLOATS} frequencies in all` })
    this.ropes.push(rope)
    this.#ropeOf.set(cos, { rope: this.ropes.length - 1, part: 'cos' })
    this.#ropeOf.set(sin, { rope: this.ropes.length - 1, part: 'sin' })
  }

  ropeIndex(cos: string, sin: string): number {
    const c = this.#ropeOf.get(cos)
    const s = this.#ropeOf.get(sin)
    if (c?.part !== 'cos' || s?.part !== 'sin' || c.rope !== s.rope)
      failNode(
        this.#node!,
        'cos and sin must be the two outputs of one RotaryCache',
        { got: `${cos}, ${sin}` },
        'OP_UNSUPPORTED',
      )
    return c.rope
  }

  unsupported(what: string): never {
    return failNode(this.#node!, what, {}, 'OP_UNSUPPORTED')
  }

  get where(): string {
    return nodeLabel(this.#node!)
  }
}
