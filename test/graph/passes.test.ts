// Every pass keeps the meaning of a graph, and each does what it is for.
import { expect, test } from 'vitest'
import { applyAdapters } from '#sluice/graph/adapters.js'
import { compile, optimize } from '#sluice/graph/compile.js'
import type { Graph, GraphNode } from '#sluice/graph/graph.js'
import { eliminateDeadCode } from '#sluice/graph/passes/dead.js'
import { fold } from '#sluice/graph/passes/fold.js'
import { fuse } from '#sluice/graph/passes/fuse.js'
import { touched } from '#sluice/graph/passes/memory.js'
import type { Plan } from '#sluice/graph/plan.js'
import { validateGraph } from '#sluice/graph/validate.js'
import { evaluate, type Matrix } from './evaluate.ts'
import { runPlan } from './interpreter.ts'
import { largestDifference } from './models.ts'
import { asWeights, INPUTS, OPSETS, randomFrom, randomGraph } from './random.ts'

const ids = [3, 0, 10, 7]
const wanted = [1, 3]
const inputs = new Map([
  ['input_ids', ids],
  ['logit_indices', wanted],
])

function outputOf(graph: Graph, weights: ReadonlyMap<string, Matrix>): number[] {
  return [...evaluate(validateGraph(graph).graph, weights, inputs).values()].flat(2)
}

const PASSES = { fold, fuse, eliminateDeadCode, all: (g: Graph) => eliminateDeadCode(fuse(fold(g))) }

test.each(Object.entries(PASSES))('%s keeps the meaning of 400 random graphs', (_, pass) => {
  let changed = 0
  for (let seed = 1; seed <= 400; seed++) {
    const { graph, weights } = randomGraph(seed, false)
    const before = JSON.stringify(graph)
    const after = pass(graph)
    expect(JSON.stringify(graph)).toBe(before)
    if (JSON.stringify(after.nodes) !== JSON.stringify(graph.nodes)) changed++
    expect(largestDifference(outputOf(after, weights), outputOf(graph, weights)), `seed ${seed}`).toBeLessThan(1e-9)
    // A second run finds nothing that changes the result either.
    expect(largestDifference(outputOf(pass(after), weights), outputOf(graph, weights)), `seed ${seed}`).toBeLessThan(
      1e-9,
    )
  }
  expect(changed).toBeGreaterThan(100)
})

/** The same plan with a place of its own for every buffer: sharing must not show. */
function unshared(plan: Plan): Plan {
  let size = 0
  const buffers = plan.buffers.map((b) => {
    const offset = size
    size += b.stride
    return { ...b, offset }
  })
  return { ...plan, buffers, activationFloats: size, logitsFrom: size }
}

test('plans of 400 random graphs compute what the graph says, and sharing memory changes no bit', () => {
  let shared = 0
  for (let seed = 1; seed <= 400; seed++) {
    const { graph, weights } = randomGraph(seed, true)
    const plan = compile(graph)
    const run = runPlan(plan, asWeights(weights), ids, wanted)
    expect(largestDifference(run.logits, outputOf(graph, weights)), `seed ${seed}`).toBeLessThan(1e-9)
    const apart = unshared(plan)
    expect(runPlan(apart, asWeights(weights), ids, wanted).logits).toEqual(run.logits)
    if (apart.activationFloats > plan.activationFloats) shared++
    checkHazards(plan)
  }
  expect(shared).toBeGreaterThan(100)
})

/** Overlap is allowed only where a step says so, and never between what is alive together. */
function checkHazards(plan: Plan): void {
  const range = (b: number): [number, number] => [
    plan.buffers[b]!.offset,
    plan.buffers[b]!.offset + plan.buffers[b]!.stride,
  ]
  const overlap = (a: number, b: number) => range(a)[0] < range(b)[1] && range(b)[0] < range(a)[1]
  const life = plan.buffers.map((_, b) => {
    const at = plan.steps.flatMap((s, i) => (touched(s).includes(b) ? [i] : []))
    return [at[0]!, b === plan.logits ? Number.POSITIVE_INFINITY : at.at(-1)!] as const
  })
  for (const [a, A] of plan.buffers.entries()) {
    expect(A.offset % 64).toBe(0)
    expect(A.stride % 64).toBe(0)
    for (let b = 0; b < a; b++) {
      if (!overlap(a, b)) continue
      expect(life[a]![0] > life[b]![1] || life[b]![0] > life[a]![1]).toBe(true)
      const B = plan.buffers[b]!
      if (A.width !== A.stride || B.width !== B.stride) expect([A.width, A.offset]).toEqual([B.width, B.offset])
      expect(A.offset >= plan.logitsFrom).toBe(B.offset >= plan.logitsFrom)
    }
  }
  for (const step of plan.steps) if (step.op === 'linear') expect(overlap(step.x, step.y)).toBe(false)
}

test('adapters on random graphs: the result is that of merged weights', () => {
  let adapted = 0
  for (let seed = 1; seed <= 200; seed++) {
    const { graph, weights } = randomGraph(seed, true)
    const random = randomFrom(seed)
    const matrix = (rows: number, cols: number) =>
      Array.from({ length: rows }, () => Array.from({ length: cols }, () => random() - 0.5))
    const merged = new Map(weights)
    const extra = new Map(weights)
    const alive = new Set(optimize(graph).weights.map((w) => w.name))
    const adapters = graph.nodes
      .filter((n) => alive.has(n.weights[0] ?? '') && n.op === 'Linear' && random() < 0.7)
      .map((n, i) => {
        const target = n.weights[0]!
        const w = weights.get(target)!
        const [A, B, scale] = [matrix(2, w[0]!.length), matrix(w.length, 2), random() * 2]
        extra.set(`A${i}`, A).set(`B${i}`, B)
        merged.set(
          target,
          w.map((row, r) => row.map((v, c) => v + scale * (B[r]![0]! * A[0]![c]! + B[r]![1]! * A[1]![c]!))),
        )
        return { target, a: `A${i}`, b: `B${i}`, rank: 2, scale }
      })
    adapted += adapters.length
    const run = runPlan(compile(graph, { adapters }), asWeights(extra), ids, wanted)
    expect(largestDifference(run.logits, outputOf(graph, merged)), `seed ${seed}`).toBeLessThan(1e-7)
  }
  expect(adapted).toBeGreaterThan(100)
})

const linear = (name: string, inputs: string[], weights: string[], attributes = {}): GraphNode => ({
  name,
  op: 'Linear',
  domain: 'ai.wia',
  inputs,
  outputs: [name],
  attributes,
  weights,
})
const onnx = (op: string, name: string, inputs: string[], attributes = {}, weights: string[] = []): GraphNode => ({
  name,
  op,
  domain: 'ai.onnx',
  inputs,
  outputs: [name],
  attributes,
  weights,
})
function graphOf(nodes: GraphNode[], output: string, width = 4): Graph {
  return {
    name: 'test',
    opsets: OPSETS,
    inputs: INPUTS,
    outputs: [{ name: output, dtype: 'float32', shape: ['tokens', width] }],
    nodes: [onnx('Gather', 'x', ['input_ids'], {}, ['E']), ...nodes],
    weights: [
      { name: 'E', shape: [11, 4] },
      { name: 'W', shape: [4, 4] },
      { name: 'V', shape: [4, 4] },
      { name: 'b', shape: [4] },
    ],
    contextLength: 8,
  }
}
const shown = (g: Graph) => g.nodes.map((n) => `${n.outputs[0]}=${n.op}(${[...n.inputs, ...n.weights].join(',')})`)

test('fuse: a residual, a gate, and what may not be fused', () => {
  const g = graphOf(
    [
      linear('g', ['x'], ['W']),
      onnx('Sigmoid', 's', ['g']),
      onnx('Mul', 'a', ['s', 'g']),
      linear('u', ['x'], ['V']),
      onnx('Mul', 'p', ['u', 'a']),
      linear('d', ['p'], ['W']),
      onnx('Add', 'y', ['x', 'd']),
    ],
    'y',
  )
  expect(shown(fuse(g))).toEqual([
    'x=Gather(input_ids,E)',
    'g=Linear(x,W)',
    'u=Linear(x,V)',
    'p=SwiGLU(g,u)',
    'y=Linear(p,x,W)',
  ])
  // Read twice: the sum stays a node of its own.
  const twice = graphOf([linear('d', ['x'], ['W']), onnx('Add', 'e', ['x', 'd']), onnx('Add', 'y', ['e', 'd'])], 'y')
  expect(shown(fuse(twice))).toEqual(shown(twice))
  // Two results: the later one is added to the earlier.
  const two = graphOf([linear('c', ['x'], ['W']), linear('d', ['x'], ['V']), onnx('Add', 'y', ['c', 'd'])], 'y')
  expect(shown(fuse(two))).toEqual(['x=Gather(input_ids,E)', 'c=Linear(x,W)', 'y=Linear(x,c,V)'])
  // A graph output is read by the caller.
  const out = { ...two, outputs: [...two.outputs, { ...two.outputs[0]!, name: 'd' }] }
  expect(shown(fuse(out))).toEqual(['x=Gather(input_ids,E)', 'd=Linear(x,V)', 'y=Linear(x,d,W)'])
  // Swish needs opset 24.
  const old = { ...g, opsets: [{ domain: 'ai.onnx', version: 23 }, OPSETS[1]!] }
  expect(shown(fuse(old)).some((s) => s.includes('Swish') || s.includes('SwiGLU'))).toBe(false)
})

test('fold: constants, factors, Identity', () => {
  const c = (name: string, v: number) => onnx('Constant', name, [], { value_float: v })
  const g = graphOf(
    [
      c('two', 2),
      c('three', 3),
      onnx('Mul', 'six', ['two', 'three']),
      onnx('Mul', 'h', ['six', 'x']),
      onnx('Identity', 'i', ['h']),
      linear('l', ['i'], ['W'], { alpha: 0.5 }),
      onnx('Mul', 'y', ['l', 'three']),
    ],
    'y',
  )
  const folded = eliminateDeadCode(fold(g))
  expect(shown(folded)).toEqual(['h=Embedding(input_ids,E)', 'y=Linear(h,W)'])
  expect(folded.nodes.map((n) => n.attributes)).toEqual([{ scale: 6 }, { alpha: 1.5 }])
  // A bias would be scaled too: not folded, and refused by the compiler rather than computed wrongly.
  const biased = graphOf([c('three', 3), linear('l', ['x'], ['W', 'b']), onnx('Mul', 'y', ['l', 'three'])], 'y')
  expect(shown(fold(biased))).toEqual(shown(biased))
  expect(() => compile(biased)).toThrow(expect.objectContaining({ code: 'OP_UNSUPPORTED' }))
  // Overflow stays visible.
  const huge = graphOf(
    [c('a', 1e200), c('b2', 1e200), onnx('Mul', 'c', ['a', 'b2']), onnx('Mul', 'y', ['x', 'c'])],
    'y',
  )
  expect(shown(fold(huge))).toEqual(shown(huge))
})

test('dead code: unread nodes and their initializers go', () => {
  const g = graphOf(
    [linear('y', ['x'], ['W']), linear('unread', ['y'], ['V']), onnx('Identity', 'unread2', ['unread'])],
    'y',
  )
  const live = eliminateDeadCode(g)
  expect(shown(live)).toEqual(['x=Gather(input_ids,E)', 'y=Linear(x,W)'])
  expect(live.weights.map((w) => w.name)).toEqual(['E', 'W'])
})

test('a value that is read later is copied, not overwritten', () => {
  // x is addend and read again; x is addend and factor of one Linear; x + x.
  const g = graphOf(
    [
      linear('a', ['x', 'x'], ['W']),
      linear('b2', ['x', 'a'], ['V']),
      onnx('Add', 'd', ['b2', 'b2']),
      onnx('Add', 'y', ['d', 'x']),
    ],
    'y',
  )
  const random = randomFrom(5)
  const weights = new Map(
    g.weights.map((w) => [
      w.name,
      Array.from({ length: w.shape.length === 2 ? w.shape[0]! : 1 }, () => Array.from({ length: 4 }, random)),
    ]),
  )
  const plan = compile(g)
  expect(plan.steps.at(-1)!.op).toBe('selectLogits')
  expect(
    largestDifference(runPlan(plan, asWeights(weights), ids, [0, 1, 2, 3]).logits, outputOf(g, weights)),
  ).toBeLessThan(1e-12)
  checkHazards(plan)
})

test('adapters are refused by name where they cannot apply', () => {
  const g = graphOf([linear('y', ['x'], ['W'])], 'y')
  const adapter = { target: 'W', a: 'A', b: 'B', rank: 2, scale: 1 }
  const refusal = (change: object) => {
    try {
      applyAdapters(g, [{ ...adapter, ...change }])
    } catch (err) {
      return (err as { code: string }).code
    }
    return 'none'
  }
  expect(refusal({})).toBe('none')
  expect(refusal({ target: 'nothing' })).toBe('ADAPTER_NO_MATCH')
  expect(refusal({ target: 'E' })).toBe('ADAPTER_UNSUPPORTED')
  expect(refusal({ a: 'V' })).toBe('ADAPTER_INVALID')
  expect(refusal({ b: 'A' })).toBe('ADAPTER_INVALID')
  expect(refusal({ rank: 0 })).toBe('ADAPTER_INVALID')
  expect(refusal({ scale: Number.NaN })).toBe('ADAPTER_INVALID')
})
