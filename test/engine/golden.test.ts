// Real models against independent programs: float64 logits of a numpy reference, greedy text that llama.cpp agrees with.
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect } from 'vitest'
import { type Model, open } from '#sluice/api/model.js'
import { data, dataTest } from '../data.ts'
import { maxDifference, readNpy } from '../npy.ts'
import { greedy, logitsOf } from './run.ts'

interface Prompt {
  ids: number[]
  greedy_llamacpp?: number[]
  float64_first_difference?: number | null
  logits_npy?: string
  experts_per_layer?: number[][][]
}

const MODELS: { model: string[]; golden: string[]; text?: boolean; reference?: string }[] = [
  { model: ['stories260k', 'hf'], golden: ['stories260k', 'golden', 'stories260K-F32.json'] },
  // Norm weights are rounded to 16 bits here: logits have a reference of their own.
  {
    model: ['stories260k', 'hf-f16'],
    golden: ['stories260k', 'golden', 'stories260K-F16.json'],
    reference: 'stories260k-hf-f16.npy',
    text: false,
  },
  {
    model: ['stories260k', 'hf-bf16'],
    golden: ['stories260k', 'golden', 'stories260K-BF16.json'],
    reference: 'stories260k-hf-bf16.npy',
    text: false,
  },
  ...[
    'F32',
    'F16',
    'BF16',
    ...['Q8_0', 'Q4_0', 'Q4_1', 'Q5_0', 'Q5_1', 'IQ4_NL', 'MXFP4'].map((t) => `ffn192-${t}`),
  ].map((t) => ({
    model: ['stories260k', 'gguf', `stories260K-${t}.gguf`],
    golden: ['stories260k', 'golden', `stories260K-${t}.json`],
    text: !t.startsWith('ffn192'),
  })),
  {
    model: ['foreign', 'gguf', 'stories260K-ffn192-Q8_0-bigendian.gguf'],
    golden: ['stories260k', 'golden', 'stories260K-ffn192-Q8_0.json'],
    text: false,
  },
  {
    model: ['foreign', 'gguf', 'stories260K-F16-bigendian.gguf'],
    golden: ['stories260k', 'golden', 'stories260K-F16.json'],
  },
  {
    model: ['foreign', 'gguf', 'split', 'stories260K-ffn192-Q8_0-00001-of-00003.gguf'],
    golden: ['stories260k', 'golden', 'stories260K-ffn192-Q8_0.json'],
    text: false,
  },
  { model: ['stories4m', 'hf'], golden: ['stories4m', 'golden', 'stories4m-BF16.json'] },
  ...['Q2_K', 'Q3_K', 'Q4_K', 'Q5_K', 'Q6_K', 'IQ4_XS', 'Q4_K_M-by-llamacpp'].map((t) => ({
    model: ['stories4m', 'gguf', `stories4m-${t}.gguf`],
    golden: ['stories4m', 'golden', `stories4m-${t}.json`],
    text: false,
  })),
  { model: ['stories-moe', 'hf'], golden: ['stories-moe', 'golden', 'stories-moe-F16.json'] },
  { model: ['stories-moe', 'gguf', 'stories-moe-F16.gguf'], golden: ['stories-moe', 'golden', 'stories-moe-F16.json'] },
  {
    model: ['stories-moe', 'gguf', 'stories-moe-Q4_0.gguf'],
    golden: ['stories-moe', 'golden', 'stories-moe-Q4_0.json'],
    text: false,
  },
]

async function withModel(path: string, work: (model: Model) => Promise<void>): Promise<void> {
  const model = await open(path)
  try {
    await work(model)
  } finally {
    await model.close()
  }
}

describe.each(MODELS)('$model', ({ model: parts, golden, text = true, reference }) => {
  dataTest('logits within 1e-3 of the float64 reference, experts and greedy text equal', async () => {
    const prompts = (JSON.parse(readFileSync(data(...golden), 'utf8')) as { prompts: Prompt[] }).prompts
    const folder = data(golden[0]!)
    await withModel(data(...parts), async (model) => {
      const engine = await model.engine({ precision: 'exact', threads: 2, memory: 512 * 1024 * 1024 })
      try {
        let compared = 0
        for (const p of prompts) {
          const trace = { experts: [] as number[][][] }
          const got = await logitsOf(engine, p.ids, trace)
          if (p.logits_npy !== undefined) {
            expect(
              maxDifference(
                got,
                readNpy(
                  reference === undefined
                    ? join(folder, p.logits_npy)
                    : join(import.meta.dirname, '../fixtures/reference', reference),
                ).data,
              ),
            ).toBeLessThan(1e-3)
            compared++
          }
          if (p.experts_per_layer !== undefined) expect(trace.experts).toEqual(p.experts_per_layer)
          if (text && p.greedy_llamacpp !== undefined) {
            const wanted = p.greedy_llamacpp.slice(0, p.float64_first_difference ?? undefined)
            expect(await greedy(engine, p.ids, wanted.length)).toEqual(wanted)
          }
        }
        expect(compared).toBeGreaterThan(0)
      } finally {
        await engine.close()
      }
    })
  })
})

dataTest('greedy text over the whole 512-token context', async () => {
  const golden = JSON.parse(readFileSync(data('stories260k', 'golden', 'stories260K-long.json'), 'utf8')) as {
    start: number[]
    greedy: number[]
  }
  await withModel(data('stories260k', 'hf'), async (model) => {
    const engine = await model.engine({ precision: 'exact', threads: 2 })
    try {
      expect(golden.greedy.length).toBeGreaterThan(500)
      expect(await greedy(engine, golden.start, golden.greedy.length)).toEqual(golden.greedy)
    } finally {
      await engine.close()
    }
  })
})
