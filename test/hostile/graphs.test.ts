// Graphs that are cyclic, huge, or ask for more memory than there is: refused, or planned within seconds, never a crash.

import { describe, expect, it } from 'vitest'
import { isSluiceError } from '#sluice/base/errors.js'
import type { JsonObject } from '#sluice/base/json.js'
import { resolveArchitecture } from '#sluice/engine/architecture.js'
import { createEngine } from '#sluice/engine/create.js'
import { forecast } from '#sluice/engine/forecast.js'
import { placeBarriers } from '#sluice/engine/program.js'
import { around, attention, graphOf, mixtures, onnx, readerFor, wia } from './graphs.ts'

/** Error code of planning the graph within `memory` more than the process has, or 'planned'. */
function plan(graph: JsonObject, memory = 512 * 2 ** 20): string {
  try {
    const reader = readerFor(graph)
    forecast(reader, resolveArchitecture(reader), { memory: memory + process.memoryUsage().rss, threads: 2 })
    return 'planned'
  } catch (err) {
    if (!isSluiceError(err)) throw err
    return err.code
  }
}

describe('hostile graphs', () => {
  it('plans a small one', () => {
    expect(plan(around(8, () => ({ nodes: [], out: 'x' })))).toBe('planned')
    expect(plan(attention(16, { q_num_heads: 2, kv_num_heads: 2 }))).toBe('planned')
    expect(plan(mixtures(2, 4))).toBe('planned')
  })

  it('plans 300,000 steps', { timeout: 120_000 }, () => {
    expect(plan(mixtures(98, 512), 2 ** 34)).toBe('planned')
  })

  it.each([
    ['heads of 10^9', { q_num_heads: 1e9, kv_num_heads: 1 }],
    ['heads that do not divide', { q_num_heads: 3, kv_num_heads: 3 }],
    ['no heads', { q_num_heads: 0, kv_num_heads: 0 }],
    ['negative heads', { q_num_heads: -2, kv_num_heads: -2 }],
    ['key heads that do not divide', { q_num_heads: 4, kv_num_heads: 3 }],
    ['heads as text', { q_num_heads: '2', kv_num_heads: 2 }],
    ['a fraction of a head', { q_num_heads: 2.5, kv_num_heads: 2 }],
    ['an unknown attribute', { q_num_heads: 2, kv_num_heads: 2, magic: 1 }],
    ['__proto__', JSON.parse('{"q_num_heads":2,"kv_num_heads":2,"__proto__":1}') as JsonObject],
    ['a negative window', { q_num_heads: 2, kv_num_heads: 2, local_window_size: -5 }],
    ['a scale that is none', { q_num_heads: 2, kv_num_heads: 2, scale: Number.POSITIVE_INFINITY }],
    ['a soft cap', { q_num_heads: 2, kv_num_heads: 2, softcap: 30 }],
    ['not causal', { q_num_heads: 2, kv_num_heads: 2, is_causal: 0 }],
  ])('attention with %s', (_, attributes) => {
    expect(['GRAPH_INVALID', 'OP_UNSUPPORTED']).toContain(plan(attention(16, attributes)))
  })

  it('a cycle, a value made twice, a value nobody makes, a node that reads itself', () => {
    const add = (id: string, a: string, b: string) => onnx('Add', id, [a, b])
    for (const nodes of [
      [add('a', 'x', 'b'), add('b', 'x', 'a')],
      [add('a', 'a', 'x')],
      [add('a', 'x', 'x'), { ...add('b', 'x', 'x'), outputs: ['a'] }],
      [add('a', 'x', 'nothing')],
      [add('a', 'x', 'x'), add('a', 'x', 'x')],
    ])
      expect(plan(around(8, () => ({ nodes, out: 'a' })))).toBe('GRAPH_INVALID')
  })

  it('a chain of 50,000 nodes, and one more than is allowed', { timeout: 60_000 }, () => {
    const chain = (n: number) =>
      around(8, () => ({
        nodes: Array.from({ length: n }, (_, i) => onnx('Add', `n${i}`, [i === 0 ? 'x' : `n${i - 1}`, 'x'])),
        out: `n${n - 1}`,
      }))
    const started = performance.now()
    expect(plan(chain(49_997), 2 ** 34)).toBe('planned')
    expect(plan(chain(60_000))).toBe('FORMAT_LIMIT')
    expect(performance.now() - started).toBeLessThan(30_000)
  })

  it('values that all stay alive: the memory is refused, not allocated', { timeout: 60_000 }, async () => {
    const n = 20_000
    const nodes = Array.from({ length: n }, (_, i) => onnx('Add', `n${i}`, ['x', 'x']))
    let sum = 'n0'
    for (let i = 1; i < n; i++) {
      nodes.push(onnx('Add', `s${i}`, [sum, `n${i}`]))
      sum = `s${i}`
    }
    const graph = around(65_536, () => ({ nodes, out: sum }))
    expect(plan(graph)).toBe('BUDGET_TOO_SMALL')
    const reader = readerFor(graph)
    const engine = createEngine(reader, resolveArchitecture(reader), { memory: 2 ** 50, threads: 1 })
    await expect(engine).rejects.toMatchObject({ code: expect.stringMatching(/^BUDGET_/) })
  })

  it.each([2 ** 20, 2 ** 24])('an activation %d wide', { timeout: 60_000 }, async (width) => {
    const graph = around(width, (add) => ({
      nodes: [wia('Linear', 'y', ['x'], [add('w', [4, width])]), wia('Linear', 'z', ['y'], [add('v', [width, 4])])],
      out: 'z',
    }))
    expect(plan(graph, 64 * 2 ** 20)).toBe('BUDGET_TOO_SMALL')
    const reader = readerFor(graph)
    const error = await createEngine(reader, resolveArchitecture(reader), { memory: 2 ** 52, threads: 64 }).then(
      async (engine) => engine.close(),
      (e: unknown) => e,
    )
    if (error !== undefined) expect(isSluiceError(error), String(error)).toBe(true)
  })

  it('places barriers in linear time', () => {
    const steps = Array.from(
      { length: 50_000 },
      (_, i) => ({ op: 'add', x: 0, y: i + 1, tokens: { kind: 'all' } }) as const,
    )
    const started = performance.now()
    const barriers = placeBarriers(steps, (a, b) => a === b, new Array<number>(steps.length).fill(0))
    expect(performance.now() - started).toBeLessThan(5000)
    const count = barriers.filter(Boolean).length
    expect(count).toBeGreaterThan(50)
    expect(count).toBeLessThan(1000)
  })

  it('a context of 2^53-1 positions', () => {
    const graph = { ...attention(16, { q_num_heads: 2, kv_num_heads: 2 }), context_length: Number.MAX_SAFE_INTEGER }
    const reader = readerFor(graph)
    const arch = resolveArchitecture(reader)
    const ask = (context: number) => () =>
      forecast(reader, arch, { memory: 2 ** 30 + process.memoryUsage().rss, context, threads: 1 })
    expect(ask(4096)).not.toThrow()
    expect(ask(2 ** 52)).toThrow(expect.objectContaining({ code: 'BUDGET_TOO_SMALL' }))
  })

  it('names of the prototype, and texts in place of lists', () => {
    const nodes = [onnx('Add', '__proto__', ['x', 'x']), onnx('Add', 'constructor', ['__proto__', '__proto__'])]
    expect(plan(around(8, () => ({ nodes, out: 'constructor' })))).toBe('planned')
    expect(plan(graphOf([], [{ name: '__proto__', shape: [2, 2] }]))).toBe('GRAPH_INVALID')
    expect(plan({ ...around(8, () => ({ nodes: [], out: 'x' })), nodes: 'x' })).toBe('GRAPH_INVALID')
  })
})
