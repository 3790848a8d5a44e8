// sluice verify: is this model what its index says? Rules first, then every byte that has a checksum.
import type { Command } from 'commander'
import type { Model } from '../../api/model.ts'
import { formatBytes } from '../../base/bytes.ts'
import { isSluiceError } from '../../base/errors.ts'
import { cancelOnSignals } from '../cancel.ts'
import { withModel } from '../model.ts'
import { jsonOption } from '../options.ts'
import { showProgress } from '../progress.ts'

async function verify(path: string, flags: { json?: boolean }): Promise<void> {
  const signal = cancelOnSignals()
  const hide = showProgress(flags.json ? 'none' : 'auto')
  const started = performance.now()
  try {
    await withModel(path, { verify: 'eager', signal }, async (model) => {
      const { reader } = model
      const bytes = reader.sources.reduce((n, s) => n + s.size, 0)
      const architecture = architectureOf(model)
      hide()
      const facts = {
        path,
        format: reader.format,
        identity: reader.identity,
        tensors: reader.tensors.size,
        bytes,
        checksums: reader.format === 'wia' ? 'every page and tensor' : 'none in this format: index and sizes only',
        ...architecture,
        seconds: (performance.now() - started) / 1000,
      }
      if (flags.json) {
        console.log(JSON.stringify(facts))
        return
      }
      console.log(`${path}: ${facts.tensors} tensors, ${formatBytes(bytes)}, ok in ${facts.seconds.toFixed(1)} s`)
      console.log(`  checksums     ${facts.checksums}`)
      console.log(`  architecture  ${facts.architecture}`)
      for (const text of facts.warnings) console.log(`  warning       ${text}`)
      console.log(`  identity      ${facts.identity}`)
    })
  } finally {
    hide()
  }
}

/** Tensors can be sound in a model that nobody here can run. */
function architectureOf(model: Model): { architecture: string; warnings: readonly string[] } {
  try {
    return { architecture: 'ok', warnings: model.architecture().warnings }
  } catch (err) {
    if (!isSluiceError(err)) throw err
    return { architecture: err.message, warnings: [] }
  }
}

export function register(program: Command): void {
  program
    .command('verify')
    .alias('validate')
    .description('check a model against its index and every checksum it has')
    .argument('<model>', 'package, safetensors directory or file, or GGUF')
    .addOption(jsonOption())
    .addHelpText('after', '\nExample:\n  sluice verify model.wia')
    .action(verify)
}
