// Which format is this? Looked up from what is there, never from a file's name alone.
import { open as openHandle, stat } from 'node:fs/promises'
import { join } from 'node:path'
import { ModelFormatError, SourceError } from '../base/errors.ts'
import { fsError } from '../source/fserror.ts'
import type { OpenMode } from '../source/openFile.ts'
import type { ModelFormatName, ModelReader } from './reader.ts'

export interface OpenModelOptions {
  readonly mode?: OpenMode
  readonly verify?: 'eager' | 'lazy' | 'off'
}

/** Opens a model of any format this package reads. Throws what the format's reader throws; FORMAT_UNSUPPORTED when it is none of them. */
export async function openModel(path: string, options: OpenModelOptions = {}): Promise<ModelReader> {
  switch (await sniff(path)) {
    case 'wia':
      return (await import('./wia/read.ts')).openWia(path, options)
    case 'gguf':
      return (await import('./gguf/read.ts')).openGguf(path, options)
    case 'safetensors':
      return (await import('./safetensors/read.ts')).openSafetensors(path, options)
  }
}

async function isFile(path: string): Promise<boolean> {
  return (await stat(path).catch(() => undefined))?.isFile() === true
}

async function sniff(path: string): Promise<ModelFormatName> {
  const found = await stat(path).catch((err: unknown) => {
    throw fsError(err, path, 'open the model')
  })
  if (found.isDirectory()) return sniffDirectory(path)
  if (!found.isFile())
    throw new SourceError('SOURCE_IO', {
      what: 'not a regular file',
      where: path,
      remedy: 'Give a model file or directory.',
    })
  const head = await firstBytes(path)
  const magic = head.subarray(0, 4).toString('latin1')
  if (magic === 'GGUF') return 'gguf'
  if (magic === 'WIA1' || magic === '1AIW') return 'wia'
  if (path.endsWith('.gguf')) return 'gguf' // a damaged one: its reader says what is wrong
  if (path.endsWith('manifest.json')) return 'wia'
  if (path.endsWith('.safetensors') || path.endsWith('.index.json') || head[8] === 0x7b) return 'safetensors'
  throw unknown(path, 'a package, safetensors or GGUF file')
}

async function sniffDirectory(path: string): Promise<ModelFormatName> {
  if (await isFile(join(path, 'manifest.json'))) return 'wia'
  for (const name of ['model.safetensors.index.json', 'model.safetensors', 'config.json'])
    if (await isFile(join(path, name))) return 'safetensors'
  throw unknown(path, 'manifest.json, or model.safetensors with or without an index, in the directory')
}

async function firstBytes(path: string): Promise<Buffer> {
  const handle = await openHandle(path).catch((err: unknown) => {
    throw fsError(err, path, 'open the model')
  })
  try {
    const head = Buffer.alloc(16)
    await handle.read(head, 0, head.length, 0)
    return head
  } finally {
    await handle.close()
  }
}

function unknown(path: string, expected: string): ModelFormatError {
  return new ModelFormatError('FORMAT_UNSUPPORTED', {
    what: 'not a model in a format that is read here',
    where: path,
    expected,
    got: 'none of them',
  })
}
