// Any model → package: plan, then tensor by tensor read, encode, write. Nothing stands under the final name before it is complete.
import type { ArchOutput } from '../arch/arch.ts'
import { ConversionError } from '../base/errors.ts'
import { publishProgress } from '../base/events.ts'
import type { JsonObject } from '../base/json.ts'
import type { ModelReader, PackagedAdapter } from '../format/reader.ts'
import { createWiaWriter, type SideFile } from '../format/wia/write.ts'
import type { ModelWriter } from '../format/writer.ts'
import { writeGraph } from '../graph/write.ts'
import type { QuantError } from '../quant/error.ts'
import { choosePanelExponent } from '../quant/panel-scale.ts'
import type { Encoding } from '../quant/scheme.ts'
import { openFile } from '../source/openFile.ts'
import { resolveInside } from '../source/paths.ts'
import { openTensors } from '../tensor/lazy.ts'
import { ggufTokenizerFiles } from '../text/gguf-files.ts'
import { Buffers } from './buffers.ts'
import { metadataOf } from './metadata.ts'
import { checkPlace } from './place.ts'
import { type ConversionPlan, type ConversionStep, planConversion } from './plan.ts'
import type { Quantization } from './policy.ts'
import { RowInput } from './rows.ts'
import { measureAbsmax, transform } from './transform.ts'

export interface ConvertOptions {
  readonly quantization?: Quantization
  /** Bytes a shard may have (default 1 GiB). */
  readonly maxShardBytes?: number
  /** Replace an existing output. */
  readonly force?: boolean
  readonly metadata?: JsonObject
  /** Adapters to pack under adapters/<name>, checked by the caller to match the model. */
  readonly adapters?: readonly PackagedAdapter[]
  readonly signal?: AbortSignal
  /** Bytes available in a folder; default: what the file system says. */
  readonly freeBytes?: (folder: string) => number
}

export interface TensorReport {
  readonly name: string
  readonly encoding: Encoding
  readonly bytes: number
  /** Absent where nothing was rounded. */
  readonly error?: QuantError
}

export interface ConversionReport {
  readonly output: string
  readonly bytesIn: number
  readonly bytesOut: number
  readonly parameters: number
  readonly tensors: readonly TensorReport[]
  /** The tensor with the largest relative error. */
  readonly worst?: TensorReport
}

/**
 * Converts to a package at `output`. `keep` leaves every number as it is: a package that was converted so is, converted again with the
 * same shard size, the same files and the same identity.
 * Throws REQUEST_INVALID when source and output are in each other's way (only a package whose numbers are kept may be replaced by
 * itself, with `force`), DISK_FULL before anything is written when it cannot fit, OUTPUT_EXISTS, QUANT_RANGE naming tensor and
 * element, SOURCE_*, CHECKSUM_MISMATCH, ABORTED. After a throw nothing is left under the output's name.
 */
export async function convertToWia(
  reader: ModelReader,
  arch: ArchOutput | undefined,
  output: string,
  options: ConvertOptions = {},
): Promise<ConversionReport> {
  const { quantization = 'keep', force = false, signal } = options
  await checkPlace(reader, output, reader.format === 'wia' && quantization === 'keep' && force)
  const plan = planConversion(reader, arch, quantization)
  const writer = createWiaWriter(output, {
    metadata: { ...metadataOf(reader), ...options.metadata },
    ...(arch === undefined ? {} : { architecture: writeGraph(arch.graph) }),
    ...(Object.keys(reader.config).length === 0 ? {} : { config: portableConfig(reader) }),
    tokenizerFiles: await tokenizerFiles(reader),
    sideFiles: await sideFiles(reader, options.adapters ?? []),
    ...(options.maxShardBytes === undefined ? {} : { maxShardBytes: options.maxShardBytes }),
    ...(options.freeBytes === undefined ? {} : { freeBytes: options.freeBytes }),
    ...(signal === undefined ? {} : { signal }),
    // Said of these very numbers: carried when they stay, not when they change.
    ...(quantization === 'keep' ? reader.remarks : {}),
    force,
  })
  try {
    writer.plan(plan.steps.map((s) => s.target))
    const tensors = await writeTensors(reader, plan, writer, signal)
    await writer.finish()
    return summary(output, plan, tensors)
  } catch (err) {
    await writer.abort()
    throw err
  }
}

async function writeTensors(
  reader: ModelReader,
  plan: ConversionPlan,
  writer: ModelWriter,
  signal: AbortSignal | undefined,
): Promise<TensorReport[]> {
  // Parts of stacked tensors are tensors of their own here.
  const sources = new Map(plan.steps.map((s) => [s.source.name, s.source]))
  const lazy = openTensors({ tensors: sources, sources: reader.sources, path: reader.path })
  const buffers = new Buffers()
  const reports: TensorReport[] = []
  let done = 0
  for (const step of plan.steps) {
    if (step.how === 'alias') continue
    const { name } = step.target
    const input = new RowInput(lazy.get(step.source.name), buffers, signal)
    const encoding = await withExponent(step, input, signal)
    let error: QuantError | undefined
    const chunks = transform(step, encoding, input, buffers, (r) => (error = r), signal)
    const count = (n: number) => {
      done += n
      publishProgress({ phase: 'convert', done, total: plan.bytesOut, unit: 'bytes', detail: name })
    }
    await writer.put(
      name,
      counted(chunks, count),
      encoding.kind === 'panel' && step.how === 'encode' ? { exponent: encoding.exponent } : {},
    )
    reports.push({ name, encoding, bytes: step.target.byteLength, ...(error === undefined ? {} : { error }) })
  }
  return reports
}

/** Block formats need a power of two a tensor, which needs the tensor's largest value: one look over it before it is encoded. */
async function withExponent(step: ConversionStep, input: RowInput, signal: AbortSignal | undefined): Promise<Encoding> {
  const { encoding } = step.target
  if (step.how !== 'encode' || encoding.kind !== 'panel') return encoding
  await input.hold()
  const absmax = await measureAbsmax(step, input, signal)
  return { ...encoding, exponent: choosePanelExponent(encoding.scheme, encoding.scale, absmax) }
}

async function* counted(chunks: AsyncIterable<Uint8Array>, count: (bytes: number) => void): AsyncGenerator<Uint8Array> {
  for await (const chunk of chunks) {
    yield chunk
    count(chunk.length)
  }
}

async function tokenizerFiles(reader: ModelReader): Promise<Map<string, Uint8Array>> {
  const files = new Map<string, Uint8Array>()
  for (const [name, read] of reader.tokenizerFiles) files.set(name, await read())
  if (reader.format === 'gguf') for (const [name, bytes] of ggufTokenizerFiles(reader.config)) files.set(name, bytes)
  return files
}

/** What a package carries beside its tensors, and the adapters to pack with it. */
async function sideFiles(reader: ModelReader, adapters: readonly PackagedAdapter[]): Promise<Map<string, SideFile>> {
  const files = new Map<string, SideFile>(reader.sideFiles ?? [])
  for (const { name, path } of adapters)
    for (const file of ['adapter_config.json', 'adapter_model.safetensors']) {
      const place = `adapters/${name}/${file}`
      if (files.has(place))
        throw new ConversionError('REQUEST_INVALID', {
          what: 'the model has an adapter of that name already',
          where: reader.path,
          got: name,
          remedy: 'Give the adapter another name: --adapter NAME=PATH.',
        })
      files.set(place, await readInside(path, file))
    }
  return files
}

/** A file of an adapter folder, which may come with a package from anywhere: no link out of it, no pipe, no device. */
async function readInside(folder: string, file: string): Promise<Uint8Array> {
  const source = await openFile(await resolveInside(folder, file, { index: 'adapter_model.safetensors' }), {
    mode: 'pread',
  })
  try {
    return await source.read(0, source.size)
  } finally {
    await source.close()
  }
}

/** GGUF metadata hold the vocabulary, which a package keeps under tokenizer/. */
function portableConfig(reader: ModelReader): JsonObject {
  if (reader.format !== 'gguf') return reader.config
  return Object.fromEntries(Object.entries(reader.config).filter(([k]) => !k.startsWith('tokenizer.')))
}

function summary(output: string, plan: ConversionPlan, tensors: TensorReport[]): ConversionReport {
  const relative = (t: TensorReport) => t.error?.relativeRmse ?? -1
  const worst = tensors.reduce<TensorReport | undefined>(
    (w, t) => (relative(t) > (w === undefined ? 0 : relative(w)) ? t : w),
    undefined,
  )
  return {
    output,
    bytesIn: plan.bytesIn,
    bytesOut: plan.bytesOut,
    parameters: plan.parameters,
    tensors,
    ...(worst === undefined ? {} : { worst }),
  }
}
