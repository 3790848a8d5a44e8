// Any model → package: plan, measure, write. Nothing stands under the final name before it is complete.
import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import type { ArchOutput } from '../arch/arch.ts'
import { publishProgress } from '../base/events.ts'
import type { JsonObject, JsonValue } from '../base/json.ts'
import { own } from '../base/json.ts'
import type { ModelReader, PackagedAdapter } from '../format/reader.ts'
import { createWiaWriter } from '../format/wia/write.ts'
import { writeGraph } from '../graph/write.ts'
import type { QuantError } from '../quant/error.ts'
import { choosePanelExponent } from '../quant/panel-scale.ts'
import type { Encoding } from '../quant/scheme.ts'
import { openTensors } from '../tensor/lazy.ts'
import { ggufTokenizerFiles } from '../text/gguf-files.ts'
import { type ConversionPlan, planConversion } from './plan.ts'
import type { Quantization } from './policy.ts'
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
}

/** One tensor of the output: how it is stored and how far it is from the original. */
export interface TensorReport {
  readonly name: string
  readonly encoding: Encoding
  readonly bytes: number
  /** Absent where nothing was rounded. */
  readonly error?: QuantError
}

/** What a conversion did. Bytes are those of stored tensors. */
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
 * Throws DISK_FULL before anything is written when it cannot fit; OUTPUT_EXISTS; QUANT_RANGE naming tensor and element; SOURCE_*; ABORTED.
 * After a throw nothing is left under the output's name.
 */
export async function convertToWia(
  reader: ModelReader,
  arch: ArchOutput | undefined,
  output: string,
  options: ConvertOptions = {},
): Promise<ConversionReport> {
  const plan = planConversion(reader, arch, options.quantization ?? 'keep')
  const tensors = openTensors(reader)
  const encodings = await chooseEncodings(plan, tensors, options.signal)
  const files = await tokenizerFiles(reader)
  const writer = createWiaWriter(output, {
    metadata: { ...metadataOf(reader), ...options.metadata },
    ...(arch === undefined ? {} : { architecture: writeGraph(arch.graph) }),
    ...(Object.keys(reader.config).length === 0 ? {} : { config: portableConfig(reader) }),
    tokenizerFiles: files,
    sideFiles: await adapterFiles([...reader.adapters, ...(options.adapters ?? [])]),
    ...(options.maxShardBytes === undefined ? {} : { maxShardBytes: options.maxShardBytes }),
    force: options.force === true,
  })
  try {
    writer.plan(plan.steps.map((s, i) => ({ ...s.target, encoding: encodings[i]! })))
    const reports: TensorReport[] = []
    let done = 0
    for (const [i, step] of plan.steps.entries()) {
      let error: QuantError | undefined
      const chunks = transform(step, encodings[i]!, tensors.get(step.source.name), (r) => (error = r), options.signal)
      await writer.put(
        step.target.name,
        counted(chunks, (n) => {
          done += n
          progress('convert', done, plan.bytesOut, step.target.name)
        }),
      )
      reports.push({
        name: step.target.name,
        encoding: encodings[i]!,
        bytes: step.target.byteLength,
        ...(error === undefined ? {} : { error }),
      })
    }
    await writer.finish()
    return summary(output, plan, reports)
  } catch (err) {
    await writer.abort()
    throw err
  }
}

function progress(phase: string, done: number, total: number, detail: string): void {
  publishProgress({ phase, done, total, unit: 'bytes', detail })
}

async function* counted(chunks: AsyncIterable<Uint8Array>, count: (bytes: number) => void): AsyncGenerator<Uint8Array> {
  for await (const chunk of chunks) {
    yield chunk
    count(chunk.length)
  }
}

/** Block formats need a power of two a tensor, which needs the tensor's largest value. */
async function chooseEncodings(
  plan: ConversionPlan,
  tensors: ReturnType<typeof openTensors>,
  signal: AbortSignal | undefined,
): Promise<Encoding[]> {
  const encodings: Encoding[] = []
  const total = plan.steps.reduce((n, s) => n + (needsExponent(s.how, s.target.encoding) ? s.source.byteLength : 0), 0)
  let done = 0
  for (const step of plan.steps) {
    const { encoding } = step.target
    if (!needsExponent(step.how, encoding) || encoding.kind !== 'panel') {
      encodings.push(encoding)
      continue
    }
    const absmax = await measureAbsmax(step, tensors.get(step.source.name), signal)
    encodings.push({ ...encoding, exponent: choosePanelExponent(encoding.scheme, encoding.scale, absmax) })
    done += step.source.byteLength
    progress('measure', done, total, step.target.name)
  }
  return encodings
}

function needsExponent(how: string, encoding: Encoding): boolean {
  return how === 'encode' && encoding.kind === 'panel'
}

async function tokenizerFiles(reader: ModelReader): Promise<Map<string, Uint8Array>> {
  const files = new Map<string, Uint8Array>()
  for (const [name, read] of reader.tokenizerFiles) files.set(name, await read())
  if (reader.format === 'gguf') for (const [name, bytes] of ggufTokenizerFiles(reader.config)) files.set(name, bytes)
  return files
}

async function adapterFiles(adapters: readonly PackagedAdapter[]): Promise<Map<string, Uint8Array>> {
  const files = new Map<string, Uint8Array>()
  for (const { name, path } of adapters)
    for (const file of ['adapter_config.json', 'adapter_model.safetensors'])
      files.set(`adapters/${name}/${file}`, await readFile(join(path, file)))
  return files
}

/** GGUF metadata hold the vocabulary, which a package keeps under tokenizer/. */
function portableConfig(reader: ModelReader): JsonObject {
  if (reader.format !== 'gguf') return reader.config
  return Object.fromEntries(Object.entries(reader.config).filter(([k]) => !k.startsWith('tokenizer.')))
}

function metadataOf(reader: ModelReader): JsonObject {
  const text = (value: JsonValue | undefined) => (typeof value === 'string' && value !== '' ? value : undefined)
  const { config, metadata } = reader
  const base = reader.path.replace(/\/+$/, '').split('/').at(-1) ?? 'model'
  const name =
    text(own(metadata, 'model_name')) ??
    text(own(config, 'general.name')) ??
    text(own(config, '_name_or_path'))?.split('/').at(-1) ??
    base.replace(/\.(gguf|safetensors|wia)$/, '')
  const kept: JsonObject = {}
  for (const key of [
    'version',
    'framework',
    'framework_version',
    'created_date',
    'author',
    'license',
    'description',
    'source',
  ]) {
    const value = text(own(metadata, key)) ?? text(own(config, `general.${key}`))
    if (value !== undefined) kept[key] = value
  }
  return { version: '1.0.0', ...kept, model_name: name }
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
