// Model metadata in manifest.json: which keys, which types, which other spellings are read (FORMAT §3).
import type { JsonObject, JsonValue } from '../../base/json.ts'
import { isJsonObject, own } from '../../base/json.ts'
import { invalid } from './refuse.ts'

const TEXT_KEYS = ['framework', 'framework_version', 'author', 'license', 'description', 'source'] as const
const SHAPE_KEYS = ['input_shape', 'output_shape'] as const

/** Keys of metadata as they are written. */
export const METADATA_KEYS: ReadonlySet<string> = new Set([
  'model_name',
  'version',
  'created_date',
  'tags',
  'metadata',
  ...TEXT_KEYS,
  ...SHAPE_KEYS,
])

/** Other spellings in the standard's phases and book. */
export const METADATA_SPELLINGS: ReadonlyMap<string, string> = new Map([
  ['modelName', 'model_name'],
  ['name', 'model_name'],
  ['modelVersion', 'version'],
  ['model_version', 'version'],
  ['frameworkVersion', 'framework_version'],
  ['createdDate', 'created_date'],
  ['created_at', 'created_date'],
  ['createdAt', 'created_date'],
  ['inputShape', 'input_shape'],
  ['outputShape', 'output_shape'],
  ['licence', 'license'],
])

const SEMVER = /^(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(?:-[0-9A-Za-z.-]+)?(?:\+[0-9A-Za-z.-]+)?$/
const RFC3339 = /^\d{4}-\d{2}-\d{2}(?:[Tt]\d{2}:\d{2}:\d{2}(?:\.\d+)?(?:[Zz]|[+-]\d{2}:\d{2}))?$/

/** Metadata under its written names. Keys that are not metadata are left out. Throws FORMAT_INVALID. */
export function readMetadata(manifest: JsonObject, where: string): JsonObject {
  const entries: [string, JsonValue][] = []
  const seen = new Set<string>()
  for (const [key, value] of Object.entries(manifest)) {
    const name = METADATA_SPELLINGS.get(key) ?? key
    if (!METADATA_KEYS.has(name)) continue
    if (seen.has(name)) invalid('a metadata key stands there in two spellings', where, { got: name })
    seen.add(name)
    entries.push([name, value])
  }
  const metadata: JsonObject = Object.fromEntries(entries)
  checkMetadata(metadata, where)
  return metadata
}

/** Throws FORMAT_INVALID naming the key. */
export function checkMetadata(metadata: JsonObject, where: string): void {
  const wrong = (key: string, expected: string): never =>
    invalid(`metadata '${key}' is missing or wrong`, where, { expected, got: JSON.stringify(own(metadata, key)) })
  const name = own(metadata, 'model_name')
  if (typeof name !== 'string' || name === '') wrong('model_name', 'a string that is not empty')
  const version = own(metadata, 'version')
  if (typeof version !== 'string' || !SEMVER.test(version)) wrong('version', 'a semantic version such as "1.0.0"')
  for (const key of Object.keys(metadata)) if (!METADATA_KEYS.has(key)) invalid('unknown metadata', where, { got: key })
  for (const key of TEXT_KEYS) {
    const value = own(metadata, key)
    if (value !== undefined && typeof value !== 'string') wrong(key, 'a string')
  }
  const date = own(metadata, 'created_date')
  if (date !== undefined && (typeof date !== 'string' || !RFC3339.test(date) || Number.isNaN(Date.parse(date))))
    wrong('created_date', 'an RFC 3339 date or date-time')
  for (const key of SHAPE_KEYS) {
    const value = own(metadata, key)
    if (value !== undefined && !(Array.isArray(value) && value.every(isDimension)))
      wrong(key, 'an array of counts or symbolic names')
  }
  const tags = own(metadata, 'tags')
  if (tags !== undefined && !(Array.isArray(tags) && tags.every((t) => typeof t === 'string')))
    wrong('tags', 'an array of strings')
  const free = own(metadata, 'metadata')
  if (free !== undefined && !isJsonObject(free)) wrong('metadata', 'an object')
}

function isDimension(value: JsonValue): boolean {
  return typeof value === 'string' ? value !== '' : Number.isSafeInteger(value) && (value as number) >= 0
}
