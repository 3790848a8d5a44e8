// How the reader reads. An explicit mode is obeyed or refused; `auto` is direct I/O where the file system offers it, else pread that drops
// the page cache behind it. Either way the bytes are the same; what differs is what is left in the page cache, which counts.
import { dirname } from 'node:path'
import { isSluiceError, SourceError } from '../base/errors.ts'
import { openFileSync } from '../source/openFile.ts'
import type { ByteSource, FileDescriptor, IoMode } from '../source/source.ts'
import type { PagerReport } from './pager.ts'
import type { SourceShape } from './place.ts'

export interface PagerIo {
  readonly mode: string
  readonly pageCache: PagerReport['pageCache']
  /** By source index, for all sources of the model. */
  readonly shapes: readonly SourceShape[]
  /** Files for the reader thread, by source index; absent: the sources exist on the main thread only and are read there. */
  readonly files?: ReadonlyMap<number, FileDescriptor>
}

/** Decides for the sources in `used`. Throws SOURCE_MODE for a mode that cannot be had, and what opening a file throws. */
export function chooseIo(sources: readonly ByteSource[], used: ReadonlySet<number>, ioMode: 'auto' | IoMode): PagerIo {
  const descriptors = new Map<number, FileDescriptor>()
  for (const i of used) {
    const descriptor = sources[i]?.descriptor
    if (descriptor !== undefined) descriptors.set(i, descriptor)
    else if (ioMode === 'auto') return inline(sources, used)
    else
      throw new SourceError('SOURCE_MODE', {
        what: `I/O mode '${ioMode}' needs files`,
        where: sources[i]?.id ?? `source ${i}`,
        got: sources[i]?.kind,
        remedy: "Use mode 'auto'.",
      })
  }
  if (ioMode !== 'auto') return files(sources, descriptors, ioMode, probe(descriptors, ioMode))
  try {
    return files(sources, descriptors, 'direct', probe(descriptors, 'direct'))
  } catch (error) {
    if (!isSluiceError(error, 'SOURCE_MODE')) throw error
    return files(sources, descriptors, 'pread', probe(descriptors, 'pread'))
  }
}

/** Files as the reader opens them. */
function reopened(descriptor: FileDescriptor, mode: IoMode): FileDescriptor {
  return { ...descriptor, mode, dropBehind: mode !== 'direct' }
}

interface Probe {
  readonly alignment: number
  readonly drops: boolean
}

/** Opens a file of every folder that way. What a file system offers is learnt by trying. */
function probe(descriptors: ReadonlyMap<number, FileDescriptor>, mode: IoMode): Probe {
  const folders = new Map<string, FileDescriptor>()
  for (const d of descriptors.values()) folders.set(dirname(d.path), d)
  let alignment = 1
  let drops = true
  for (const d of folders.values()) {
    const source = openFileSync(reopened(d, mode))
    alignment = Math.max(alignment, source.alignment)
    drops &&= 'dropBehind' in source && source.dropBehind === true
    void source.close()
  }
  return { alignment, drops }
}

function files(
  sources: readonly ByteSource[],
  descriptors: ReadonlyMap<number, FileDescriptor>,
  mode: IoMode,
  { alignment, drops }: Probe,
): PagerIo {
  return {
    mode,
    pageCache: mode === 'direct' ? 'none' : drops ? 'dropped' : 'kept',
    shapes: sources.map((s) => ({ size: s.size, alignment })),
    files: new Map([...descriptors].map(([i, d]) => [i, reopened(d, mode)])),
  }
}

function inline(sources: readonly ByteSource[], used: ReadonlySet<number>): PagerIo {
  const kinds = new Set([...used].map((i) => sources[i]!.kind))
  return {
    mode: [...kinds].join('+'),
    pageCache: [...used].some((i) => sources[i]!.descriptor !== undefined) ? 'kept' : 'none',
    shapes: sources.map((s) => ({ size: s.size, alignment: s.alignment })),
  }
}
