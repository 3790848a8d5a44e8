// sluice convert: any model → package, quantized on the way, with the error of every tensor.
import { type Command, Option } from 'commander'
import { type Model, open } from '../../api/model.ts'
import { formatBytes } from '../../base/bytes.ts'
import { isSluiceError, notImplemented } from '../../base/errors.ts'
import { printable } from '../../base/printable.ts'
import { type ConversionReport, convertToWia } from '../../convert/convert.ts'
import { QUANTIZATIONS, type Quantization } from '../../convert/policy.ts'
import type { PackagedAdapter } from '../../format/reader.ts'
import { cancelOnSignals } from '../cancel.ts'
import { bytes, jsonOption, repeat } from '../options.ts'
import { showProgress } from '../progress.ts'
import { encodingName } from './inspect.ts'

interface ConvertFlags {
  to: string
  output: string
  quantize: Quantization
  shardSize?: number
  force?: boolean
  name?: string
  license?: string
  tensorsOnly?: boolean
  adapter?: string[]
  json?: boolean
}

async function convert(path: string, flags: ConvertFlags): Promise<void> {
  if (flags.to !== 'wia') notImplemented(`writing ${flags.to}`)
  const signal = cancelOnSignals()
  const hide = showProgress(flags.json ? 'none' : 'auto')
  const started = performance.now()
  // Every byte is read once and never again: neither a mapping nor the page cache should keep it.
  const model = await open(path, { ioMode: 'pread', dropBehind: true })
  try {
    const arch = flags.tensorsOnly ? undefined : model.architecture()
    const report = await convertToWia(model.reader, arch, flags.output, {
      quantization: flags.quantize,
      ...(flags.shardSize === undefined ? {} : { maxShardBytes: flags.shardSize }),
      force: flags.force === true,
      metadata: {
        ...(flags.name === undefined ? {} : { model_name: flags.name }),
        ...(flags.license === undefined ? {} : { license: flags.license }),
      },
      adapters: await packed(model, flags.adapter ?? []),
      signal,
    })
    hide()
    print(report, (performance.now() - started) / 1000, flags.json === true)
  } catch (err) {
    hide()
    if (isSluiceError(err, 'ARCH_UNSUPPORTED') && !flags.tensorsOnly)
      console.error('sluice: --tensors-only converts the tensors without an architecture; such a package cannot be run')
    throw err
  } finally {
    hide()
    await model.close()
  }
}

/** Adapters to pack: each must match the model. */
async function packed(model: Model, paths: readonly string[]): Promise<PackagedAdapter[]> {
  const adapters: PackagedAdapter[] = []
  for (const text of paths) {
    const { name, path } = parseNamed(text)
    const adapter = await model.adapter(path)
    await adapter.reader.close()
    adapters.push({ name: name ?? adapter.name, path })
  }
  return adapters
}

/** "name=path" or "path". */
function parseNamed(text: string): { name?: string; path: string } {
  const at = text.indexOf('=')
  return at > 0 && !text.slice(0, at).includes('/')
    ? { name: text.slice(0, at), path: text.slice(at + 1) }
    : { path: text }
}

function print(r: ConversionReport, seconds: number, json: boolean): void {
  if (json) {
    console.log(JSON.stringify({ ...r, seconds }))
    return
  }
  const rounded = r.tensors.filter((t) => t.error !== undefined)
  for (const t of rounded)
    console.log(
      `  ${printable(t.name).padEnd(56)} ${encodingName(t.encoding).padEnd(22)} RMSE ${t.error!.rmse.toExponential(2)}  relative ${(100 * t.error!.relativeRmse).toFixed(2)} %`,
    )
  console.log(
    `${r.output}: ${r.parameters.toLocaleString('en')} parameters, ${formatBytes(r.bytesIn)} → ${formatBytes(r.bytesOut)} in ${seconds.toFixed(1)} s`,
  )
  if (r.worst?.error !== undefined)
    console.log(
      `largest error: ${printable(r.worst.name)}, relative RMSE ${(100 * r.worst.error.relativeRmse).toFixed(2)} %`,
    )
  else console.log('every number is kept as it was')
}

export function register(program: Command): void {
  program
    .command('convert')
    .description('convert a model to a package, quantized if asked for')
    .argument('<in>', 'safetensors directory or file, GGUF, or package')
    .addOption(new Option('--to <format>', 'output format').choices(['wia', 'safetensors', 'gguf']).default('wia'))
    .requiredOption('-o, --output <dir>', 'package to write')
    .addOption(
      new Option('--quantize <scheme>', 'embeddings, head and norms keep 8 bits or more')
        .choices(QUANTIZATIONS)
        .default('keep'),
    )
    .option('--shard-size <size>', 'largest shard (default 1GiB)', bytes)
    .option('--name <name>', 'model_name of the package')
    .option('--license <text>', 'license of the package')
    .option('--tensors-only', 'leave the architecture out, for models of unknown families')
    .option('--adapter <[name=]path>', 'pack a LoRA adapter with the model; repeat for several', repeat)
    .option('--force', 'replace an existing output')
    .addOption(jsonOption())
    .addHelpText(
      'after',
      '\nExamples:\n  sluice convert ./checkpoint --to wia -o model.wia\n  sluice convert model.gguf -o model-int4.wia --quantize int4 --shard-size 512MiB',
    )
    .action(convert)
}
