// Models of other formats, real ones: the package has the same numbers bit for bit, the same logits, the same token ids.
import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect } from 'vitest'
import type { Model } from '#sluice/api/model.js'
import { partOf } from '#sluice/format/part.js'
import { findTensor } from '#sluice/graph/tensors.js'
import { openTensors } from '#sluice/tensor/lazy.js'
import { data, dataTest } from '../data.ts'
import { logitsOf } from '../engine/run.ts'
import { maxDifference } from '../npy.ts'
import { convert, scratch, withModel } from './made.ts'

const root = scratch()
const IDS = [1, 403, 407, 261, 378, 400, 286]

/** A weight of the graph, as numbers: a part of a stacked tensor where the format has those. */
async function weight(model: Model, name: string): Promise<Float32Array> {
  const { tensor, part } = findTensor(model.reader.tensors, model.architecture().names.get(name)!)!
  const entry = model.reader.tensors.get(tensor)!
  const own = part === undefined ? entry : partOf(entry, part)
  const { sources, path } = model.reader
  return openTensors({ tensors: new Map([[name, own]]), sources, path })
    .get(name)
    .astype('float32')
}

async function logits(model: Model): Promise<{ logits: Float32Array; experts: number[][][] }> {
  const engine = await model.engine({ precision: 'exact', threads: 1, memory: 512 * 1024 * 1024 })
  try {
    const trace = { experts: [] as number[][][] }
    return { logits: await logitsOf(engine, IDS, trace), experts: trace.experts }
  } finally {
    await engine.close()
  }
}

const MODELS = [
  ...['F32', 'F16', 'BF16', 'ffn192-Q8_0', 'ffn192-Q4_0'].map((t) => `stories260k/gguf/stories260K-${t}.gguf`),
  'foreign/gguf/stories260K-F16-bigendian.gguf',
  'foreign/gguf/stories260K-ffn192-Q8_0-bigendian.gguf',
  'foreign/gguf/split/stories260K-ffn192-Q8_0-00001-of-00003.gguf',
  'stories-moe/gguf/stories-moe-F16.gguf',
  'stories-moe/gguf/stories-moe-Q4_0.gguf',
  'stories-moe/hf',
  'stories4m/hf',
  'stories260k/hf',
]

describe.each(MODELS)('%s', (path) => {
  const output = join(root, path.replaceAll('/', '-'))

  dataTest('kept: numbers, logits, experts and token ids are the same', async () => {
    const report = await convert(data(path), output)
    expect(report.tensors.filter((t) => t.error !== undefined)).toEqual([])
    await withModel(data(path), (from) =>
      withModel(output, async (to) => {
        const names = to.architecture().graph.weights.map((w) => w.name)
        expect(names.length).toBeGreaterThan(40)
        for (const name of names) {
          const [a, b] = [await weight(from, name), await to.tensor(name).astype('float32')]
          expect(
            Buffer.from(a.buffer, a.byteOffset, a.byteLength).equals(Buffer.from(b.buffer, b.byteOffset, b.byteLength)),
            name,
          ).toBe(true)
        }
        const [a, b] = [await logits(from), await logits(to)]
        expect(maxDifference(a.logits, b.logits)).toBe(0)
        expect(b.experts).toEqual(a.experts)
        expect(a.experts.length > 0).toBe(path.includes('moe'))
        const [one, two] = [await from.tokenizer(), await to.tokenizer()]
        expect(one).toBeDefined()
        const texts = JSON.parse(readFileSync(data('stories260k/golden/tokenizer.json'), 'utf8')) as {
          cases?: { text: string }[]
        }
        const cases = texts.cases ?? []
        expect(cases.length).toBeGreaterThan(10)
        for (const { text } of cases) expect(two!.encode(text), JSON.stringify(text)).toEqual(one!.encode(text))
      }),
    )
  })
})

dataTest(
  'routers of a mixture keep their numbers in few bits, everything is finite and the experts are mostly the same',
  async () => {
    const output = join(root, 'moe-int4')
    await convert(data('stories-moe/hf'), output, { quantization: 'int4' })
    await withModel(data('stories-moe/hf'), (from) =>
      withModel(output, async (to) => {
        const routers = to.tensorNames.filter((n) => /gate\.weight$/.test(n))
        expect(routers.length).toBeGreaterThan(0)
        for (const name of routers)
          expect(Buffer.compare(await to.tensor(name).bytes(), await from.tensor(name).bytes()), name).toBe(0)
        const few = to.tensorNames.filter((n) => {
          const e = to.tensor(n).entry.encoding
          return e.kind === 'panel' && e.scheme === 'int4'
        })
        expect(few.length).toBe(to.tensorNames.filter((n) => /(proj|w[123])\.weight$/.test(n)).length)
        const chosen = (l: { experts: number[][][] }) => l.experts.flat().map((e) => `${[...e].sort()}`)
        const [a, b] = [chosen(await logits(from)), chosen(await logits(to))]
        expect(a.filter((e, i) => e === b[i]).length).toBeGreaterThan(a.length * 0.8)
      }),
    )
    expect(readdirSync(output)).toContain('architecture.json')
  },
)
