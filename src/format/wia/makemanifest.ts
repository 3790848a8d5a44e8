// manifest.json from what was planned and written: the writing side of manifest.ts and tensorfield.ts.
import { canonicalJson, type JsonObject, type JsonValue } from '../../base/json.ts'
import { encodeInline } from './inline.ts'
import * as fmt from './layout.ts'
import { readIndex } from './packageindex.ts'
import type { PackagePlan, PlacedTensor } from './plan.ts'
import { writeQuant } from './quantfield.ts'
import { invalid } from './refuse.ts'

export interface ExtensionOptions {
  /** Optional extensions a reader may ignore. */
  used?: readonly string[]
  /** Data by extension name. */
  data?: JsonObject
}

/** What putting a tensor found out. */
export interface Finished {
  readonly checksum: string
  readonly inline?: Uint8Array
  /** Of its row panels, where it was not known when the package was planned. */
  readonly exponent?: number
}

export interface ManifestParts {
  readonly plan: PackagePlan
  readonly finished: ReadonlyMap<string, Finished>
  readonly shardHashes: readonly (string | undefined)[]
  readonly pagesSha256: string
  readonly files: { readonly [path: string]: { bytes: number; sha256: string } }
  readonly metadata: JsonObject
  readonly quantization?: JsonObject
  readonly extensions?: ExtensionOptions
}

export function shardName(shard: number): string {
  return `weights/model-${String(shard).padStart(5, '0')}.bin`
}

/**
 * The bytes of manifest.json, checked as a reader will check them: what we write we can read. Throws what the reader throws,
 * FORMAT_LIMIT above its cap.
 */
export function encodeManifest(parts: ManifestParts, root: string): Uint8Array {
  const bytes = Buffer.from(canonicalJson(manifestOf(parts)))
  readIndex(bytes, fmt.MANIFEST_FILE, root)
  return bytes
}

/** The same with hashes and inline data of zeros: everything that can be refused before the first byte is written is. */
export function rehearseManifest(
  parts: Omit<ManifestParts, 'finished' | 'shardHashes' | 'pagesSha256'>,
  root: string,
): void {
  const checksum = '0'.repeat(64)
  const finished = new Map<string, Finished>()
  for (const t of parts.plan.tensors)
    finished.set(t.name, t.isInline ? { checksum, inline: new Uint8Array(t.length) } : { checksum })
  encodeManifest({ ...parts, finished, shardHashes: [], pagesSha256: checksum }, root)
}

function manifestOf(parts: ManifestParts): JsonObject {
  const { plan, metadata, extensions } = parts
  const required = requiredExtensions(plan)
  const quantization = quantizationOf(plan, parts.quantization)
  return {
    ...metadata,
    format_version: fmt.FORMAT_VERSION,
    extensionsRequired: required,
    extensionsUsed: [...new Set([...required, ...(extensions?.used ?? [])])].sort(),
    ...(extensions?.data === undefined ? {} : { extensions: extensions.data }),
    shards: plan.shards.map((bytes, i): JsonObject => {
      const sha256 = parts.shardHashes[i]
      return { file: shardName(i), bytes, ...(sha256 === undefined ? {} : { sha256 }) }
    }),
    ...(plan.pages === 0 ? {} : { pages: { file: fmt.PAGES_FILE, count: plan.pages, sha256: parts.pagesSha256 } }),
    files: parts.files as JsonObject,
    // fromEntries defines properties, so that a tensor may be named __proto__.
    tensors: Object.fromEntries(plan.tensors.map((t) => [t.name, tensorField(t, parts.finished.get(t.name))])),
    ...(quantization === undefined ? {} : { quantization }),
  }
}

function tensorField(t: PlacedTensor, done: Finished | undefined): JsonObject {
  const base: JsonObject = { dtype: t.dtype, shape: [...t.shape] }
  if (t.alias !== undefined) return { ...base, alias: t.alias }
  if (done === undefined) return invalid('tensor was not put', `tensor ${t.name}`)
  if (t.layout !== 'row-major') base.layout = t.layout
  base.checksum = `sha256:${done.checksum}`
  if (t.strides !== undefined && t.layout === 'row-major') base.strides = [...t.strides]
  const { exponent } = done
  const encoding = t.encoding.kind === 'panel' && exponent !== undefined ? { ...t.encoding, exponent } : t.encoding
  const quant = writeQuant(encoding, t.linear)
  if (quant !== undefined) base.quant = quant
  if (done.inline !== undefined) return { ...base, inline: encodeInline(done.inline) }
  base.length = t.length
  base.page_first = t.pageFirst!
  base.page_rows = t.pageRows!
  if (t.ranges.length > 1)
    return {
      ...base,
      segments: t.ranges.map(
        ({ source, offset, length, rows }): JsonValue => ({ shard: source, offset, length, rows }),
      ),
    }
  const { source, offset } = t.ranges[0]!
  return { ...base, shard: source, offset }
}

function requiredExtensions(plan: PackagePlan): string[] {
  const required = new Set<string>()
  for (const t of plan.tensors) {
    if (t.encoding.kind === 'panel') required.add(fmt.BLOCK_QUANT)
    if (!fmt.STANDARD_DTYPES.has(t.dtype)) required.add(fmt.EXTRA_DTYPES)
  }
  return [...required].sort()
}

/** Code ranges of the FP8 schemes before the block's scale. */
const FP8_RANGE: JsonObject = { fp8_e4m3: [-448, 448], fp8_e5m2: [-57344, 57344] }

/** The quantization manifest that the standard requires, true to the tensors; `given` fields win. Undefined when nothing is quantized. */
function quantizationOf(plan: PackagePlan, given: JsonObject | undefined): JsonObject | undefined {
  const schemes = new Set<string>()
  let axis: number | null = null
  for (const t of plan.tensors) {
    if (t.alias !== undefined) continue
    if (t.encoding.kind === 'panel') schemes.add(t.encoding.scheme)
    else if (t.linear !== undefined) {
      schemes.add('LINEAR')
      axis ??= t.linear.axis ?? null
    }
  }
  if (schemes.size === 0) return given
  const names = [...schemes].sort()
  const scheme = names.length === 1 ? names[0]! : 'mixed'
  const fp8 = names.filter((n) => n.startsWith('fp8'))
  return {
    scheme,
    weightDtype: scheme === 'LINEAR' ? 'int8' : scheme,
    activationDtype: 'float32',
    biasDtype: 'float32',
    perChannel: axis !== null,
    axis,
    calibrationDataset: null,
    calibrationSamples: 0,
    outlierClipping: null,
    ...(fp8.length === 0 ? {} : { range: Object.fromEntries(fp8.map((n) => [n, FP8_RANGE[n]!])) }),
    ...given,
  }
}
