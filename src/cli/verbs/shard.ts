// sluice shard: the same package in shards of another size.
import type { Command } from 'commander'
import { open } from '../../api/model.ts'
import { formatBytes } from '../../base/bytes.ts'
import { ValidationError } from '../../base/errors.ts'
import { convertToWia } from '../../convert/convert.ts'
import { cancelOnSignals } from '../cancel.ts'
import { bytes, jsonOption } from '../options.ts'
import { showProgress } from '../progress.ts'

interface ShardFlags {
  maxShardSize: number
  output?: string
  json?: boolean
}

async function shard(path: string, flags: ShardFlags): Promise<void> {
  const signal = cancelOnSignals()
  const hide = showProgress(flags.json ? 'none' : 'auto')
  const model = await open(path, { ioMode: 'pread', dropBehind: true })
  try {
    if (model.reader.format !== 'wia')
      throw new ValidationError('REQUEST_INVALID', {
        what: 'only packages are sharded anew',
        where: path,
        got: model.reader.format,
        remedy: 'Use convert with --shard-size.',
      })
    const arch = model.reader.architecture === undefined ? undefined : model.architecture()
    // In place: the new package takes the old one's name when it is complete.
    await convertToWia(model.reader, arch, flags.output ?? path, {
      maxShardBytes: flags.maxShardSize,
      force: flags.output === undefined,
      signal,
    })
  } finally {
    hide()
    await model.close()
  }
  const written = await open(flags.output ?? path)
  try {
    const files = written.reader.sources.map((s) => ({ path: s.id, bytes: s.size }))
    if (flags.json) console.log(JSON.stringify({ output: flags.output ?? path, files }))
    else for (const f of files) console.log(`${f.path}  ${formatBytes(f.bytes)}`)
  } finally {
    await written.close()
  }
}

export function register(program: Command): void {
  program
    .command('shard')
    .description('write a package in shards of another size, in place or to --output')
    .argument('<package>', 'package directory')
    .requiredOption('--max-shard-size <size>', 'largest shard, e.g. 512MiB', bytes)
    .option('-o, --output <dir>', 'write another package instead')
    .addOption(jsonOption())
    .addHelpText('after', '\nExample:\n  sluice shard model.wia --max-shard-size 512MiB')
    .action(shard)
}
