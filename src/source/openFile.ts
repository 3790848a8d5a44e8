// Opens a file in the way asked for, or refuses. The one door to pread, direct, mmap and mmap-io.
import { isSluiceError, ValidationError } from '../base/errors.ts'
import { loadAddon } from './addon.ts'
import { DirectSource } from './direct.ts'
import { type FileIdentity, OpenFile } from './file.ts'
import { MmapSource, mapError } from './mmap.ts'
import { MmapIoSource } from './mmap-io.ts'
import { PreadSource } from './pread.ts'
import type { ByteSource, FileDescriptor, IoMode } from './source.ts'

/** `auto`: our mapping addon where it works, else pread. 'mmap-io' is the npm package of that name. */
export type OpenMode = 'auto' | IoMode | 'mmap-io'

export const OPEN_MODES: readonly OpenMode[] = ['auto', 'mmap', 'pread', 'direct', 'mmap-io']

export interface OpenFileOptions {
  /** Default 'auto'. Any other is obeyed or refused with SOURCE_MODE, never swapped for another. */
  mode?: OpenMode
  /**
   * Bulk reads forget the page cache they filled, which a memory cgroup charges to this process. Default false. Needs the
   * addon (the source's `dropBehind` says whether it happens); `direct` leaves no page cache anyway.
   */
  dropBehind?: boolean
}

/**
 * Opens a regular file. Throws SOURCE_IO (not there, not readable, a folder, a pipe, a device), SOURCE_MODE,
 * REQUEST_INVALID (unknown mode).
 */
export async function openFile(path: string, options: OpenFileOptions = {}): Promise<ByteSource> {
  return open(path, options.mode ?? 'auto', options.dropBehind ?? false)
}

/** Opens again, in another thread, what a descriptor names. Throws SOURCE_CHANGED when another file is there now, and as openFile does. */
export function openFileSync(descriptor: FileDescriptor): ByteSource {
  return open(descriptor.path, descriptor.mode, descriptor.dropBehind ?? false, descriptor)
}

function open(path: string, mode: OpenMode, dropBehind: boolean, expected?: FileIdentity): ByteSource {
  switch (mode) {
    case 'pread':
      return new PreadSource(new OpenFile(path, expected), loadAddon(), dropBehind)
    case 'direct':
      return DirectSource.open(path, expected)
    case 'mmap-io':
      return new MmapIoSource(new OpenFile(path, expected))
    case 'mmap': {
      const addon = loadAddon()
      if (addon === undefined)
        throw mapError(path, 'the mapping addon is not built for this system, or is switched off')
      return new MmapSource(new OpenFile(path, expected), addon, dropBehind)
    }
    case 'auto':
      if (loadAddon() === undefined) return open(path, 'pread', dropBehind, expected)
      try {
        return open(path, 'mmap', dropBehind, expected)
      } catch (error) {
        if (!isSluiceError(error, 'SOURCE_MODE')) throw error
        return open(path, 'pread', dropBehind, expected)
      }
    default:
      throw new ValidationError('REQUEST_INVALID', {
        what: 'unknown I/O mode',
        where: path,
        expected: OPEN_MODES.join(' | '),
        got: mode,
      })
  }
}
