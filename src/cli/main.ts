#!/usr/bin/env node
// The dispatcher: a list of verbs, one way to print errors, documented exit codes.
import { Command, CommanderError } from 'commander'
import { SluiceError } from '../base/errors.ts'
import { EXIT, exitCodeOf } from './exit.ts'
import { guardTerminal } from './terminal.ts'
import { version } from './version.ts'

/** Verbs in the order of --help. Loaded on demand: `sluice --help` starts in milliseconds. */
const VERBS = [
  'run',
  'plan',
  'inspect',
  'tensor',
  'verify',
  'convert',
  'shard',
  'logits',
  'tokenize',
  'bench',
  'doctor',
] as const

export interface Verb {
  register(program: Command): void
}

export async function main(argv: readonly string[]): Promise<number> {
  const program = new Command('sluice')
    .description(
      'Streaming, memory-mapped loader for large language models.\nOpens a model in milliseconds and keeps the memory budget it was given.',
    )
    .version(version)
    .exitOverride()
    .showSuggestionAfterError()
    .configureHelp({ sortSubcommands: false })
    .addHelpText(
      'after',
      `
Examples:
  sluice run model.gguf "Once upon a time" --memory 2GiB
  sluice convert ./checkpoint --to wia -o model.wia --quantize int4
  sluice tensor model.wia model.norm.weight --as json

Every verb prints text for people, and JSON with --json. Exit codes: 0 ok, 1 failed, 2 usage, 3 not valid,
4 memory or disk does not suffice, 5 input or output, 6 not implemented, 130 cancelled.`,
    )
  try {
    const wanted = argv.find((a) => !a.startsWith('-'))
    for (const verb of VERBS) {
      if (
        wanted !== undefined &&
        wanted !== 'help' &&
        VERBS.some((v) => v === canonical(wanted)) &&
        canonical(wanted) !== verb
      )
        continue
      ;((await import(`./verbs/${verb}.js`)) as Verb).register(program)
    }
    await program.parseAsync([...argv], { from: 'user' })
    return typeof process.exitCode === 'number' ? process.exitCode : EXIT.ok
  } catch (err) {
    return report(err, argv)
  }
}

function canonical(verb: string): string {
  return verb === 'validate' ? 'verify' : verb
}

/** Before a model is looked at: Node could not load its own files, start a thread, or get memory for one. */
const OUT_OF_RESOURCES = new Set([
  'EMFILE',
  'ENFILE',
  'ENOMEM',
  'EAGAIN',
  'ERR_WORKER_INIT_FAILED',
  'ERR_WORKER_OUT_OF_MEMORY',
])

function report(err: unknown, argv: readonly string[]): number {
  if (err instanceof CommanderError) return err.exitCode === 0 ? EXIT.ok : EXIT.usage
  const json = argv.includes('--json')
  if (err instanceof SluiceError) {
    const { code, message, details } = err
    if (code === 'ABORTED' && (err.cause as NodeJS.ErrnoException | undefined)?.code === 'EPIPE') return EXIT.ok
    if (json) console.error(JSON.stringify({ error: { code, message, details } }))
    else console.error(`sluice: ${message} [${code}]`)
    if (process.env.SLUICE_DEBUG) console.error(err)
    return exitCodeOf(code)
  }
  const e = err as NodeJS.ErrnoException
  if (e.code !== undefined && OUT_OF_RESOURCES.has(e.code)) {
    console.error(`sluice: the system refused a resource to Node itself: got ${e.message} [${e.code}]`)
    return EXIT.io
  }
  if (json) console.error(JSON.stringify({ error: { code: 'INTERNAL', message: e.message } }))
  else console.error(`sluice: unexpected error: ${e.stack ?? e}`)
  return EXIT.failed
}

// `| head` closes the pipe: that is not an error. A full disk is one.
process.stdout.on('error', (err: NodeJS.ErrnoException) => {
  if (err.code === 'EPIPE') process.exit(EXIT.ok)
  const code = err.code === 'ENOSPC' ? 'DISK_FULL' : 'OUTPUT_IO'
  console.error(`sluice: cannot write (standard output): got ${err.code ?? err.message} [${code}]`)
  process.exit(exitCodeOf(code))
})
// Where errors cannot be told, the exit code still tells.
process.stderr.on('error', () => undefined)
guardTerminal(process.stdout)

process.exitCode = await main(process.argv.slice(2))
