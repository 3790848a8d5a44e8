// Runs the command line as a person's shell would: its own process, its own streams.
import { type ChildProcess, spawn } from 'node:child_process'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { onTestFinished } from 'vitest'

export const ROOT = resolve(import.meta.dirname, '../..')
export const MAIN = join(ROOT, 'dist/cli/main.js')
export const STORY = join(ROOT, 'examples/storyteller.wia')
export const PROMPT = 'A story about a fox and a lantern.\n'

export const VERBS = [
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

export interface Outcome {
  /** Exit code; null after a signal. */
  code: number | null
  signal: NodeJS.Signals | null
  stdout: string
  stderr: string
  /** Standard output as bytes. */
  bytes: Buffer
}

export interface SpawnOptions {
  env?: Record<string, string>
  /** Options of Node itself, before the script. */
  node?: string[]
  /** 'ignore' is /dev/null; 'closed' has no descriptor 0 at all. */
  stdin?: 'ignore' | 'closed'
  /** Gets the process as soon as it runs. */
  during?: (child: ChildProcess) => void
}

export function sluice(args: readonly string[], options: SpawnOptions = {}): Promise<Outcome> {
  const node = [...(options.node ?? []), MAIN, ...args]
  const closed = options.stdin === 'closed'
  const child = closed
    ? spawn('sh', ['-c', 'exec "$0" "$@" <&-', process.execPath, ...node], { cwd: ROOT, env: environment(options) })
    : spawn(process.execPath, node, { cwd: ROOT, env: environment(options), stdio: ['ignore', 'pipe', 'pipe'] })
  const out: Buffer[] = []
  const err: Buffer[] = []
  child.stdout!.on('data', (chunk: Buffer) => out.push(chunk))
  child.stderr!.on('data', (chunk: Buffer) => err.push(chunk))
  options.during?.(child)
  return new Promise((done, fail) => {
    child.on('error', fail)
    child.on('close', (code, signal) => {
      const bytes = Buffer.concat(out)
      done({ code, signal, stdout: bytes.toString(), stderr: Buffer.concat(err).toString(), bytes })
    })
  })
}

function environment(options: SpawnOptions): NodeJS.ProcessEnv {
  const { SLUICE_DEBUG: _, ...env } = process.env
  return { ...env, ...options.env }
}

/** Runs a line of shell with `sluice` as a function. */
export function shell(line: string): Promise<Outcome> {
  const script = `set -o pipefail; sluice() { "${process.execPath}" "${MAIN}" "$@"; }; ${line}`
  const child = spawn('bash', ['-c', script], { cwd: ROOT, env: environment({}), stdio: ['ignore', 'pipe', 'pipe'] })
  const out: Buffer[] = []
  const err: Buffer[] = []
  child.stdout.on('data', (chunk: Buffer) => out.push(chunk))
  child.stderr.on('data', (chunk: Buffer) => err.push(chunk))
  return new Promise((done, fail) => {
    child.on('error', fail)
    child.on('close', (code, signal) => {
      const bytes = Buffer.concat(out)
      done({ code, signal, stdout: bytes.toString(), stderr: Buffer.concat(err).toString(), bytes })
    })
  })
}

/** A folder that goes with the test. */
export function temporary(): string {
  const dir = mkdtempSync(join(tmpdir(), 'sluice-cli-'))
  onTestFinished(() => rmSync(dir, { recursive: true, force: true }))
  return dir
}

/** The one line a verb prints with --json. Fails when there is more or less. */
export function onlyLine(outcome: Outcome): unknown {
  const lines = outcome.stdout.split('\n')
  if (lines.length !== 2 || lines[1] !== '') throw new Error(`expected one line, got ${JSON.stringify(outcome.stdout)}`)
  return JSON.parse(lines[0]!)
}
