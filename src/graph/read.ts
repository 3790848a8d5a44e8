// architecture.json → Graph. Strict: a field that is not known is refused by name, since an ignored one could change the result.
import { ModelFormatError, ValidationError } from '../base/errors.ts'
import { isJsonObject, type JsonObject, type JsonValue } from '../base/json.ts'
import { MAX_NAME_LENGTH, MAX_RANK } from '../base/limits.ts'
import { checkEdges, type Edge } from './edges.ts'
import type { Graph, GraphNode, ValueInfo } from './graph.ts'
import { MAX_GRAPH_NODES, validateGraph } from './validate.ts'

/** Fields for people, at the top and in nodes: read over. Everything else that is unknown is refused. */
const COMMENTS = ['description', 'doc_string', 'metadata']

/**
 * Reads and validates. Nodes come back in execution order. warnings: what was accepted and should not be written (dimensions of −1,
 * unused initializers). Throws GRAPH_INVALID, OP_UNSUPPORTED, FORMAT_LIMIT.
 */
export function readGraph(
  json: JsonObject,
  where = 'architecture.json',
): { graph: Graph; warnings: readonly string[] } {
  const top = new Fields(json, where)
  const opsets = top
    .list('opsets')
    .map((f) => ({ domain: domainOf(f.text('domain')), version: f.integer('version', 1), ...f.done() }))
  const inputs = top.list('inputs').map(readValue)
  const outputs = top.list('outputs').map(readValue)
  const weights = top.list('initializers').map((f) => {
    const weight = { name: f.text('name'), shape: f.dimensions('shape', 0) as number[] }
    f.done()
    return weight
  })
  const nodes = top.list('nodes').map(readNode)
  const edges = top.has('edges') ? top.list('edges').map(readEdge) : undefined
  const graph: Graph = {
    name: top.text('name'),
    opsets,
    inputs,
    outputs,
    nodes,
    weights,
    contextLength: top.integer('context_length', 1),
  }
  top.done()
  const checked = validateGraph(graph)
  if (edges !== undefined) checkEdges(checked.graph, edges)
  return { graph: checked.graph, warnings: checked.warnings }
}

function domainOf(name: string): string {
  return name === '' ? 'ai.onnx' : name
}

function readValue(f: Fields): ValueInfo {
  const value = { name: f.text('name'), dtype: f.text('dtype').toLowerCase(), shape: f.dimensions('shape', -1) }
  f.done()
  return value
}

function readNode(f: Fields): GraphNode {
  const name = f.has('name') ? f.text('name') : f.text('id')
  if (f.has('id') && f.text('id') !== name) f.fail('a node has an id and another name', f.text('id'))
  const node: GraphNode = {
    name,
    op: f.text('op'),
    domain: domainOf(f.has('domain') ? f.text('domain') : ''),
    inputs: f.names('inputs'),
    outputs: f.names('outputs'),
    attributes: f.object('attributes'),
    weights: f.has('weights') ? f.names('weights') : [],
  }
  f.done()
  return node
}

function readEdge(f: Fields): Edge {
  const edge = { from: f.text('from'), to: f.text('to') }
  f.done()
  return edge
}

/** Typed access to one object; `done` refuses what nobody asked for. */
class Fields {
  readonly #json: JsonObject
  readonly #where: string
  readonly #read = new Set(COMMENTS)

  constructor(json: JsonObject, where: string) {
    this.#json = json
    this.#where = where
  }

  has(key: string): boolean {
    this.#read.add(key)
    return Object.hasOwn(this.#json, key)
  }

  text(key: string): string {
    const value = this.#get(key)
    if (typeof value !== 'string') this.fail(`${key} is not a string`, value)
    return this.#name(key, value)
  }

  integer(key: string, min: number): number {
    const value = this.#get(key)
    if (typeof value !== 'number' || !Number.isSafeInteger(value) || value < min)
      this.fail(`${key} is not a count`, value)
    return value
  }

  object(key: string): JsonObject {
    if (!this.has(key)) return {}
    const value = this.#get(key)
    if (!isJsonObject(value)) this.fail(`${key} is not an object`, value)
    return value
  }

  names(key: string): string[] {
    return this.#array(key).map((v) =>
      typeof v === 'string' ? this.#name(key, v) : this.fail(`${key} is not a list of names`, v),
    )
  }

  /** Integers ≥ min and names; min = 0 allows no names. */
  dimensions(key: string, min: number): (number | string)[] {
    const list = this.#array(key)
    if (list.length > MAX_RANK) this.#limit(`${key} has too many dimensions`, MAX_RANK, list.length)
    return list.map((d) => {
      if (typeof d === 'number' ? Number.isSafeInteger(d) && d >= min : typeof d === 'string' && min < 0)
        return d as number | string
      return this.fail(`${key} has an impossible dimension`, d)
    })
  }

  list(key: string): Fields[] {
    const values = this.#array(key)
    if (key === 'nodes' && values.length > MAX_GRAPH_NODES)
      this.#limit('the graph has too many nodes', MAX_GRAPH_NODES, values.length)
    return values.map((v, i) =>
      isJsonObject(v) ? new Fields(v, `${this.#where}, ${key}[${i}]`) : this.fail(`${key}[${i}] is not an object`, v),
    )
  }

  done(): object {
    const unknown = Object.keys(this.#json).find((key) => !this.#read.has(key))
    if (unknown !== undefined) this.fail('a field is not known', unknown)
    return {}
  }

  fail(what: string, got: unknown): never {
    const shown = got === undefined ? 'nothing' : typeof got === 'string' ? got : JSON.stringify(got)
    throw new ValidationError('GRAPH_INVALID', { what, where: this.#where, got: shown })
  }

  #get(key: string): JsonValue | undefined {
    return this.has(key) ? this.#json[key] : undefined
  }

  #array(key: string): JsonValue[] {
    const value = this.#get(key)
    if (!Array.isArray(value)) this.fail(`${key} is not a list`, value)
    return value
  }

  #name(key: string, value: string): string {
    if (value.length > MAX_NAME_LENGTH) this.#limit(`${key} is too long`, MAX_NAME_LENGTH, value.length)
    return value
  }

  #limit(what: string, most: number, got: number): never {
    throw new ModelFormatError('FORMAT_LIMIT', { what, where: this.#where, expected: `≤ ${most}`, got })
  }
}
