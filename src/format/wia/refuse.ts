// The two ways in which a package is refused, said in one line where a rule is checked.
import { type ErrorCode, type ErrorParts, ModelFormatError } from '../../base/errors.ts'

type Facts = Pick<ErrorParts, 'expected' | 'got' | 'remedy' | 'details' | 'cause'>

/** A rule of docs/FORMAT.md is broken: FORMAT_INVALID unless another code fits better. */
export function invalid(what: string, where: string, facts: Facts = {}, code: ErrorCode = 'FORMAT_INVALID'): never {
  throw new ModelFormatError(code, { what, where, ...facts })
}

/** Something this version does not know: FORMAT_UNSUPPORTED, naming it. */
export function unsupported(what: string, where: string, got: unknown, remedy?: string): never {
  throw new ModelFormatError('FORMAT_UNSUPPORTED', {
    what,
    where,
    got,
    ...(remedy === undefined ? {} : { remedy }),
  })
}

/** A number above its cap. */
export function tooMany(what: string, where: string, cap: number, got: number): never {
  throw new ModelFormatError('FORMAT_LIMIT', { what, where, expected: `≤ ${cap}`, got })
}
