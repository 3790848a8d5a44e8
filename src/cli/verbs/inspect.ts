// sluice inspect: what is in a model, read from its index alone.
import type { Command } from 'commander'
import type { Model } from '../../api/model.ts'
import { formatBytes } from '../../base/bytes.ts'
import { isSluiceError } from '../../base/errors.ts'
import { type JsonObject, own } from '../../base/json.ts'
import { printable } from '../../base/printable.ts'
import type { Encoding } from '../../quant/scheme.ts'
import { withModel } from '../model.ts'
import { jsonOption } from '../options.ts'
import { warn } from '../warn.ts'

export function encodingName(e: Encoding): string {
  if (e.kind === 'plain') return e.dtype
  if (e.kind === 'ggml' || e.kind === 'opaque') return e.type
  return `${e.scheme} (blocks of ${e.block})`
}

async function inspect(path: string, options: { json?: boolean; tensors?: boolean }): Promise<void> {
  await withModel(path, {}, async (model, openMs) => {
    const facts = factsOf(model, openMs)
    for (const text of facts.architecture.warnings) warn(text, options.json === true)
    if (options.json) console.log(JSON.stringify(facts))
    else print(facts, options.tensors === true)
  })
}

type Facts = ReturnType<typeof factsOf>

function factsOf(model: Model, openMs: number) {
  const { reader } = model
  const entries = [...reader.tensors.values()]
  const stored = entries.filter((t) => t.aliasOf === undefined)
  const encodings = new Map<string, { tensors: number; bytes: number }>()
  for (const t of stored) {
    const e = encodings.get(encodingName(t.encoding)) ?? { tensors: 0, bytes: 0 }
    e.tensors++
    e.bytes += t.byteLength
    encodings.set(encodingName(t.encoding), e)
  }
  return {
    path: reader.path,
    format: reader.format,
    identity: reader.identity,
    metadata: reader.metadata,
    architecture: architectureOf(model),
    parameters: stored.reduce((n, t) => n + t.rows * t.cols, 0),
    weightBytes: stored.reduce((n, t) => n + t.byteLength, 0),
    files: reader.sources.map((s) => ({ path: s.id, bytes: s.size })),
    encodings: Object.fromEntries(encodings),
    adapters: reader.adapters.map((a) => a.name),
    tokenizerFiles: [...reader.tokenizerFiles.keys()],
    ggufTokenizer: ggufTokenizer(reader.config),
    openMs,
    bytesRead: reader.bytesRead,
    tensors: entries.map(({ name, shape, dtype, encoding, byteLength, aliasOf }) => ({
      name,
      shape,
      dtype,
      encoding,
      byteLength,
      aliasOf,
    })),
  }
}

/** What a GGUF says its vocabulary is made for: 'llama', 'gpt2'. */
function ggufTokenizer(config: JsonObject): string | undefined {
  const model = own(config, 'tokenizer.ggml.model')
  return typeof model === 'string' ? model : undefined
}

/** A model whose family is not known can still be inspected. */
function architectureOf(model: Model): {
  text: string
  warnings: readonly string[]
  nodes?: number
  contextLength?: number
  error?: string
} {
  try {
    const { graph, warnings } = model.architecture()
    const { nodes, contextLength } = graph
    const text = `${graph.name}, ${nodes.length} nodes, context ${contextLength}`
    return { text, warnings, nodes: nodes.length, contextLength }
  } catch (err) {
    if (!isSluiceError(err)) throw err
    return { text: `cannot be run: ${err.message}`, warnings: [], error: err.code }
  }
}

function print(f: Facts, tensors: boolean): void {
  const row = (name: string, text: string) => console.log(`  ${name.padEnd(13)} ${text}`)
  const count = (n: number, noun: string) => `${n.toLocaleString('en')} ${noun}${n === 1 ? '' : 's'}`
  console.log(f.path)
  row('format', `${f.format}, identity ${f.identity.slice(0, 16)}…`)
  for (const [k, v] of Object.entries(f.metadata))
    if (typeof v === 'string' && v.length > 0 && v.length < 100 && k.length < 40) row(printable(k), printable(v))
  row('architecture', printable(f.architecture.text))
  row('parameters', `${f.parameters.toLocaleString('en')} in ${count(f.tensors.length, 'tensor')}`)
  row('weights', `${formatBytes(f.weightBytes)} in ${count(f.files.length, 'file')}`)
  for (const [name, e] of Object.entries(f.encodings))
    row('', `${name}: ${count(e.tensors, 'tensor')}, ${formatBytes(e.bytes)}`)
  if (f.adapters.length > 0) row('adapters', printable(f.adapters.join(', ')))
  row('tokenizer', tokenizerText(f))
  row('opened in', `${f.openMs.toFixed(1)} ms, ${formatBytes(f.bytesRead)} read`)
  if (!tensors) return
  const width = (values: string[]) => Math.min(60, Math.max(0, ...values.map((v) => v.length)))
  const lines = f.tensors.map((t) => [
    printable(t.name),
    `[${t.shape.join(', ')}]`,
    encodingName(t.encoding),
    t.aliasOf,
  ])
  const names = width(lines.map((l) => l[0]!))
  const shapes = width(lines.map((l) => l[1]!))
  for (const [name, shape, encoding, alias] of lines)
    console.log(
      `  ${name!.padEnd(names)}  ${shape!.padEnd(shapes)}  ${encoding}${alias === undefined ? '' : `  = ${printable(alias)}`}`,
    )
}

function tokenizerText(f: Facts): string {
  if (f.tokenizerFiles.length > 0) return f.tokenizerFiles.join(', ')
  return f.ggufTokenizer === undefined ? 'none beside the weights' : `${printable(f.ggufTokenizer)}, in the metadata`
}

export function register(program: Command): void {
  program
    .command('inspect')
    .description('show what is in a model; reads its index only')
    .argument('<model>', 'package, safetensors directory or file, or GGUF')
    .option('--tensors', 'list every tensor')
    .addOption(jsonOption())
    .addHelpText(
      'after',
      '\nExamples:\n  sluice inspect model.gguf\n  sluice inspect ./checkpoint --tensors\n  sluice inspect model.wia --json',
    )
    .action(inspect)
}
