// architecture.json: what is read, what is refused and how it is named; the tensor check; the operator registry.
import { afterEach, expect, test } from 'vitest'
import { buildArchitecture } from '#sluice/arch/registry.js'
import { type ErrorCode, isSluiceError } from '#sluice/base/errors.js'
import { canonicalJson, type JsonObject, type JsonValue, parseJsonObject } from '#sluice/base/json.js'
import { compile } from '#sluice/graph/compile.js'
import { readGraph } from '#sluice/graph/read.js'
import { OpRegistry } from '#sluice/graph/registry.js'
import { checkTensors, findTensor } from '#sluice/graph/tensors.js'
import { MAX_GRAPH_NODES } from '#sluice/graph/validate.js'
import { writeGraph } from '#sluice/graph/write.js'
import { SIZE, toyConfig, toyModel } from '../arch/toy.ts'

type Node = {
  name: string
  op: string
  domain: string
  inputs: string[]
  outputs: string[]
  attributes: JsonObject
  weights: string[]
}
interface Json {
  nodes: Node[]
  edges?: JsonValue[]
  inputs: { name: string; dtype: string; shape: JsonValue[] }[]
  outputs: { name: string; dtype: string; shape: JsonValue[] }[]
  initializers: { name: string; shape: number[] }[]
  opsets: { domain: string; version: number }[]
  [key: string]: unknown
}

const model = toyModel(SIZE, toyConfig(SIZE), 3)
const arch = buildArchitecture(model)
const fresh = () => structuredClone(writeGraph(arch.graph)) as unknown as Json
const read = (json: Json) => readGraph(json as unknown as JsonObject)

function refusal(run: () => unknown): { code: ErrorCode | 'none'; message: string } {
  try {
    run()
  } catch (err) {
    if (isSluiceError(err)) return { code: err.code, message: err.message }
    throw err
  }
  return { code: 'none', message: '' }
}

test('what is written is read back the same, and is the same JSON every time', () => {
  const text = canonicalJson(writeGraph(arch.graph))
  const { graph, warnings } = readGraph(parseJsonObject(text, { where: 'architecture.json' }))
  expect(warnings).toEqual([])
  expect(graph).toEqual(arch.graph)
  expect(canonicalJson(writeGraph(graph))).toBe(text)
})

test('nodes in any order become execution order; edges may be absent; ids, upper case types and -1 are read', () => {
  const json = fresh()
  json.nodes.reverse()
  delete json.edges
  json.inputs[0]!.dtype = 'INT64'
  json.inputs[0]!.shape = [-1]
  json.outputs[0]!.shape = [-1, SIZE.vocabulary]
  const { name, domain: _, ...rest } = json.nodes.find((n) => n.domain === 'ai.onnx')!
  json.nodes = json.nodes.map((n) => (n.name === name ? ({ ...rest, id: name } as unknown as Node) : n))
  const { graph, warnings } = read(json)
  expect(warnings.length).toBe(2)
  expect(warnings[0]).toContain('-1')
  expect(writeGraph(graph).inputs).toEqual(fresh().inputs)
  expect(writeGraph(graph).outputs).toEqual(fresh().outputs)
  const made = new Set(graph.inputs.map((i) => i.name))
  for (const node of graph.nodes) {
    for (const value of node.inputs) expect(made.has(value)).toBe(true)
    for (const value of node.outputs) made.add(value)
  }
  expect(compile(graph).steps.length).toBe(compile(arch.graph).steps.length)
})

const at = (json: Json, name: string) => json.nodes.find((n) => n.name === name)!
const BROKEN: [string, ErrorCode, string, (json: Json) => void][] = [
  ['unknown field at the top', 'GRAPH_INVALID', 'surprise', (j) => void Object.assign(j, { surprise: 1 })],
  ['unknown field in a node', 'GRAPH_INVALID', 'fused', (j) => void Object.assign(j.nodes[0]!, { fused: true })],
  [
    'unknown field in an initializer',
    'GRAPH_INVALID',
    'scale',
    (j) => void Object.assign(j.initializers[0]!, { scale: 2 }),
  ],
  ['no nodes', 'GRAPH_INVALID', 'nodes', (j) => void Object.assign(j, { nodes: undefined })],
  ['nodes no list', 'GRAPH_INVALID', 'nodes', (j) => void Object.assign(j, { nodes: {} })],
  ['a node that is null', 'GRAPH_INVALID', 'nodes[1]', (j) => void Object.assign(j.nodes, { 1: null })],
  ['a later opset', 'OP_UNSUPPORTED', 'ai.onnx version 99', (j) => void Object.assign(j.opsets[0]!, { version: 99 })],
  [
    'an unknown domain',
    'OP_UNSUPPORTED',
    'com.example',
    (j) => void j.opsets.push({ domain: 'com.example', version: 1 }),
  ],
  ['a domain without an opset', 'GRAPH_INVALID', 'ai.wia', (j) => void j.opsets.pop()],
  ['an unknown operator', 'OP_UNSUPPORTED', 'Softmax', (j) => void Object.assign(at(j, 'norm'), { op: 'Softmax' })],
  ['an operator of a later opset', 'OP_UNSUPPORTED', 'Swish', (j) => void Object.assign(j.opsets[0]!, { version: 23 })],
  ['two nodes of one name', 'GRAPH_INVALID', 'norm', (j) => void Object.assign(at(j, 'select'), { name: 'norm' })],
  [
    'two initializers of one name',
    'GRAPH_INVALID',
    'model.embed_tokens',
    (j) => void j.initializers.push(j.initializers[0]!),
  ],
  ['a value made twice', 'GRAPH_INVALID', 'norm', (j) => void Object.assign(at(j, 'select'), { outputs: ['norm'] })],
  [
    'a value made by none',
    'GRAPH_INVALID',
    'nowhere',
    (j) => void Object.assign(at(j, 'norm'), { inputs: ['nowhere'] }),
  ],
  ['an unknown weight', 'GRAPH_INVALID', 'other', (j) => void Object.assign(at(j, 'norm'), { weights: ['other'] })],
  ['a missing output', 'GRAPH_INVALID', 'nothing', (j) => void Object.assign(j.outputs[0]!, { name: 'nothing' })],
  [
    'another output shape',
    'GRAPH_INVALID',
    '[logit_tokens, 23]',
    (j) => void Object.assign(j.outputs[0]!, { shape: ['tokens', 23] }),
  ],
  ['a free symbol', 'GRAPH_INVALID', 'batch', (j) => void Object.assign(j.inputs[0]!, { shape: ['batch'] })],
  [
    'a -1 that is not first',
    'GRAPH_INVALID',
    'input_ids',
    (j) => void Object.assign(j.inputs[0]!, { shape: ['tokens', -1] }),
  ],
  [
    'a wrong weight shape',
    'GRAPH_INVALID',
    'lm_head.weight',
    (j) => void Object.assign(j.initializers.find((i) => i.name === 'lm_head.weight')!, { shape: [23, 21] }),
  ],
  [
    'a shape past 2^53',
    'FORMAT_INVALID',
    'initializer',
    (j) => void Object.assign(j.initializers[0]!, { shape: [2 ** 40, 2 ** 40] }),
  ],
  ['an empty initializer', 'GRAPH_INVALID', 'empty', (j) => void Object.assign(j.initializers[0]!, { shape: [0, 4] })],
  ['an unknown attribute', 'GRAPH_INVALID', 'magic', (j) => void Object.assign(at(j, 'norm').attributes, { magic: 1 })],
  [
    'an attribute of the wrong type',
    'GRAPH_INVALID',
    'epsilon',
    (j) => void Object.assign(at(j, 'norm').attributes, { epsilon: '1e-5' }),
  ],
  [
    'an attribute out of range',
    'GRAPH_INVALID',
    'epsilon',
    (j) => void Object.assign(at(j, 'norm').attributes, { epsilon: -1 }),
  ],
  [
    'an axis that is not implemented',
    'OP_UNSUPPORTED',
    'axis',
    (j) => void Object.assign(at(j, 'norm').attributes, { axis: 0 }),
  ],
  [
    'a missing attribute',
    'GRAPH_INVALID',
    'num_heads',
    (j) => void delete at(j, 'layers.0.q.rotated').attributes.num_heads,
  ],
  [
    'a softcap',
    'OP_UNSUPPORTED',
    'softcap',
    (j) => void Object.assign(at(j, 'layers.0.attention').attributes, { softcap: 30 }),
  ],
  [
    'no causality',
    'OP_UNSUPPORTED',
    'is_causal',
    (j) => void Object.assign(at(j, 'layers.0.attention').attributes, { is_causal: 0 }),
  ],
  [
    'heads that do not fit',
    'GRAPH_INVALID',
    'kv_num_heads|heads',
    (j) => void Object.assign(at(j, 'layers.0.attention').attributes, { kv_num_heads: 3 }),
  ],
  [
    'a cache as wide as memory',
    'GRAPH_INVALID',
    'dim',
    (j) => void Object.assign(at(j, 'rotary').attributes, { dim: 2 ** 40 }),
  ],
  [
    'an unknown scaling',
    'OP_UNSUPPORTED',
    'ntk',
    (j) => void Object.assign(at(j, 'rotary').attributes, { scaling: 'ntk' }),
  ],
  [
    'yarn on a base of 1',
    'GRAPH_INVALID',
    'base',
    (j) => void Object.assign(at(j, 'rotary').attributes, { scaling: 'yarn', base: 1 }),
  ],
  [
    'divisors of another length',
    'GRAPH_INVALID',
    'divisors',
    (j) => void Object.assign(at(j, 'rotary').attributes, { divisors: [1, 2] }),
  ],
  [
    'a divisor of 0',
    'GRAPH_INVALID',
    'divisors',
    (j) => void Object.assign(at(j, 'rotary').attributes, { divisors: [1, 0, 1] }),
  ],
  [
    'a negative window',
    'GRAPH_INVALID',
    'window',
    (j) => void Object.assign(at(j, 'layers.0.attention').attributes, { window: -1 }),
  ],
  [
    'groups that do not divide',
    'GRAPH_INVALID',
    'groups',
    (j) => void Object.assign(at(j, 'norm').attributes, { groups: 3 }),
  ],
  [
    'a scale for the whole width, with groups',
    'GRAPH_INVALID',
    'scale',
    (j) => void Object.assign(at(j, 'norm').attributes, { groups: 2 }),
  ],
  ['too many inputs', 'GRAPH_INVALID', 'inputs', (j) => void at(j, 'norm').inputs.push('embed')],
  ['a wrong edge', 'GRAPH_INVALID', 'norm → embed', (j) => void j.edges!.push({ from: 'norm', to: 'embed' })],
  ['a missing edge', 'GRAPH_INVALID', 'edge is missing', (j) => void j.edges!.splice(5, 1)],
  ['a context of nothing', 'GRAPH_INVALID', 'context_length', (j) => void Object.assign(j, { context_length: 0 })],
  ['a long name', 'FORMAT_LIMIT', 'too long', (j) => void Object.assign(j, { name: 'x'.repeat(5000) })],
]

test.each(BROKEN)('%s: %s', (_, code, name, change) => {
  const json = fresh()
  change(json)
  const got = refusal(() => read(json))
  expect(got.code).toBe(code)
  expect(got.message).toMatch(new RegExp(name.includes('|') ? name : name.replace(/[.[\]+^$()]/g, '\\$&')))
})

test('a cycle is named, however long', () => {
  const json = fresh()
  at(json, 'layers.0.attention.norm').inputs = ['layers.0.residual']
  delete json.edges
  const got = refusal(() => read(json))
  expect(got.code).toBe('GRAPH_INVALID')
  expect(got.message).toMatch(/cycle.*layers\.0\.attention\.norm/)

  const deep = fresh()
  delete deep.edges
  const identity = (i: number): Node => ({
    name: `i${i}`,
    op: 'Identity',
    domain: 'ai.onnx',
    inputs: [`i${i + 1}`],
    outputs: [`i${i}`],
    attributes: {},
    weights: [],
  })
  deep.nodes = Array.from({ length: MAX_GRAPH_NODES }, (_, i) => identity(i))
  deep.nodes.at(-1)!.inputs = ['i0']
  expect(refusal(() => read(deep)).message).toContain('cycle')
  deep.nodes.push(identity(MAX_GRAPH_NODES))
  expect(refusal(() => read(deep)).code).toBe('FORMAT_LIMIT')
})

test('a chain as long as the cap compiles without overflowing the stack', () => {
  const json = fresh()
  delete json.edges
  const count = MAX_GRAPH_NODES - 1000
  const chain = Array.from(
    { length: count },
    (_, i): Node => ({
      name: `i${i}`,
      op: 'Identity',
      domain: 'ai.onnx',
      inputs: [i === 0 ? 'layers.1.residual' : `i${i - 1}`],
      outputs: [`i${i}`],
      attributes: {},
      weights: [],
    }),
  )
  at(json, 'select').inputs[0] = `i${count - 1}`
  json.nodes.push(...chain)
  expect(compile(read(json).graph).steps.length).toBe(compile(arch.graph).steps.length)
})

test('unused initializers are warned of', () => {
  const json = fresh()
  json.initializers.push({ name: 'spare', shape: [4] })
  expect(read(json).warnings).toEqual(['1 initializers are used by no node: spare'])
})

test('what has no plan step is refused by compile, not computed wrongly', () => {
  const change = (name: string, to: Partial<Node>) => {
    const json = fresh()
    delete json.edges
    Object.assign(at(json, name), to)
    return refusal(() => compile(read(json).graph))
  }
  expect(change('layers.0.gate.swish', { op: 'Sigmoid' })).toMatchObject({ code: 'OP_UNSUPPORTED' })
  expect(change('rotary', { inputs: ['input_ids'] })).toMatchObject({ code: 'OP_UNSUPPORTED' })
  expect(change('layers.0.q.rotated', { inputs: ['layers.0.q', 'sin', 'cos'] })).toMatchObject({
    code: 'OP_UNSUPPORTED',
  })
})

test('tensors: missing, of another shape, unexpected; five names and the count', () => {
  const tensors = () => new Map([...model.tensors].map(([n, t]) => [n, { shape: t.shape }]))
  const check = (t: ReadonlyMap<string, { shape: readonly number[] }>, more = {}) =>
    refusal(() => checkTensors(arch.graph, t, more))
  expect(check(tensors()).code).toBe('none')
  const few = tensors()
  for (const name of [...few.keys()].slice(0, 7)) few.delete(name)
  expect(check(few)).toMatchObject({
    code: 'TENSOR_MISSING',
    message: expect.stringMatching(/\(7\).*embed_tokens.*and 2 more/),
  })
  const wrong = tensors()
  wrong.set('lm_head.weight', { shape: [20, 23] })
  expect(check(wrong)).toMatchObject({
    code: 'TENSOR_SHAPE',
    message: expect.stringContaining('lm_head.weight: expected [23, 20], got [20, 23]'),
  })
  const extra = tensors()
  extra.set('left.over', { shape: [1] })
  expect(check(extra)).toMatchObject({ code: 'TENSOR_UNEXPECTED', message: expect.stringContaining('left.over') })
  expect(check(extra, { ignored: new Set(['left.over']) }).code).toBe('none')
})

test('parts of stacked tensors', () => {
  const stacked = new Map([
    ['w', { shape: [2, 3, 4] }],
    ['odd#1', { shape: [3, 4] }],
  ])
  expect(findTensor(stacked, 'w#1')).toEqual({ tensor: 'w', part: 1 })
  expect(findTensor(stacked, 'odd#1')).toEqual({ tensor: 'odd#1' })
  expect(findTensor(stacked, 'none#1')).toBeUndefined()
  expect(findTensor(stacked, 'w#01')).toBeUndefined()
  const graph = { ...arch.graph, weights: [{ name: 'a', shape: [3, 4] }] }
  const check = (to: string) =>
    refusal(() => checkTensors(graph, new Map([['w', { shape: [2, 3, 4] }]]), { names: new Map([['a', to]]) })).code
  expect(check('w#1')).toBe('none')
  expect(check('w#2')).toBe('TENSOR_SHAPE')
  expect(check('w')).toBe('TENSOR_SHAPE')
})

test('rows of a matrix: every row must belong to one weight', () => {
  const fused = new Map([['w', { shape: [7, 4] }]])
  expect(findTensor(fused, 'w[2:7]')).toEqual({ tensor: 'w', part: { start: 2, end: 7 } })
  for (const bad of ['w[02:7]', 'w[2:0]', 'w[-1:3]', 'w[2:7', 'none[0:1]', 'w[1e0:2]'])
    expect(findTensor(fused, bad)).toBeUndefined()
  expect(findTensor(new Map([['w[0:1]', 0]]), 'w[0:1]')).toEqual({ tensor: 'w[0:1]' })
  const check = (a: string, b: string, rows: [number, number], shape = [7, 4]) => {
    const weights = [
      { name: 'a', shape: [rows[0], 4] },
      { name: 'b', shape: [rows[1], 4] },
    ]
    const names = new Map(Object.entries({ a, b }))
    return refusal(() => checkTensors({ ...arch.graph, weights }, new Map([['w', { shape }]]), { names }))
  }
  expect(check('w[0:3]', 'w[3:7]', [3, 4]).code).toBe('none')
  expect(check('w[3:7]', 'w[0:3]', [4, 3]).code).toBe('none')
  expect(check('w[0:3]', 'w[3:6]', [3, 3])).toMatchObject({
    code: 'TENSOR_SHAPE',
    message: expect.stringContaining('7 rows'),
  })
  expect(check('w[0:3]', 'w[2:7]', [3, 5]).code).toBe('TENSOR_SHAPE')
  expect(check('w[0:3]', 'w[3:8]', [3, 5]).code).toBe('TENSOR_SHAPE')
  expect(check('w[0:3]', 'w[3:7]', [3, 3]).code).toBe('TENSOR_SHAPE')
  expect(check('w[3:3]', 'w[0:7]', [0, 7]).code).toBe('TENSOR_SHAPE')
  expect(check('w[0:3]', 'w[3:7]', [3, 4], [7, 2, 2]).code).toBe('TENSOR_SHAPE')
})

const op = { domain: 'com.example', op: 'Twice', version: 3, kernel: () => undefined }
afterEach(() => void OpRegistry.unregister(op))

test('custom operators: registered, found, and honestly not run', () => {
  const json = fresh()
  json.opsets.push({ domain: 'com.example', version: 3 })
  Object.assign(at(json, 'norm'), { domain: 'com.example', op: 'Twice', attributes: {}, weights: [] })
  expect(refusal(() => read(json)).code).toBe('OP_UNSUPPORTED')
  OpRegistry.register(op)
  expect(OpRegistry.get('com.example', 'Twice', 3)?.kernel).toBe(op.kernel)
  expect(refusal(() => read(json)).code).toBe('NOT_IMPLEMENTED')
  Object.assign(json.opsets.at(-1)!, { version: 4 })
  expect(refusal(() => read(json)).code).toBe('OP_UNSUPPORTED')
  for (const bad of [
    op,
    { ...op, domain: '' },
    { ...op, domain: 'ai.onnx' },
    { ...op, domain: 'ai.wia' },
    { ...op, op: '' },
    { ...op, version: 0 },
    { ...op, kernel: 1 as never },
  ])
    expect(refusal(() => OpRegistry.register(bad)).code).toBe('REQUEST_INVALID')
})
