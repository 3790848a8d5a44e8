// sluice inspect: what is in a model, read from its index alone.
import type { Command } from 'commander'
import { open } from '../../api/model.ts'
import { formatBytes } from '../../base/bytes.ts'
import { printable } from '../../base/printable.ts'
import type { Encoding } from '../../quant/scheme.ts'
import { jsonOption } from '../options.ts'

export function encodingName(e: Encoding): string {
  if (e.kind === 'plain') return e.dtype
  if (e.kind === 'ggml' || e.kind === 'opaque') return e.type
  return `${e.scheme} (blocks of ${e.block})`
}

async function inspect(path: string, options: { json?: boolean; tensors?: boolean }): Promise<void> {
  const started = performance.now()
  const model = await open(path)
  const openMs = performance.now() - started
  try {
    const { reader } = model
    const entries = [...reader.tensors.values()]
    const parameters = entries.filter((t) => t.aliasOf === undefined).reduce((n, t) => n + t.rows * t.cols, 0)
    const bytes = entries.filter((t) => t.aliasOf === undefined).reduce((n, t) => n + t.byteLength, 0)
    const encodings = new Map<string, { tensors: number; bytes: number }>()
    for (const t of entries) {
      const e = encodings.get(encodingName(t.encoding)) ?? { tensors: 0, bytes: 0 }
      e.tensors++
      e.bytes += t.byteLength
      encodings.set(encodingName(t.encoding), e)
    }
    const architecture = describeArchitecture(model)
    if (options.json) {
      console.log(
        JSON.stringify({
          path,
          format: reader.format,
          identity: reader.identity,
          metadata: reader.metadata,
          architecture,
          parameters,
          weightBytes: bytes,
          files: reader.sources.map((s) => ({ path: s.id, bytes: s.size })),
          encodings: Object.fromEntries(encodings),
          adapters: reader.adapters.map((a) => a.name),
          tokenizerFiles: [...reader.tokenizerFiles.keys()],
          openMs,
          bytesRead: reader.bytesRead,
          tensors: entries.map((t) => ({
            name: t.name,
            shape: t.shape,
            dtype: t.dtype,
            encoding: t.encoding,
            byteLength: t.byteLength,
            aliasOf: t.aliasOf,
          })),
        }),
      )
      return
    }
    console.log(`${path}`)
    console.log(`  format        ${reader.format}, identity ${reader.identity.slice(0, 16)}…`)
    for (const [k, v] of Object.entries(reader.metadata))
      if (typeof v === 'string' && v.length > 0 && v.length < 100)
        console.log(`  ${printable(k).padEnd(13)} ${printable(v)}`)
    console.log(`  architecture  ${printable(architecture.text)}`)
    console.log(
      `  parameters    ${parameters.toLocaleString('en')} in ${entries.length} tensors, ${formatBytes(bytes)} in ${reader.sources.length} files`,
    )
    for (const [name, e] of encodings)
      console.log(`                ${name}: ${e.tensors} tensors, ${formatBytes(e.bytes)}`)
    if (reader.adapters.length > 0)
      console.log(`  adapters      ${reader.adapters.map((a) => printable(a.name)).join(', ')}`)
    console.log(
      `  tokenizer     ${reader.tokenizerFiles.size > 0 ? [...reader.tokenizerFiles.keys()].join(', ') : 'none beside the weights'}`,
    )
    console.log(`  opened in     ${openMs.toFixed(1)} ms, ${formatBytes(reader.bytesRead)} read`)
    if (options.tensors)
      for (const t of entries)
        console.log(
          `  ${printable(t.name)}  [${t.shape.join(', ')}]  ${encodingName(t.encoding)}${t.aliasOf ? `  = ${printable(t.aliasOf)}` : ''}`,
        )
  } finally {
    await model.close()
  }
}

/** A model whose family is not known can still be inspected. */
function describeArchitecture(model: {
  architecture(): { graph: { name: string; nodes: readonly unknown[]; contextLength: number } }
}): { text: string; nodes?: number; contextLength?: number } {
  try {
    const { graph } = model.architecture()
    return {
      text: `${graph.name}, ${graph.nodes.length} nodes, context ${graph.contextLength}`,
      nodes: graph.nodes.length,
      contextLength: graph.contextLength,
    }
  } catch (err) {
    return { text: `cannot be run: ${(err as Error).message}` }
  }
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
