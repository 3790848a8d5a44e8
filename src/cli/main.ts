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
  // Before anything is loaded.
  if (argv.length === 1 && (argv[0] === '--version' || argv[0] === '-V')) {
    console.log(version)
    return EXIT.ok
  }
  const program = describe()
  const wanted = argv.find((a) => !a.startsWith('-'))
  const only = VERBS.find((verb) => verb === canonical(wanted))
  try {
    for (const verb of only === undefined ? VERBS : [only])
      ((await import(`./verbs/${verb}.js`)) as Verb).register(program)
    await program.parseAsync([...argv], { from: 'user' })
    return typeof process.exitCode === 'number' ? process.exitCode : EXIT.ok
  } catch (err) {
    return report(err, only, argv.includes('--json'), argv.includes('--verbose'))
  }
}

function describe(): Command {
  return new Command('sluice')
    .description(
      'Streaming, memory-mapped loader for large language models.\nOpens a model in milliseconds and keeps the memory budget it was given.',
    )
    .version(version)
    .option('--verbose', 'show the causes of an error')
    .exitOverride()
    .showSuggestionAfterError()
    .configureHelp({ sortSubcommands: false, showGlobalOptions: true })
    .configureOutput({ outputError: () => undefined }) // report() says it, in the words of every other error here
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
}

function canonical(verb: string | undefined): string | undefined {
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

/** Commander's sentence, "error: unknown option '--x'\n(Did you mean --y?)", as an error of this package. */
function usageError(message: string, verb: string | undefined): SluiceError {
  const [what = '', hint] = message.replace(/^error: /, '').split('\n')
  const help = `See sluice ${verb === undefined ? '' : `${verb} `}--help.`
  const remedy = hint === undefined ? help : `${hint.replace(/^\((.*)\)$/, '$1')} ${help}`
  return new SluiceError('USAGE', { what: what.replace(/\.$/, ''), remedy })
}

function report(err: unknown, verb: string | undefined, json: boolean, verbose: boolean): number {
  if (err instanceof CommanderError) {
    if (err.exitCode === 0) return EXIT.ok
    if (err.code === 'commander.help') return EXIT.usage // no verb: the help was shown
    return report(usageError(err.message, verb), verb, json, verbose)
  }
  if (isBrokenPipe(err)) return EXIT.ok
  const details = verbose || process.env.SLUICE_DEBUG
  if (err instanceof SluiceError) {
    const { code, message } = err
    if (json) console.error(JSON.stringify({ error: { code, message, details: err.details } }))
    else console.error(`sluice: ${message} [${code}]`)
    if (details) showCauses(err)
    return exitCodeOf(code)
  }
  const e: NodeJS.ErrnoException = err instanceof Error ? err : new Error(String(err))
  if (e.code !== undefined && OUT_OF_RESOURCES.has(e.code)) {
    const message = `the system refused a resource to Node itself: got ${e.message}`
    console.error(
      json ? JSON.stringify({ error: { code: e.code, message, details: {} } }) : `sluice: ${message} [${e.code}]`,
    )
    return EXIT.io
  }
  if (json) console.error(JSON.stringify({ error: { code: 'INTERNAL', message: e.message } }))
  else console.error(`sluice: unexpected error, please report it: ${e.stack ?? e.message}`)
  if (details) showCauses(e)
  return EXIT.failed
}

/** Stack of the error and of what caused it, outermost first. */
function showCauses(err: Error): void {
  for (let e: unknown = err, depth = 0; e instanceof Error && depth < 8; e = e.cause, depth++)
    console.error(`${depth === 0 ? '' : 'caused by '}${e.stack ?? e.message}`)
}

/** `| head` closes the pipe: that is not an error. */
function isBrokenPipe(err: unknown): boolean {
  for (let e = err; e instanceof Error; e = e.cause) if ((e as NodeJS.ErrnoException).code === 'EPIPE') return true
  return false
}

// A full disk is an error, a pipe that was closed is none.
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
