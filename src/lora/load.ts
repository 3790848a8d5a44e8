// Reads a PEFT adapter and matches it with a model. Zero matches is an error; partial matches too, unless allowed.
import { stat } from 'node:fs/promises'
import { basename, join } from 'node:path'
import { isSluiceError, ModelFormatError, SourceError } from '../base/errors.ts'
import { parseJsonObject } from '../base/json.ts'
import type { ModelReader } from '../format/reader.ts'
import { openSafetensors } from '../format/safetensors/read.ts'
import type { Graph } from '../graph/graph.ts'
import { openFile } from '../source/openFile.ts'
import { resolveInside } from '../source/paths.ts'
import type { LoraPair, MatchReport } from './adapter.ts'
import { parseLoraConfig } from './config.ts'
import { groupTensors, matchAdapter } from './match.ts'

/** adapter_config.json of real adapters is about 1 KB. */
const MAX_CONFIG_BYTES = 1024 * 1024

const CONFIG_FILE = 'adapter_config.json'
const WEIGHTS_FILE = 'adapter_model.safetensors'

/** How strictly an adapter must match. */
export interface AdapterOptions {
  /** Accept modules that match nothing, and targeted modules without tensors. */
  readonly allowPartial?: boolean
  /** Names of adapters packed with the model, for the message when there is none at `path`. */
  readonly packaged?: readonly string[]
}

/** An adapter that was read and matched. Close its reader when no engine uses it. */
export interface LoadedAdapter {
  readonly name: string
  readonly path: string
  readonly reader: ModelReader
  readonly pairs: readonly LoraPair[]
  readonly report: MatchReport
}

/** Throws ADAPTER_INVALID, ADAPTER_UNSUPPORTED, ADAPTER_NO_MATCH, ADAPTER_PARTIAL, and what opening safetensors throws. */
export async function loadAdapter(path: string, graph: Graph, options: AdapterOptions = {}): Promise<LoadedAdapter> {
  const config = parseLoraConfig(await readConfig(path, options.packaged ?? []), join(path, CONFIG_FILE))
  const weights = join(path, WEIGHTS_FILE)
  const reader = await openWeights(path, weights)
  try {
    const { pairs, report } = matchAdapter(groupTensors(reader.tensors.values(), weights), config, graph, weights)
    check(path, report, options.allowPartial === true)
    return { name: basename(path), path, reader, pairs, report }
  } catch (err) {
    await reader.close()
    throw err
  }
}

/** Through the same door as model files: a pipe, a device or a link out of the folder is refused, not read. */
async function readConfig(path: string, packaged: readonly string[]) {
  const file = join(path, CONFIG_FILE)
  const weights = await stat(join(path, WEIGHTS_FILE)).catch(() => undefined)
  // A hub cache has links to blobs in another folder: allowed where the weights really lie.
  const real = await resolveInside(path, CONFIG_FILE, weights?.isFile() ? { index: WEIGHTS_FILE } : {}).catch(missing)
  const source = await openFile(real, { mode: 'pread' })
  try {
    if (source.size > MAX_CONFIG_BYTES)
      throw new ModelFormatError('FORMAT_LIMIT', {
        what: 'adapter configuration is too large',
        where: file,
        expected: `≤ ${MAX_CONFIG_BYTES}`,
        got: source.size,
      })
    return parseJsonObject(await source.read(0, source.size), { where: file, maxBytes: MAX_CONFIG_BYTES })
  } finally {
    await source.close()
  }

  function missing(cause: unknown): never {
    if (!isSluiceError(cause, 'SOURCE_IO')) throw cause
    throw new SourceError('SOURCE_IO', {
      what: 'adapter cannot be read',
      where: file,
      remedy: `Give the folder that holds adapter_config.json and adapter_model.safetensors${named(packaged)}.`,
      cause,
    })
  }
}

function named(packaged: readonly string[]): string {
  return packaged.length === 0 ? '' : `, or the name of one packed with the model: ${packaged.slice(0, 20).join(', ')}`
}

async function openWeights(path: string, weights: string): Promise<ModelReader> {
  try {
    return await openSafetensors(weights)
  } catch (err) {
    const pickled = await stat(join(path, 'adapter_model.bin')).catch(() => undefined)
    if (pickled === undefined) throw err
    throw new ModelFormatError('ADAPTER_UNSUPPORTED', {
      what: 'adapter is stored as adapter_model.bin, which is not read yet',
      where: path,
      expected: 'adapter_model.safetensors',
      got: 'adapter_model.bin',
      cause: err,
    })
  }
}

function list(names: readonly string[]): string {
  return names.length <= 5 ? names.join(', ') : `${names.slice(0, 5).join(', ')} and ${names.length - 5} more`
}

function check(path: string, r: MatchReport, allowPartial: boolean): void {
  if (r.matched.length === 0)
    throw new ModelFormatError('ADAPTER_NO_MATCH', {
      what: 'adapter matches no module of the model',
      where: path,
      got: list(r.unmatched) || 'no modules',
      remedy: 'It was made for another architecture.',
      details: { ...r },
    })
  if ((r.unmatched.length > 0 || r.missing.length > 0) && !allowPartial)
    throw new ModelFormatError('ADAPTER_PARTIAL', {
      what: `adapter matches ${r.matched.length} modules only in part`,
      where: path,
      got: [
        r.unmatched.length > 0 ? `in the adapter, not in the model or not targeted: ${list(r.unmatched)}` : '',
        r.missing.length > 0 ? `targeted, without tensors: ${list(r.missing)}` : '',
      ]
        .filter(Boolean)
        .join('; '),
      remedy: 'Use --allow-partial (allowPartial) to attach what matches.',
      details: { ...r },
    })
}
