// manifest.json above the tensor index: version, extensions, metadata, shards, page table, files, quantization manifest (FORMAT §3, §8, §9).
import type { JsonObject } from '../../base/json.ts'
import { isJsonObject, own } from '../../base/json.ts'
import { MAX_SHARDS } from '../../base/limits.ts'
import { booleanField, countField, objectField, onlyKeys, sha256Field, textField, textList } from './fields.ts'
import { checkPackagePath } from './folder.ts'
import * as layout from './layout.ts'
import { METADATA_KEYS, METADATA_SPELLINGS, readMetadata } from './metadata.ts'
import { invalid, tooMany, unsupported } from './refuse.ts'

export interface ShardRecord {
  readonly file: string
  readonly bytes: number
  readonly sha256?: string
}

export interface FileRecord {
  readonly bytes: number
  readonly sha256: string
}

export interface PagesRecord {
  readonly file: string
  readonly count: number
  readonly sha256: string
}

/** Everything of the manifest but the tensors. */
export interface ManifestHead {
  readonly formatVersion: string
  readonly extensionsUsed: readonly string[]
  readonly extensionsRequired: ReadonlySet<string>
  /** Data of extensions, by name. */
  readonly extensions?: JsonObject
  readonly metadata: JsonObject
  readonly shards: readonly ShardRecord[]
  readonly pages?: PagesRecord
  readonly files: ReadonlyMap<string, FileRecord>
  readonly quantization?: JsonObject
}

const STRUCTURE_KEYS: ReadonlySet<string> = new Set([
  'format_version',
  'extensionsUsed',
  'extensionsRequired',
  'extensions',
  'shards',
  'pages',
  'files',
  'tensors',
  'quantization',
])
const SHARD_KEYS = new Set(['file', 'bytes', 'sha256'])
const PAGES_KEYS = new Set(['file', 'count', 'sha256'])
const FILE_KEYS = new Set(['bytes', 'sha256'])

/** Throws FORMAT_INVALID, FORMAT_UNSUPPORTED, FORMAT_LIMIT, PATH_FORBIDDEN. `where` is the manifest's path, `root` the package. */
export function readHead(manifest: JsonObject, where: string, root: string): ManifestHead {
  const formatVersion = textField(manifest, 'format_version', where)
  const newer = checkVersion(formatVersion, where)
  for (const key of Object.keys(manifest))
    if (!newer && !STRUCTURE_KEYS.has(key) && !METADATA_KEYS.has(key) && !METADATA_SPELLINGS.has(key))
      unsupported('unknown field', where, key, "Free-form facts belong into 'metadata'.")
  const pages = own(manifest, 'pages')
  const quantization = own(manifest, 'quantization')
  return {
    formatVersion,
    ...readExtensions(manifest, where),
    metadata: readMetadata(manifest, where),
    shards: readShards(manifest, where, root),
    ...(pages === undefined ? {} : { pages: readPages(objectField(manifest, 'pages', where), where) }),
    files: readFiles(objectField(manifest, 'files', where), where, root),
    ...(quantization === undefined ? {} : { quantization: objectField(manifest, 'quantization', where) }),
  }
}

/** True when the package has a higher minor version than this reader. Another major is refused. */
function checkVersion(version: string, where: string): boolean {
  const m = /^(\d{1,9})\.(\d{1,9})(?:\.\d{1,9})?$/.exec(version)
  if (m === null) invalid('format_version is not MAJOR.MINOR', where, { got: version })
  if (Number(m[1]) !== layout.FORMAT_MAJOR)
    unsupported('package has another major version', where, version, `This reader knows ${layout.FORMAT_MAJOR}.x.`)
  return Number(m[2]) > layout.FORMAT_MINOR
}

function readExtensions(manifest: JsonObject, where: string) {
  const extensionsUsed = textList(manifest, 'extensionsUsed', where)
  const extensionsRequired = new Set(textList(manifest, 'extensionsRequired', where))
  for (const name of extensionsRequired) {
    if (!layout.KNOWN_EXTENSIONS.has(name))
      unsupported('package requires an unknown extension', where, name, 'A newer version of sluice may know it.')
    if (!extensionsUsed.includes(name)) invalid('a required extension is not in extensionsUsed', where, { got: name })
  }
  if (own(manifest, 'extensions') === undefined) return { extensionsUsed, extensionsRequired }
  const extensions = objectField(manifest, 'extensions', where)
  for (const name of Object.keys(extensions))
    if (!extensionsUsed.includes(name))
      invalid('extensions has data of one not in extensionsUsed', where, { got: name })
  return { extensionsUsed, extensionsRequired, extensions }
}

function readShards(manifest: JsonObject, where: string, root: string): ShardRecord[] {
  const list = own(manifest, 'shards')
  if (!Array.isArray(list)) invalid("field 'shards' is missing or no array", where)
  if (list.length > MAX_SHARDS) tooMany('too many shards', where, MAX_SHARDS, list.length)
  const seen = new Set<string>()
  return list.map((shard, i) => {
    const at = `${where}, shards[${i}]`
    if (!isJsonObject(shard)) invalid('shard is not an object', at)
    onlyKeys(shard, SHARD_KEYS, at)
    const file = textField(shard, 'file', at)
    checkPackagePath(root, file)
    if (!layout.SHARD_PATTERN.test(file))
      invalid('a shard lies in another place', at, { expected: 'weights/<name>.bin', got: file }, 'PATH_FORBIDDEN')
    if (seen.has(file)) invalid('a shard is listed twice', at, { got: file })
    seen.add(file)
    const bytes = countField(shard, 'bytes', at)
    return own(shard, 'sha256') === undefined
      ? { file, bytes }
      : { file, bytes, sha256: sha256Field(shard, 'sha256', at) }
  })
}

function readPages(pages: JsonObject, manifest: string): PagesRecord {
  const where = `${manifest}, pages`
  onlyKeys(pages, PAGES_KEYS, where)
  const file = textField(pages, 'file', where)
  if (file !== layout.PAGES_FILE)
    invalid('the page table has another name', where, { expected: layout.PAGES_FILE, got: file }, 'PATH_FORBIDDEN')
  const count = countField(pages, 'count', where)
  if (!Number.isSafeInteger(count * 32)) invalid('page count is too large', where, { got: count })
  return { file, count, sha256: sha256Field(pages, 'sha256', where) }
}

function readFiles(files: JsonObject, manifest: string, root: string): Map<string, FileRecord> {
  const paths = Object.keys(files)
  if (paths.length > layout.MAX_FILES) tooMany('too many files', manifest, layout.MAX_FILES, paths.length)
  const map = new Map<string, FileRecord>()
  for (const path of paths) {
    const where = `${manifest}, files ${path}`
    checkPackagePath(root, path)
    if (path !== layout.ARCHITECTURE_FILE && !layout.SIDE_FOLDERS.some((f) => path.startsWith(`${f}/`)))
      invalid(
        'a file lies in another place',
        where,
        { expected: layout.SIDE_FOLDERS.join('/ '), got: path },
        'PATH_FORBIDDEN',
      )
    const record = objectField(files, path, where)
    onlyKeys(record, FILE_KEYS, where)
    map.set(path, { bytes: countField(record, 'bytes', where), sha256: sha256Field(record, 'sha256', where) })
  }
  return map
}

const QUANTIZATION_KEYS = new Set([
  'scheme',
  'weightDtype',
  'activationDtype',
  'biasDtype',
  'perChannel',
  'axis',
  'calibrationDataset',
  'calibrationSamples',
  'outlierClipping',
  'range',
])

/** The quantization manifest (FORMAT §8), against the schemes that tensors really have. */
export function checkQuantization(q: JsonObject | undefined, schemes: ReadonlySet<string>, manifest: string): void {
  const where = `${manifest}, quantization`
  if (q === undefined) {
    if (schemes.size > 0) invalid('a quantized model has no quantization manifest', where, { got: [...schemes] })
    return
  }
  if (schemes.size === 0) invalid('a quantization manifest without a quantized tensor', where)
  onlyKeys(q, QUANTIZATION_KEYS, where)
  for (const key of ['scheme', 'weightDtype', 'activationDtype', 'biasDtype']) textField(q, key, where)
  booleanField(q, 'perChannel', where)
  countField(q, 'calibrationSamples', where)
  if (own(q, 'axis') !== null) countField(q, 'axis', where)
  if (own(q, 'calibrationDataset') !== null) textField(q, 'calibrationDataset', where)
  const clip = own(q, 'outlierClipping')
  if (clip !== null && typeof clip !== 'number') invalid("field 'outlierClipping' is no number or null", where)
  const range = own(q, 'range') === undefined ? {} : objectField(q, 'range', where)
  for (const [scheme, pair] of Object.entries(range))
    if (!Array.isArray(pair) || pair.length !== 2 || !pair.every((v) => typeof v === 'number') || pair[0]! >= pair[1]!)
      invalid('range is not [min, max]', where, { got: scheme })
  for (const scheme of schemes)
    if (scheme.startsWith('fp8') && own(range, scheme) === undefined)
      invalid('range is missing for an FP8 scheme', where, { expected: scheme })
}
