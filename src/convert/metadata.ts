// What a package says about itself: everything a package said before, and what other formats say in their own words.
import { basename } from 'node:path'
import { isSluiceError } from '../base/errors.ts'
import type { JsonObject, JsonValue } from '../base/json.ts'
import { own } from '../base/json.ts'
import type { ModelReader } from '../format/reader.ts'
import { checkMetadata } from '../format/wia/metadata.ts'

const TEXT_KEYS = [
  'version',
  'framework',
  'framework_version',
  'created_date',
  'author',
  'license',
  'description',
  'source',
] as const

/** Metadata of the package (docs/FORMAT.md §3). A value that breaks the format's rules for its key (a version "v2") stands under `metadata`. */
export function metadataOf(reader: ModelReader): JsonObject {
  const { config, metadata } = reader
  if (reader.format === 'wia') return metadata
  const kept: JsonObject = { version: '1.0.0', model_name: nameOf(reader) }
  const others: JsonObject = {}
  for (const key of TEXT_KEYS) {
    const value = text(own(metadata, key)) ?? text(own(config, `general.${key}`))
    if (value === undefined) continue
    if (isValid({ version: '1.0.0', model_name: 'x', [key]: value })) kept[key] = value
    else others[key] = value
  }
  return Object.keys(others).length === 0 ? kept : { ...kept, metadata: others }
}

function nameOf({ config, metadata, path }: ModelReader): string {
  const file = basename(path).replace(/\.(gguf|safetensors|safetensors\.index\.json)$/, '')
  return (
    text(own(metadata, 'model_name')) ??
    text(own(config, 'general.name')) ??
    text(own(config, '_name_or_path'))
      ?.split('/')
      .findLast((part) => part !== '') ??
    (file === '' || file === '.' ? 'model' : file)
  )
}

function text(value: JsonValue | undefined): string | undefined {
  return typeof value === 'string' && value !== '' ? value : undefined
}

function isValid(metadata: JsonObject): boolean {
  try {
    checkMetadata(metadata, '')
    return true
  } catch (error) {
    if (isSluiceError(error, 'FORMAT_INVALID')) return false
    throw error
  }
}
