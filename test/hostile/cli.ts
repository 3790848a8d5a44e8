// The command line as a program of its own: exit code, signal, output and time.
import { spawn } from 'node:child_process'
import { fileURLToPath } from 'node:url'

export const MAIN = fileURLToPath(new URL('../../dist/cli/main.js', import.meta.url))

export interface Outcome {
  readonly code: number | null
  readonly signal: NodeJS.Signals | null
  readonly stdout: string
  readonly stderr: string
  readonly ms: number
}

export interface CliOptions {
  readonly timeoutMs?: number
  /** Shell text before the command: limits, redirections' file descriptors. */
  readonly before?: string
  readonly after?: string
  readonly stdout?: number
  readonly input?: string
}

const quote = (text: string) => `'${text.replaceAll("'", "'\\''")}'`

/** Runs `sluice …args`. With `before` or `after` through a shell: `before; exec node main.js args after`. */
export function cli(args: readonly string[], options: CliOptions = {}): Promise<Outcome> {
  const { timeoutMs = 20_000, before, after } = options
  const started = performance.now()
  const shell = before !== undefined || after !== undefined
  const line = `${before ?? ':'}; exec ${quote(process.execPath)} ${quote(MAIN)} ${args.map(quote).join(' ')} ${after ?? ''}`
  const child = shell
    ? spawn('/bin/sh', ['-c', line], { stdio: ['pipe', 'pipe', 'pipe'] })
    : spawn(process.execPath, [MAIN, ...args], { stdio: ['pipe', 'pipe', 'pipe'] })
  let stdout = ''
  let stderr = ''
  child.stdout.setEncoding('utf8').on('data', (text: string) => (stdout += text))
  child.stderr.setEncoding('utf8').on('data', (text: string) => (stderr += text))
  child.stdin.on('error', () => undefined)
  child.stdin.end(options.input ?? '')
  const timer = setTimeout(() => child.kill('SIGKILL'), timeoutMs)
  return new Promise((resolve, reject) => {
    child.on('error', reject)
    child.on('close', (code, signal) => {
      clearTimeout(timer)
      resolve({ code, signal, stdout, stderr, ms: performance.now() - started })
    })
  })
}

/** Exit codes of the README. */
export const DOCUMENTED = [0, 1, 2, 3, 4, 5, 6, 130]

/** What every refusal on the command line looks like: a documented code other than "unexpected", one line with an error code, no stack. */
export function isRefusal(o: Outcome): boolean {
  return o.signal === null && [2, 3, 4, 5, 6].includes(o.code ?? -1) && !/\n\s+at /.test(o.stderr)
}
