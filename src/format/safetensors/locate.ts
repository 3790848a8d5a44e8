// What a path to a safetensors model means: a file, an index over shards, or a folder with one of the two.
import { readdir, stat } from 'node:fs/promises'
import { basename, dirname, join, resolve } from 'node:path'
import { ModelFormatError } from '../../base/errors.ts'
import { fsError } from '../../source/fserror.ts'

export interface Located {
  /** Folder that side files and shards lie in. */
  readonly root: string
  /** The weights file or index, a name inside root. */
  readonly file: string
  readonly kind: 'single' | 'index'
  /** Names in root. */
  readonly siblings: ReadonlySet<string>
}

const SINGLE = 'model.safetensors'
const INDEX = 'model.safetensors.index.json'

/** Looks, without opening anything. Throws SOURCE_IO when there is no such path, FORMAT_INVALID when a folder has no or no unambiguous model. */
export async function locate(path: string): Promise<Located> {
  const full = resolve(path)
  let folder: boolean
  let siblings: Set<string>
  try {
    folder = (await stat(full)).isDirectory()
    siblings = new Set(await readdir(folder ? full : dirname(full)))
  } catch (error) {
    throw fsError(error, path, 'open')
  }
  if (folder) return { root: full, siblings, ...choose(path, siblings) }
  const file = basename(full)
  return { root: dirname(full), file, kind: file.endsWith('.json') ? 'index' : 'single', siblings }
}

function choose(path: string, names: ReadonlySet<string>): { file: string; kind: 'single' | 'index' } {
  const pick = (candidates: string[], kind: 'single' | 'index') => {
    if (candidates.length === 1) return { file: candidates[0]!, kind }
    throw new ModelFormatError('FORMAT_INVALID', {
      what: 'folder has several models',
      where: path,
      got: candidates.sort(),
      remedy: 'Open the one you mean by its own path.',
    })
  }
  if (names.has(SINGLE) && names.has(INDEX)) return pick([SINGLE, INDEX], 'index')
  if (names.has(INDEX)) return { file: INDEX, kind: 'index' }
  if (names.has(SINGLE)) return { file: SINGLE, kind: 'single' }
  const indexes = [...names].filter((n) => n.endsWith('.safetensors.index.json'))
  if (indexes.length > 0) return pick(indexes, 'index')
  const files = [...names].filter((n) => n.endsWith('.safetensors'))
  if (files.length > 0) return pick(files, 'single')
  throw new ModelFormatError('FORMAT_INVALID', {
    what: 'folder has no safetensors file',
    where: path,
    expected: `${SINGLE} or ${INDEX}`,
    got: [...names].slice(0, 8),
  })
}

/** Files the text layer and conversion may ask for, where they exist. */
export const SIDE_FILES: readonly string[] = [
  'tokenizer.json',
  'tokenizer.model',
  'tokenizer_config.json',
  'special_tokens_map.json',
  'added_tokens.json',
  'vocab.json',
  'vocab.txt',
  'merges.txt',
  'chat_template.jinja',
  'chat_template.json',
  'generation_config.json',
]

/** For messages: a file's path as the caller would write it. */
export function shown(located: Located, name: string): string {
  return join(located.root, name)
}
