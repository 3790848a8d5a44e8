// What conversion tests do again and again: convert into a folder of their own, run, compare folders.
import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { afterAll } from 'vitest'
import { type Model, open } from '#sluice/api/model.js'
import { type ConversionReport, type ConvertOptions, convertToWia } from '#sluice/convert/convert.js'
import { type ToySize, toyConfig, toyModel } from '../arch/toy.ts'
import { logitsOf } from '../engine/run.ts'
import { safetensors, type Tensor } from '../format/safetensors/build.ts'

export const STORYTELLER = resolve(import.meta.dirname, '../../examples/storyteller.wia')

/** A folder that is gone after the tests of the file. */
export function scratch(): string {
  const root = mkdtempSync(join(tmpdir(), 'sluice-convert-'))
  afterAll(() => rmSync(root, { recursive: true, force: true }))
  return root
}

export async function withModel<T>(path: string, work: (model: Model) => Promise<T>): Promise<T> {
  const model = await open(path)
  try {
    return await work(model)
  } finally {
    await model.close()
  }
}

export function convert(path: string, output: string, options: ConvertOptions = {}): Promise<ConversionReport> {
  return withModel(path, (model) => convertToWia(model.reader, model.architecture(), output, options))
}

export function run(
  path: string,
  ids: readonly number[],
  precision: 'exact' | 'fast' = 'exact',
): Promise<Float32Array> {
  return withModel(path, async (model) => {
    const engine = await model.engine({ precision, threads: 1, memory: 512 * 1024 * 1024 })
    try {
      return await logitsOf(engine, ids)
    } finally {
      await engine.close()
    }
  })
}

/** Every file under a folder as text of its bytes, by path: folders are equal when these are. */
export function contents(folder: string): Map<string, string> {
  const names = readdirSync(folder, { recursive: true, withFileTypes: true }).filter((e) => e.isFile())
  const paths = names.map((e) => join(e.parentPath, e.name)).sort()
  return new Map(paths.map((p) => [p.slice(folder.length + 1), readFileSync(p).toString('base64')]))
}

type Tensors = Map<string, { shape: readonly number[]; data: Float32Array }>

/** Tensors of a small model from a seed, float32. `change` may damage or add some. */
export function toyTensors(
  size: ToySize,
  more: Parameters<typeof toyConfig>[1] = {},
  change: (tensors: Tensors) => void = () => {},
): Tensor[] {
  const made = toyModel(size, toyConfig(size, more), 7).tensors
  const tensors: Tensors = new Map(
    [...made].map(([name, t]) => [name, { shape: t.shape, data: Float32Array.from(t.data) }]),
  )
  change(tensors)
  return [...tensors].map(([name, t]) => ({
    name,
    dtype: 'F32',
    shape: [...t.shape],
    bytes: new Uint8Array(t.data.buffer),
  }))
}

/** The same as files of a checkpoint. */
export function toyFiles(...of: Parameters<typeof toyTensors>): Record<string, Uint8Array | string> {
  const [size, more = {}] = of
  return {
    'config.json': JSON.stringify(toyConfig(size, more)),
    'model.safetensors': safetensors(toyTensors(...of)),
  }
}
