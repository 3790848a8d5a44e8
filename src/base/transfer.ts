// Errors across threads: structured cloning keeps neither classes nor codes, so they travel as plain data and are made again.
import {
  BudgetError,
  ConversionError,
  ERROR_CODES,
  type ErrorCode,
  InferenceError,
  isSluiceError,
  ModelFormatError,
  SluiceError,
  SourceError,
  ValidationError,
} from './errors.ts'

/** An error as plain data: can be posted. */
export interface PlainError {
  readonly name: string
  readonly message: string
  readonly code?: ErrorCode
  readonly details?: Readonly<Record<string, unknown>>
  readonly stack?: string
  readonly cause?: PlainError
}

const CLASSES: Readonly<Record<string, typeof SluiceError>> = {
  SluiceError,
  ModelFormatError,
  SourceError,
  BudgetError,
  ValidationError,
  InferenceError,
  ConversionError,
}
/** Causes of causes that are kept. */
const MAX_CAUSES = 4

/** Any thrown value as plain data. Never throws. */
export function toPlainError(error: unknown, depth = 0): PlainError {
  if (!(error instanceof Error)) return { name: 'Error', message: String(error) }
  return {
    name: error.name,
    message: error.message,
    ...(isSluiceError(error) ? { code: error.code, details: toPlainDetails(error.details) } : {}),
    ...(error.stack === undefined ? {} : { stack: error.stack }),
    ...(error.cause === undefined || depth === MAX_CAUSES ? {} : { cause: toPlainError(error.cause, depth + 1) }),
  }
}

/** The error again: of its class in the family, with code, details, stack and cause; a plain Error for others. */
export function fromPlainError(plain: PlainError): Error {
  const cause = plain.cause === undefined ? undefined : fromPlainError(plain.cause)
  const error =
    plain.code !== undefined && Object.hasOwn(ERROR_CODES, plain.code)
      ? new (Object.hasOwn(CLASSES, plain.name) ? CLASSES[plain.name]! : SluiceError)(plain.code, {
          what: plain.message,
          details: { ...plain.details },
          cause,
        })
      : Object.assign(new Error(plain.message, cause === undefined ? undefined : { cause }), { name: plain.name })
  if (plain.stack !== undefined) error.stack = plain.stack
  return error
}

// Details are facts for programs: numbers, texts and lists of them. What cannot be cloned becomes text.
function toPlainDetails(details: Readonly<Record<string, unknown>>): Record<string, unknown> {
  return Object.fromEntries(
    Object.entries(details).map(([key, value]) => {
      try {
        return [key, structuredClone(value)]
      } catch {
        return [key, String(value)]
      }
    }),
  )
}
