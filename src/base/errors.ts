// The one family of errors. Callers branch on `code`, never on the message.
//
//   try { await open('model.wia') } catch (err) {
//     if (isSluiceError(err, 'CHECKSUM_MISMATCH')) console.error(err.details.tensor)
//   }

import { printable } from './printable.ts'

/** Every code an error of this package can carry, and what it means. Codes are stable between releases. */
export const ERROR_CODES = {
  // files
  FORMAT_INVALID: 'a file breaks a rule of its format',
  FORMAT_UNSUPPORTED: 'a file uses a version, dtype, scheme, extension or feature that is not known',
  FORMAT_LIMIT: 'a number in a file is above the cap that protects the reader',
  JSON_INVALID: 'a JSON text breaks the strict rules (duplicate key, unsafe integer, depth, size, syntax)',
  PATH_FORBIDDEN: 'a path in a file leaves the folder it may use',
  CHECKSUM_MISMATCH: 'bytes do not have the SHA-256 the index states',
  TENSOR_NOT_FOUND: 'the model has no tensor of that name',
  TENSOR_RANGE: 'a row, slice or dtype asked for does not exist in the tensor',
  TENSOR_MISSING: 'the architecture needs a tensor that the model does not have',
  TENSOR_UNEXPECTED: 'the model has a tensor that the architecture does not use',
  TENSOR_SHAPE: 'a tensor has another shape than the architecture needs',
  // bytes
  SOURCE_IO: 'the operating system or the server refused a read',
  SOURCE_CHANGED: 'a file changed or shrank after it was opened',
  SOURCE_CLOSED: 'a read came after close()',
  SOURCE_RANGE: 'a read reaches past the end of its source',
  SOURCE_MODE: 'the I/O mode asked for is not available here',
  // numbers
  QUANT_UNSUPPORTED: 'a quantization scheme or parameter is not known',
  QUANT_RANGE: 'a value cannot be represented in the scheme',
  KERNEL_UNAVAILABLE: 'the kernel set asked for does not run or fails its self-test here',
  // memory
  BUDGET_EXCEEDED: 'a reservation does not fit into the memory budget',
  BUDGET_TOO_SMALL: 'the memory budget is below the smallest that can run this model',
  // graph and model
  ARCH_UNSUPPORTED: 'a model_type, RoPE type, activation or configuration flag is not implemented',
  GRAPH_INVALID: 'architecture.json is not a valid graph',
  OP_UNSUPPORTED: 'an operator, domain or opset version is not implemented',
  CONFIG_INVALID: 'a model configuration is missing a value or has an impossible one',
  // adapters
  ADAPTER_INVALID: 'an adapter contradicts itself or its base',
  ADAPTER_UNSUPPORTED: 'an adapter uses a feature that is not implemented',
  ADAPTER_NO_MATCH: 'an adapter matches no module of the model',
  ADAPTER_PARTIAL: 'an adapter matches only some modules',
  // text
  TOKENIZER_UNSUPPORTED: 'a tokenizer uses a component that is not implemented',
  TOKENIZER_MISSING: 'the model has no tokenizer and text was given',
  TEMPLATE_FAILED: 'a chat template is invalid, ran too long or used too much memory',
  // requests
  REQUEST_INVALID: 'an argument is out of its range',
  LOGITS_INVALID: 'the model produced logits that are not finite numbers',
  CONTEXT_FULL: 'the prompt or the text is longer than the context of the model',
  ABORTED: 'the caller cancelled',
  WORKER_FAILED: 'a worker thread ended unexpectedly',
  CLOSED: 'the object was closed or disposed',
  // conversion and output
  OUTPUT_EXISTS: 'the output exists and overwriting was not asked for',
  OUTPUT_IO: 'the operating system refused a write',
  DISK_FULL: 'there is not enough free space for the output',
  // everything else
  USAGE: 'the command line is wrong',
  NOT_IMPLEMENTED: 'not implemented yet; see the list in the README',
  INTERNAL: 'a rule of this package was broken: please report it',
} as const

/** A key of ERROR_CODES. */
export type ErrorCode = keyof typeof ERROR_CODES

/** What a message is made of: "what (where): expected E, got G. Remedy." */
export interface ErrorParts {
  /** What went wrong, one clause, lower case, no full stop. */
  what: string
  /** Where: file, tensor, offset, field. */
  where?: string
  expected?: unknown
  got?: unknown
  /** What the reader of the message can do about it, one sentence. */
  remedy?: string
  /** Machine-readable facts (tensor, file, offset, requiredBytes …). */
  details?: Record<string, unknown>
  cause?: unknown
}

const FAMILY = Symbol.for('sluice.error')

function compose(p: ErrorParts): string {
  const what = clean(p.what, MAX_PLACE)
  let text = p.where === undefined ? what : `${what} (${clean(p.where, MAX_PLACE)})`
  if (p.expected !== undefined) text += `: expected ${show(p.expected)}, got ${show(p.got)}`
  else if (p.got !== undefined) text += `: got ${show(p.got)}`
  return p.remedy === undefined ? text : `${text}. ${p.remedy}`
}

/** Names may have 4096 characters and paths as many: a message stays readable. */
const MAX_PLACE = 1000
const MAX_VALUE = 200

// Values from hostile files end up in messages: keep them short and printable.
function show(value: unknown): string {
  return clean(
    typeof value === 'string' ? value : Array.isArray(value) ? `[${value.join(', ')}]` : String(value),
    MAX_VALUE,
  )
}

function clean(text: string, most: number): string {
  return printable(text.length > most ? `${text.slice(0, most)}…` : text)
}

/** Root of the family. `instanceof` also works across two installed copies of the package. */
export class SluiceError extends Error {
  readonly code: ErrorCode
  readonly details: Readonly<Record<string, unknown>>

  constructor(code: ErrorCode, parts: ErrorParts) {
    super(compose(parts), parts.cause === undefined ? undefined : { cause: parts.cause })
    this.name = new.target.name
    this.code = code
    this.details = Object.freeze({ ...parts.details })
    Object.defineProperty(this, FAMILY, { value: true })
  }

  static override [Symbol.hasInstance](value: unknown): boolean {
    if (typeof value !== 'object' || value === null) return false
    // biome-ignore lint/complexity/noThisInStatic: subclasses inherit this check
    return this === SluiceError ? FAMILY in value : Function.prototype[Symbol.hasInstance].call(this, value)
  }
}

/** A model file, package, index or adapter that cannot be accepted. */
export class ModelFormatError extends SluiceError {}
/** Bytes could not be read. */
export class SourceError extends SluiceError {}
/** The memory promise cannot be kept. */
export class BudgetError extends SluiceError {}
/** A graph, configuration or request fails a check. */
export class ValidationError extends SluiceError {}
/** Running a model failed. */
export class InferenceError extends SluiceError {}
/** Converting, quantizing or writing failed. */
export class ConversionError extends SluiceError {}

/** True for an error of this package, of the given code if one is named. */
export function isSluiceError(value: unknown, code?: ErrorCode): value is SluiceError {
  return value instanceof SluiceError && (code === undefined || value.code === code)
}

/** For what exists in the design and not yet in the code: listed in the README, never pretended. */
export function notImplemented(what: string, where?: string): never {
  throw new SluiceError('NOT_IMPLEMENTED', {
    what: `${what} is not implemented`,
    ...(where === undefined ? {} : { where }),
    remedy: 'See "Not implemented yet" in the README.',
  })
}

/** Throws ABORTED when the signal has fired. */
export function throwIfAborted(signal: AbortSignal | undefined): void {
  if (signal?.aborted) throw new SluiceError('ABORTED', { what: 'cancelled', cause: signal.reason })
}
