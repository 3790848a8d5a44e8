// Errors of the file system, told as what happened, to which path, and what helps.
import { type ErrorCode, SluiceError, SourceError } from '../base/errors.ts'

const REASONS: Readonly<Record<string, readonly [what: string, remedy: string]>> = {
  ENOENT: ['no such file', 'Check the path.'],
  ENOTDIR: ['a part of the path is not a folder', 'Check the path.'],
  EACCES: ['no permission to read', 'Give this user read access (chmod, chown), or run as one that has it.'],
  EPERM: ['the system does not permit it', 'Check ownership, mount options and sandbox rules.'],
  EISDIR: ['is a folder, not a file', 'Name a file inside it.'],
  ELOOP: ['links lead in a circle', 'Repair the link.'],
  ENAMETOOLONG: ['the path is too long', 'Use a shorter path.'],
  EIO: ['the disk could not deliver the bytes', 'Check the disk (dmesg), or copy the file elsewhere and try again.'],
  EMFILE: ['this process has too many open files', 'Raise the limit (ulimit -n) or close models that are not used.'],
  ENFILE: ['the system has too many open files', 'Raise fs.file-max or close other programs.'],
  ENOMEM: ['the system has no memory or address space for it', 'Raise ulimit -v, or use less memory.'],
  ENODEV: ['the file system does not support it', "Use mode 'pread'."],
  EBADF: ['the file handle is not open any more', 'Something closed a handle it does not own.'],
  ESTALE: ['the network file system lost the file', 'Open the model again.'],
  ETIMEDOUT: ['the network file system did not answer', 'Check the mount, then open the model again.'],
}

/** The errno name of an error that Node threw, if it is one. */
export function errnoOf(error: unknown): string | undefined {
  const code = typeof error === 'object' && error !== null ? (error as { code?: unknown }).code : undefined
  return typeof code === 'string' ? code : undefined
}

/** Turns an error of node:fs into one of the family; one that is already is returned as it is. */
export function fsError(error: unknown, path: string, doing: string, code: ErrorCode = 'SOURCE_IO'): SluiceError {
  if (error instanceof SluiceError) return error
  const errno = errnoOf(error)
  const known = errno === undefined ? undefined : REASONS[errno]
  const message = error instanceof Error ? error.message : String(error)
  return new SourceError(code, {
    what: `cannot ${doing}: ${known?.[0] ?? message}${known === undefined ? '' : ` (${errno})`}`,
    where: path,
    ...(known === undefined ? {} : { remedy: known[1] }),
    details: { path, errno },
    cause: error,
  })
}
