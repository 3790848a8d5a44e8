// The index over the shards of a checkpoint (*.safetensors.index.json): which file has which tensor.
import { ModelFormatError } from '../../base/errors.ts'
import { isJsonObject, type JsonObject, parseJsonObject } from '../../base/json.ts'
import { MAX_SHARDS, MAX_TENSORS } from '../../base/limits.ts'
import type { SafetensorsHeader } from './header.ts'

export interface ShardIndex {
  /** File names as the index writes them, sorted: checked by the caller before they are opened. */
  readonly files: readonly string[]
  /** Tensor → file. */
  readonly weightMap: ReadonlyMap<string, string>
  readonly metadata: JsonObject
}

function refuse(what: string, where: string, extra: object = {}): never {
  throw new ModelFormatError('FORMAT_INVALID', { what, where, ...extra })
}

/** Throws JSON_INVALID, FORMAT_INVALID, FORMAT_LIMIT. */
export function parseIndex(json: Uint8Array, where: string): ShardIndex {
  const root = parseJsonObject(json, { where })
  for (const key of Object.keys(root))
    if (key !== 'metadata' && key !== 'weight_map') refuse('unknown field in an index', where, { got: key })
  const map = Object.hasOwn(root, 'weight_map') ? root.weight_map : undefined
  if (!isJsonObject(map)) refuse('index has no weight_map', where, { got: Object.keys(root) })
  const metadata = Object.hasOwn(root, 'metadata') ? root.metadata : {}
  if (!isJsonObject(metadata)) refuse('metadata of an index is not an object', where)
  const weightMap = new Map<string, string>()
  for (const [name, file] of Object.entries(map)) {
    if (typeof file !== 'string' || !file.endsWith('.safetensors'))
      refuse('weight_map names something other than a safetensors file', `${where}, tensor ${name}`, { got: file })
    weightMap.set(name, file)
  }
  const files = [...new Set(weightMap.values())].sort()
  if (weightMap.size > MAX_TENSORS || files.length > MAX_SHARDS)
    throw new ModelFormatError('FORMAT_LIMIT', {
      what: 'index is too large',
      where,
      expected: `≤ ${MAX_TENSORS} tensors, ≤ ${MAX_SHARDS} files`,
      got: `${weightMap.size} tensors, ${files.length} files`,
    })
  return { files, weightMap, metadata }
}

/**
 * Both directions: every tensor of a shard is in the index, at this shard; every tensor of the index is in its shard.
 * Throws FORMAT_INVALID naming the first that is not.
 */
export function checkIndex(index: ShardIndex, shards: ReadonlyMap<string, SafetensorsHeader>, where: string): void {
  let found = 0
  for (const [file, header] of shards)
    for (const { name } of header.tensors) {
      const place = index.weightMap.get(name)
      if (place === undefined)
        refuse('a shard has a tensor that the index does not list', where, {
          got: `${name} in ${file}`,
          details: { tensor: name, file },
          remedy: 'Index and shards are of different models, or the index is old.',
        })
      if (place !== file)
        refuse('a tensor lies in another shard than the index says', where, {
          expected: `${name} in ${place}`,
          got: file,
          details: { tensor: name, file },
          remedy: 'Index and shards are of different models, or a tensor is in two shards.',
        })
      found++
    }
  if (found === index.weightMap.size) return
  const there = new Set([...shards.values()].flatMap((h) => h.tensors.map((t) => t.name)))
  const missing = [...index.weightMap].filter(([name]) => !there.has(name))
  const [name, file] = missing[0]!
  refuse('the index lists a tensor that its shard does not have', where, {
    expected: `${name} in ${file}`,
    got: `${missing.length} missing`,
    details: { tensor: name, file, missing: missing.length },
    remedy: 'Index and shards are of different models, or a shard is old.',
  })
}
