// The model that is shipped, as engine tests open it: no other data is needed.
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { type Model, open } from '#sluice/api/model.js'
import type { AttachedAdapter } from '#sluice/engine/adapters.js'
import type { ModelReader } from '#sluice/format/reader.js'
import type { ByteSource, MaybePromise, ReadOptions } from '#sluice/source/source.js'
import { readNpy } from '../npy.ts'

export const STORYTELLER = join(import.meta.dirname, '../../examples/storyteller.wia')
const FIXTURES = join(import.meta.dirname, '../fixtures/storyteller')

export interface Story {
  prompt: string
  ids: number[]
  greedy_ids: number[]
  greedy_text: string
  logits_npy: string
}

export function stories(name: 'base' | 'pirate'): Story[] {
  return (JSON.parse(readFileSync(join(FIXTURES, `${name}.json`), 'utf8')) as { prompts: Story[] }).prompts
}

/** float64 logits of a prompt, [tokens, vocabulary], where the fixtures have them. */
export function storyLogits(story: Story): Float32Array | undefined {
  try {
    return readNpy(join(FIXTURES, story.logits_npy)).data as Float32Array
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined
    throw error
  }
}

export function tokenizerCases(): { text: string; ids: number[]; decoded?: string; all_agree?: boolean }[] {
  return JSON.parse(readFileSync(join(FIXTURES, 'tokenizer.json'), 'utf8')).cases
}

export async function withStoryteller(work: (model: Model) => Promise<void>): Promise<void> {
  const model = await open(STORYTELLER)
  try {
    await work(model)
  } finally {
    await model.close()
  }
}

export async function attached(model: Model, path: string, scale = 1): Promise<AttachedAdapter> {
  const a = await model.adapter(path)
  return { name: a.name, scale, reader: a.reader, pairs: a.pairs }
}

type Read = (offset: number, length: number, options?: ReadOptions) => MaybePromise<Uint8Array>

/** The model with reads that a test has its hands on. Without descriptors: the pager reads on the main thread. */
export function withReads(
  reader: ModelReader,
  read: (original: Read, ...args: Parameters<Read>) => MaybePromise<Uint8Array>,
): ModelReader {
  const sources = reader.sources.map(
    (s): ByteSource => ({
      size: s.size,
      id: s.id,
      kind: 'test',
      alignment: 1,
      read: (offset, length, options) => read((...a) => s.read(...a), offset, length, options),
      close: () => undefined,
    }),
  )
  const { format, path, tensors, config, metadata, tokenizerFiles, adapters, identity, bytesRead, architecture } =
    reader
  return {
    format,
    path,
    sources,
    tensors,
    config,
    metadata,
    tokenizerFiles,
    adapters,
    identity,
    bytesRead,
    ...(architecture === undefined ? {} : { architecture }),
    close: async () => undefined,
  }
}
