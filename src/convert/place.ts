// Where the output may stand beside its source: overwriting must not be able to take the source away.
import { realpath } from 'node:fs/promises'
import { basename, dirname, join, relative, resolve, sep } from 'node:path'
import { ConversionError } from '../base/errors.ts'
import type { ModelReader } from '../format/reader.ts'

/**
 * Throws REQUEST_INVALID when the output is the source, lies inside its folder, or would contain it. `inPlace` allows the source's
 * own name: a package whose numbers are kept takes its own place when the new one is complete.
 */
export async function checkPlace(reader: ModelReader, output: string, inPlace: boolean): Promise<void> {
  const target = await real(resolve(output))
  const path = reader.format === 'wia' && basename(reader.path) === 'manifest.json' ? dirname(reader.path) : reader.path
  const source = await real(resolve(path))
  if (target === source) {
    if (inPlace) return
    refuse('the output is the model itself', output, source, 'Choose another name.')
  }
  if (inside(target, source)) refuse('the output lies inside the model', output, source, 'Choose a folder outside it.')
  for (const file of [source, ...(await Promise.all(reader.sources.map((s) => real(s.id))))])
    if (inside(file, target))
      refuse('the output would replace a folder that holds the model', output, file, 'Choose another name.')
}

function refuse(what: string, output: string, source: string, remedy: string): never {
  throw new ConversionError('REQUEST_INVALID', {
    what,
    where: output,
    got: source,
    remedy,
    details: { output, source },
  })
}

function inside(path: string, folder: string): boolean {
  const way = relative(folder, path)
  return way !== '' && way !== '..' && !way.startsWith(`..${sep}`)
}

/** The path without links, as far as it exists. */
async function real(path: string): Promise<string> {
  try {
    return await realpath(path)
  } catch {
    const parent = dirname(path)
    return parent === path ? path : join(await real(parent), basename(path))
  }
}
