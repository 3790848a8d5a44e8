// LoRA adapters against float64 logits of a reference that merged them into the weights.
import { cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { describe, expect } from 'vitest'
import { type Model, open } from '#sluice/api/model.js'
import type { AttachedAdapter } from '#sluice/engine/adapters.js'
import { data, dataTest } from '../data.ts'
import { maxDifference, readNpy } from '../npy.ts'
import { greedy, logitsOf } from './run.ts'

interface Golden {
  prompts: { ids: number[]; greedy_float64: number[]; logits_npy?: string }[]
}

const LORA = ['stories260k', 'lora']
const CASES: { name: string; golden: string[]; adapters: [string, number][] }[] = [
  { name: 'robot, all linear layers', golden: ['robot-all-r8', 'golden.json'], adapters: [['robot-all-r8', 1]] },
  { name: 'shout, q and v', golden: ['shout-qv-r4', 'golden.json'], adapters: [['shout-qv-r4', 1]] },
  { name: 'rsLoRA', golden: ['rslora-r16', 'golden.json'], adapters: [['rslora-r16', 1]] },
  { name: 'rank and alpha patterns', golden: ['patterns-r4', 'golden.json'], adapters: [['patterns-r4', 1]] },
  { name: 'scale 0.5', golden: ['robot-scale0.5.json'], adapters: [['robot-all-r8', 0.5]] },
  {
    name: 'two stacked',
    golden: ['stacked-robot0.75-shout1.json'],
    adapters: [
      ['robot-all-r8', 0.75],
      ['shout-qv-r4', 1],
    ],
  },
]

async function attach(model: Model, adapters: [string, number][]): Promise<AttachedAdapter[]> {
  return Promise.all(
    adapters.map(async ([name, scale]) => {
      const a = await model.adapter(data(...LORA, name))
      return { name, scale, reader: a.reader, pairs: a.pairs }
    }),
  )
}

// The same function in two files: in the GGUF the rows of q and k lie in another order, and an adapter's must follow.
const BASES = [['hf'], ['gguf', 'stories260K-F32.gguf']]

describe.each(CASES.flatMap((c) => BASES.map((base) => ({ ...c, base }))))(
  '$name on $base',
  ({ golden, adapters, base }) => {
    dataTest('logits within 1e-3, greedy text equal', async () => {
      const file = data(...LORA, ...golden)
      const { prompts } = JSON.parse(readFileSync(file, 'utf8')) as Golden
      const model = await open(data('stories260k', ...base))
      const engine = await model.engine({ precision: 'exact', threads: 2, adapters: await attach(model, adapters) })
      let compared = 0
      for (const p of prompts) {
        const got = await logitsOf(engine, p.ids)
        if (p.logits_npy !== undefined) {
          expect(maxDifference(got, readNpy(join(dirname(file), p.logits_npy)).data)).toBeLessThan(1e-3)
          compared++
        }
        expect(await greedy(engine, p.ids, p.greedy_float64.length)).toEqual(p.greedy_float64)
      }
      expect(compared).toBeGreaterThan(0)
      await engine.close()
      await model.close()
    })
  },
)

describe('refusals', () => {
  const refused = async (change: (config: Record<string, unknown>) => void): Promise<string> => {
    const dir = mkdtempSync(join(tmpdir(), 'sluice-adapter-'))
    try {
      cpSync(data(...LORA, 'shout-qv-r4'), dir, { recursive: true })
      const config = JSON.parse(readFileSync(join(dir, 'adapter_config.json'), 'utf8')) as Record<string, unknown>
      change(config)
      rmSync(join(dir, 'adapter_config.json'))
      writeFileSync(join(dir, 'adapter_config.json'), JSON.stringify(config))
      const model = await open(data('stories260k', 'hf'))
      return await model.adapter(dir).then(
        () => 'accepted',
        (err: { code: string }) => err.code,
      )
    } finally {
      rmSync(dir, { recursive: true, force: true })
    }
  }

  dataTest('what is not implemented is refused by name', async () => {
    expect(
      await refused((c) => {
        c.use_dora = true
      }),
    ).toBe('ADAPTER_UNSUPPORTED') // prettier-ignore
    expect(
      await refused((c) => {
        c.bias = 'all'
      }),
    ).toBe('ADAPTER_UNSUPPORTED') // prettier-ignore
    expect(
      await refused((c) => {
        c.modules_to_save = ['lm_head']
      }),
    ).toBe('ADAPTER_UNSUPPORTED') // prettier-ignore
    expect(
      await refused((c) => {
        c.peft_type = 'IA3'
      }),
    ).toBe('ADAPTER_UNSUPPORTED') // prettier-ignore
    expect(
      await refused((c) => {
        c.some_future_flag = true
      }),
    ).toBe('ADAPTER_UNSUPPORTED') // prettier-ignore
  })

  dataTest('a configuration that contradicts the tensors', async () => {
    expect(
      await refused((c) => {
        c.r = 8
      }),
    ).toBe('ADAPTER_INVALID') // prettier-ignore
    expect(
      await refused((c) => {
        c.target_modules = ['q_proj', 'v_proj', 'o_proj']
      }),
    ).toBe('ADAPTER_PARTIAL') // prettier-ignore
    expect(
      await refused((c) => {
        c.target_modules = '([a-z._0-9]+)+!'
      }),
    ).toBe('ADAPTER_INVALID') // prettier-ignore
  })

  dataTest('an adapter of another model matches nothing', async () => {
    const model = await open(data('stories260k', 'hf'))
    await expect(model.adapter(data('foreign', 'peft', 'gpt2-tigrinya-lora'))).rejects.toMatchObject({
      code: expect.stringMatching(/ADAPTER_(NO_MATCH|UNSUPPORTED)/),
    })
    await expect(model.adapter(data(...LORA, 'dora-r4'))).rejects.toMatchObject({ code: 'ADAPTER_UNSUPPORTED' })
    await expect(model.adapter('/nonexistent')).rejects.toMatchObject({ code: 'SOURCE_IO' })
    await model.close()
  })
})
