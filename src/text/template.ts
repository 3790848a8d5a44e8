// Chat templates: Jinja programs that come with models. They run in a process of their own with little memory and little time. A worker
// thread is not enough: V8 ends the whole process when a large array does not fit into a worker's resourceLimits (measured on Node 20).
import { type ChildProcess, spawn } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import { ModelFormatError, SluiceError, throwIfAborted, ValidationError } from '../base/errors.ts'

export interface ChatMessage {
  readonly role: string
  /** Text, or parts as multimodal templates expect them; absent in a message that only calls tools. */
  readonly content?: unknown
  readonly [field: string]: unknown
}

export interface ChatRequest {
  readonly messages: readonly ChatMessage[]
  /** Ask for the beginning of the assistant's turn (default true). */
  readonly addGenerationPrompt?: boolean
  readonly bosToken?: string
  readonly eosToken?: string
  /** JSON schemas of functions the model may call. */
  readonly tools?: readonly unknown[]
  /** More variables of the template (enable_thinking, documents, date_string …). */
  readonly variables?: Readonly<Record<string, unknown>>
  readonly signal?: AbortSignal
  /** Milliseconds of rendering (default 2000). */
  readonly timeoutMs?: number
  /** JavaScript heap of the renderer in MiB (default 64). */
  readonly memoryMiB?: number
}

/** Characters of a template, and of a rendered text. A million tokens are about four million characters. */
const MAX_TEMPLATE = 1 << 20
const MAX_TEXT = 1 << 23
/** Milliseconds for Node to start, on a machine that is busy. */
const START_MS = 30_000

/**
 * Renders a chat template (Jinja, as Hugging Face's apply_chat_template does: trim_blocks, lstrip_blocks, raise_exception,
 * strftime_now). The text usually begins with BOS where the model wants it: encode it with `addSpecial: false`.
 * @throws TEMPLATE_FAILED (syntax, unknown construct, raise_exception, time, memory), REQUEST_INVALID, ABORTED
 */
export async function renderChat(template: string, request: ChatRequest): Promise<string> {
  const { signal, timeoutMs = 2000, memoryMiB = 64 } = request
  if (template.length > MAX_TEMPLATE)
    failed(`the template has ${template.length} characters, more than ${MAX_TEMPLATE}`)
  inRange('timeoutMs', timeoutMs, 1, 600_000)
  inRange('memoryMiB', memoryMiB, 8, 4096)
  throwIfAborted(signal)
  const input = serialize({ template, variables: variablesOf(request), maxLength: MAX_TEXT })
  const output = await run(input, { timeoutMs, memoryMiB, signal })
  const answer = JSON.parse(output) as { text?: string; error?: string }
  if (answer.text === undefined) failed(answer.error ?? 'the renderer gave no text')
  return answer.text
}

function failed(reason: string, remedy?: string): never {
  throw new ModelFormatError('TEMPLATE_FAILED', {
    what: 'chat template failed',
    got: reason,
    ...(remedy === undefined ? {} : { remedy }),
  })
}

function inRange(name: string, value: number, min: number, max: number): void {
  if (!(value >= min && value <= max))
    throw new ValidationError('REQUEST_INVALID', {
      what: `${name} is out of range`,
      expected: `${min} … ${max}`,
      got: value,
    })
}

function variablesOf(request: ChatRequest): Record<string, unknown> {
  if (!Array.isArray(request.messages))
    throw new ValidationError('REQUEST_INVALID', { what: 'messages is not an array', got: typeof request.messages })
  for (const [i, message] of request.messages.entries())
    if (typeof message?.role !== 'string')
      throw new ValidationError('REQUEST_INVALID', { what: 'message has no role', where: `messages[${i}]` })
  // As transformers: what is not given is none, which templates test for; undefined would pass "tools is not none".
  return {
    documents: null,
    ...request.variables,
    messages: request.messages,
    add_generation_prompt: request.addGenerationPrompt ?? true,
    bos_token: request.bosToken ?? '',
    eos_token: request.eosToken ?? '',
    tools: request.tools ?? null,
  }
}

function serialize(value: unknown): string {
  try {
    return JSON.stringify(value)
  } catch (cause) {
    throw new ValidationError('REQUEST_INVALID', { what: 'messages cannot be written as JSON', cause })
  }
}

interface Limits {
  timeoutMs: number
  memoryMiB: number
  signal: AbortSignal | undefined
}

/** One renderer: JSON in, JSON out. Whatever happens, it is gone when the promise settles. */
function run(input: string, { timeoutMs, memoryMiB, signal }: Limits): Promise<string> {
  return new Promise((resolve, reject) => {
    const child = start(memoryMiB)
    let output = ''
    let ready = false
    let timer = setTimeout(() => end(slow('the renderer did not start in time')), START_MS)
    const slow = (got: string): SluiceError =>
      new ModelFormatError('TEMPLATE_FAILED', { what: 'chat template failed', got })
    const end = (error?: unknown): void => {
      clearTimeout(timer)
      signal?.removeEventListener('abort', abort)
      child.kill('SIGKILL')
      if (error === undefined) resolve(output)
      else reject(error)
    }
    const abort = (): void => end(new SluiceError('ABORTED', { what: 'cancelled', cause: signal?.reason }))
    signal?.addEventListener('abort', abort, { once: true })
    child.stdout?.setEncoding('utf8')
    child.stdout?.on('data', (chunk: string) => {
      output += chunk
      if (ready) return
      ready = true
      clearTimeout(timer)
      timer = setTimeout(() => end(slow(`it ran longer than ${timeoutMs} ms`)), timeoutMs)
    })
    child.on('error', (cause) =>
      end(new SluiceError('WORKER_FAILED', { what: 'the template renderer cannot start', cause })),
    )
    child.on('close', (code, killed) => {
      if (code === 0) return end()
      end(slow(`it used more than ${memoryMiB} MiB of memory or broke the renderer (${killed ?? `exit code ${code}`})`))
    })
    // A renderer that dies early closes its stdin; `close` tells why.
    child.stdin?.on('error', () => undefined)
    child.stdin?.end(input)
  })
}

function start(memoryMiB: number): ChildProcess {
  const script = fileURLToPath(new URL('./template-process.js', import.meta.url))
  // No environment: nothing of it concerns a template. (Windows needs SystemRoot to start a program.)
  const root = process.env.SystemRoot
  return spawn(process.execPath, [`--max-old-space-size=${memoryMiB}`, script], {
    stdio: ['pipe', 'pipe', 'ignore'],
    env: root === undefined ? {} : { SystemRoot: root },
    windowsHide: true,
  })
}
