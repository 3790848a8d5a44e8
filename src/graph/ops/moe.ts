// ai.wia MoE: a mixture of SwiGLU experts. The router is a Linear before it; softmax, choice and weighting happen here.
import { activation, between, exactly, float32, matrix, type NodeView, type OpDefinition, sameType } from '../op.ts'
import type { BufferId } from '../plan.ts'

/**
 * Weights: gate, up, down of expert 0, then of expert 1 …; then A and B of each adapter. Adapter i belongs to weight
 * adapter_slots[i] and adds adapter_scales[i]·B(A x) to its result.
 */
function parts(view: NodeView): { count: number; inner: number; slots: readonly number[]; scales: readonly number[] } {
  const slots = view.list('adapter_slots')
  const scales = view.list('adapter_scales')
  const count = (view.weights.length - 2 * slots.length) / 3
  if (scales.length !== slots.length)
    view.fail('adapter_scales and adapter_slots differ in length', { expected: slots.length, got: scales.length })
  if (!Number.isInteger(count) || count < 1)
    view.fail('weights are not gate, up, down of each expert', { got: view.weights.length })
  return { count, inner: matrix(view, 0).out, slots, scales }
}

export const moe: OpDefinition = {
  domain: 'ai.wia',
  op: 'MoE',
  since: 14,
  inputs: between(2, 3),
  outputs: exactly(1),
  weights: between(3, 2 ** 20),
  attributes: {
    top_k: { type: 'int', min: 1, max: 65536 },
    normalize: { type: 'int', default: 1, only: [0, 1] },
    adapter_slots: { type: 'ints', default: [], min: 0 },
    adapter_scales: { type: 'floats', default: [] },
  },
  infer(view) {
    const x = activation(view, 0)
    const logits = activation(view, 1)
    const { count, inner, slots } = parts(view)
    if (logits.rows !== x.rows || logits.width !== count)
      view.fail('router logits do not fit', { expected: [x.rows, count], got: [logits.rows, logits.width] })
    if (view.int('top_k') > count)
      view.fail('top_k is above the number of experts', { expected: `≤ ${count}`, got: view.int('top_k') })
    for (let i = 0; i < 3 * count; i++) {
      const want = i % 3 === 2 ? [x.width, inner] : [inner, x.width]
      const w = matrix(view, i)
      if (w.out !== want[0] || w.in !== want[1])
        view.fail(`expert weight ${view.node.weights[i]} does not fit`, { expected: want, got: view.weights[i] })
    }
    slots.forEach((slot, i) => {
      if (slot >= 3 * count) view.fail('adapter_slots names no weight', { expected: `< ${3 * count}`, got: slot })
      const [a, b, w] = [matrix(view, 3 * count + 2 * i), matrix(view, 3 * count + 2 * i + 1), matrix(view, slot)]
      if (a.in !== w.in || b.out !== w.out || a.out !== b.in)
        view.fail(`adapter ${i} does not fit weight ${view.node.weights[slot]}`, {
          expected: `[rank, ${w.in}], [${w.out}, rank]`,
          got: `[${a.out}, ${a.in}], [${b.out}, ${b.in}]`,
        })
    })
    const addend = view.inputs[2]
    const y = float32(x.rows, x.width)
    if (addend !== undefined && !sameType(addend, y))
      view.fail(`addend ${view.node.inputs[2]} has another shape than the result`, {
        expected: y.shape,
        got: addend.shape,
      })
    return [y]
  },
  lower(view, out) {
    const [x, logits, addend] = view.node.inputs as [string, string, string?]
    const value = view.node.outputs[0]!
    out.requireAllTokens(x)
    const { count, inner, slots, scales } = parts(view)
    const topK = view.int('top_k')
    const route = out.routes.length
    out.routes.push({ experts: count, topK })
    out.emit({
      op: 'route',
      logits: out.buffer(logits),
      experts: count,
      topK,
      normalize: view.int('normalize') === 1,
      route,
    })
    const y = addend === undefined ? out.define(value) : out.takeOver(addend, value, [x, logits])
    if (addend === undefined) out.emit({ op: 'zero', y, tokens: out.tokens(value) })
    // Any expert may get every token: its buffers have a row for each. The gathered rows are overwritten by the expert's result.
    const { width, rows } = activation(view, 0)
    const own = out.scratch(`${value}.expert`, width, rows)
    const gate = out.scratch(`${value}.gate`, inner, rows)
    const up = out.scratch(`${value}.up`, inner, rows)
    const bySlot = new Map<number, number[]>()
    slots.forEach((slot, i) => {
      const list = bySlot.get(slot)
      if (list === undefined) bySlot.set(slot, [i])
      else list.push(i)
    })
    const ranks = new Map<number, BufferId>()
    for (let expert = 0; expert < count; expert++) {
      const tokens = { kind: 'expert', route, expert } as const
      const linear = (part: number, from: BufferId, to: BufferId) => {
        const slot = 3 * expert + part
        const base = { op: 'linear', accumulate: false, alpha: 1, tokens } as const
        out.emit({ ...base, weight: view.node.weights[slot]!, x: from, y: to })
        for (const i of bySlot.get(slot) ?? []) {
          const at = 3 * count + 2 * i
          const rank = matrix(view, at).out
          const low = ranks.get(rank) ?? out.scratch(`${value}.rank${rank}`, rank, rows)
          ranks.set(rank, low)
          out.emit({ ...base, weight: view.node.weights[at]!, x: from, y: low })
          out.emit({ ...base, weight: view.node.weights[at + 1]!, x: low, y: to, accumulate: true, alpha: scales[i]! })
        }
      }
      out.emit({ op: 'gatherExpert', x: out.buffer(x), y: own, route, expert })
      linear(0, own, gate)
      linear(1, own, up)
      out.emit({ op: 'swiglu', gate, up, y: gate, tokens })
      linear(2, gate, own)
      out.emit({ op: 'scatterExpert', x: own, y, route, expert })
    }
  },
}
