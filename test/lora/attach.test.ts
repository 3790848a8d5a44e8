// Adapters beside their base against the same model with the adapters merged into its weights: every way a base can be stored, every way an
// adapter can say what it is for.
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, describe, expect, test } from 'vitest'
import { type Model, open } from '#sluice/api/model.js'
import { convertToWia } from '#sluice/convert/convert.js'
import { data, dataTest } from '../data.ts'
import { logitsOf, randomOf, sameBytes } from '../engine/run.ts'
import { STORYTELLER } from '../engine/storyteller.ts'
import { maxDifference } from '../npy.ts'
import { modulesOf, type Pair, randomPairs, writeAdapter, writeMerged } from './peft.ts'

const dir = mkdtempSync(join(tmpdir(), 'sluice-lora-'))
afterAll(() => rmSync(dir, { recursive: true, force: true }))
let made = 0
const fresh = (what: string) => join(dir, `${++made}-${what}`)

const IDS = [1, 298, 392, 380, 260, 300, 285, 260, 42, 386, 13]

async function logits(
  path: string,
  adapters: readonly { path: string; scale?: number }[] = [],
  precision: 'exact' | 'fast' = 'exact',
) {
  const model = await open(path)
  try {
    const attached = []
    for (const { path: p, scale = 1 } of adapters) {
      const a = await model.adapter(p)
      attached.push({ name: a.name, scale, reader: a.reader, pairs: a.pairs })
    }
    const engine = await model.engine({ precision, threads: 2, context: 64, adapters: attached })
    try {
      return await logitsOf(engine, IDS)
    } finally {
      await engine.close()
    }
  } finally {
    await model.close()
  }
}

async function withModel<T>(path: string, work: (model: Model) => Promise<T>): Promise<T> {
  const model = await open(path)
  try {
    return await work(model)
  } finally {
    await model.close()
  }
}

/** Random pairs for the modules that match, and merged logits at scale alpha/r·scale. */
async function pairsFor(path: string, pattern: RegExp, rank: number, seed: number): Promise<Pair[]> {
  const pairs = await withModel(path, async (m) => randomPairs(modulesOf(m, pattern), rank, randomOf(seed)))
  expect(pairs.length).toBeGreaterThan(0)
  return pairs
}

const merged = async (path: string, added: readonly { pair: Pair; scale: number }[]) =>
  logits(await withModel(path, (m) => writeMerged(fresh('merged'), m, added)))

const config = (rank: number, targets: unknown, more: Record<string, unknown> = {}) => ({
  r: rank,
  lora_alpha: 2 * rank,
  target_modules: targets,
  ...more,
})

const QV = /(q|v)_proj$/
const ALL = /_proj$/
const EXPERTS = /experts\.\d+\.w[123]$/

describe('however the base is stored', () => {
  async function agrees(path: string, mergeInto: string, pattern: RegExp, targets: string[]) {
    const pairs = await pairsFor(path, pattern, 4, made + 1)
    const adapter = writeAdapter(fresh('adapter'), pairs, config(4, targets))
    const got = await logits(path, [{ path: adapter }])
    expect(
      maxDifference(
        got,
        await merged(
          mergeInto,
          pairs.map((pair) => ({ pair, scale: 2 })),
        ),
      ),
    ).toBeLessThan(1e-3)
    expect(maxDifference(got, await logits(path))).toBeGreaterThan(0.05)
  }
  const every = ['q_proj', 'k_proj', 'v_proj', 'o_proj', 'gate_proj', 'up_proj', 'down_proj']

  test('bfloat16 package', () => agrees(STORYTELLER, STORYTELLER, ALL, every))
  test.each(['int8', 'int4', 'int4m', 'nf4', 'fp8_e4m3'] as const)('%s package', async (quantization) => {
    const out = fresh(`${quantization}.wia`)
    await withModel(STORYTELLER, (m) => convertToWia(m.reader, m.architecture(), out, { quantization }))
    await agrees(out, out, ALL, every)
  })
  dataTest('checkpoint with odd widths', () => agrees(data('stories260k', 'hf'), data('stories260k', 'hf'), ALL, every))
  dataTest('GGUF, whose q and k rows lie in another order', () =>
    agrees(data('stories260k', 'gguf', 'stories260K-F32.gguf'), data('stories260k', 'hf'), ALL, every),
  )
  dataTest('experts', () => agrees(data('stories-moe', 'hf'), data('stories-moe', 'hf'), EXPERTS, ['w1', 'w2', 'w3']))
  dataTest('experts and attention of a GGUF, where experts are stacked', () =>
    agrees(
      data('stories-moe', 'gguf', 'stories-moe-F16.gguf'),
      data('stories-moe', 'hf'),
      /experts\.\d+\.w[13]$|(q|k)_proj$/,
      ['w1', 'w3', 'q_proj', 'k_proj'],
    ),
  )
})

describe('however the adapter is written', () => {
  test('float32, float16, bfloat16 hold the same numbers here: the same logits to the bit', async () => {
    const pairs = await pairsFor(STORYTELLER, QV, 8, 5)
    const [a, b, c] = await Promise.all(
      (['F32', 'F16', 'BF16'] as const).map((dtype) =>
        logits(STORYTELLER, [{ path: writeAdapter(fresh(dtype), pairs, config(8, ['q_proj', 'v_proj']), { dtype }) }]),
      ),
    )
    expect(sameBytes(a!, b!)).toBe(true)
    expect(sameBytes(a!, c!)).toBe(true)
  })

  test('prefixes and adapter names inside of tensor names', async () => {
    const pairs = await pairsFor(STORYTELLER, QV, 4, 6)
    const c = config(4, ['q_proj', 'v_proj'])
    const want = await logits(STORYTELLER, [{ path: writeAdapter(fresh('plain'), pairs, c) }])
    for (const name of [
      (m: string, s: string) => `base_model.model.${m}.lora_${s}.default.weight`,
      (m: string, s: string) => `${m}.lora_${s}.weight`,
      (m: string, s: string) => `base_model.${m}.lora_${s}.weight`,
      (m: string, s: string) => `module.${m}.lora_${s}.weight`,
    ])
      expect(
        sameBytes(await logits(STORYTELLER, [{ path: writeAdapter(fresh('named'), pairs, c, { name }) }]), want),
      ).toBe(true)
  })

  test.each([
    ['all-linear', ALL, 'all-linear', {}],
    [
      'a regular expression over the whole name',
      /layers\.[02]\.mlp\.(gate|up)_proj$/,
      '.*\\.layers\\.[02]\\.mlp\\.(gate|up)_proj',
      {},
    ],
    ['some layers', /layers\.(1|3)\.self_attn\.(q|v)_proj$/, ['q_proj', 'v_proj'], { layers_to_transform: [1, 3] }],
    [
      'one layer',
      /layers\.2\.self_attn\.(q|v)_proj$/,
      ['q_proj', 'v_proj'],
      { layers_to_transform: 2, layers_pattern: 'layers' },
    ],
    ['rank-stabilized', QV, ['q_proj', 'v_proj'], { use_rslora: true }],
    ['what is excluded', /q_proj$/, ['q_proj', 'v_proj'], { exclude_modules: ['v_proj'] }],
  ])('targets: %s', async (_, pattern, targets, more) => {
    const pairs = await pairsFor(STORYTELLER, pattern, 4, 7)
    const adapter = writeAdapter(fresh('targets'), pairs, config(4, targets, more))
    const scale = 'use_rslora' in more ? 8 / Math.sqrt(4) : 2
    expect(
      maxDifference(
        await logits(STORYTELLER, [{ path: adapter }]),
        await merged(
          STORYTELLER,
          pairs.map((pair) => ({ pair, scale })),
        ),
      ),
    ).toBeLessThan(1e-3)
  })

  test('scales: 0 changes nothing, below 0 subtracts', async () => {
    const pairs = await pairsFor(STORYTELLER, QV, 4, 8)
    const path = writeAdapter(fresh('scaled'), pairs, config(4, ['q_proj', 'v_proj']))
    expect(maxDifference(await logits(STORYTELLER, [{ path, scale: 0 }]), await logits(STORYTELLER))).toBe(0)
    for (const scale of [-1, 0.25, 3])
      expect(
        maxDifference(
          await logits(STORYTELLER, [{ path, scale }]),
          await merged(
            STORYTELLER,
            pairs.map((pair) => ({ pair, scale: 2 * scale })),
          ),
        ),
      ).toBeLessThan(1e-3)
  })

  test('two adapters, on the same modules and on others', async () => {
    const one = await pairsFor(STORYTELLER, QV, 4, 9)
    const two = await pairsFor(STORYTELLER, /(v|down)_proj$/, 16, 10)
    const adapters = [
      { path: writeAdapter(fresh('one'), one, config(4, ['q_proj', 'v_proj'])), scale: 0.5 },
      { path: writeAdapter(fresh('two'), two, config(16, ['v_proj', 'down_proj'])), scale: -1.5 },
    ]
    const want = await merged(STORYTELLER, [
      ...one.map((pair) => ({ pair, scale: 1 })),
      ...two.map((pair) => ({ pair, scale: -3 })),
    ])
    expect(maxDifference(await logits(STORYTELLER, adapters), want)).toBeLessThan(1e-3)
  })

  test('in fast precision it stays close to exact', async () => {
    const pairs = await pairsFor(STORYTELLER, ALL, 4, 12)
    const path = writeAdapter(fresh('fast'), pairs, config(4, 'all-linear'))
    expect(
      maxDifference(await logits(STORYTELLER, [{ path }], 'fast'), await logits(STORYTELLER, [{ path }])),
    ).toBeLessThan(0.05)
  })
})

describe('refused', () => {
  const load = (path: string, allowPartial = false) =>
    withModel(STORYTELLER, async (m) => (await m.adapter(path, { allowPartial })).report)
  const code = (path: string) =>
    load(path).then(
      () => 'accepted',
      (e: { code: string }) => e.code,
    )

  test('no module matches', async () => {
    const pairs = (await pairsFor(STORYTELLER, QV, 4, 13)).map((p) => ({
      ...p,
      name: p.name.replace('self_attn', 'attention'),
    }))
    expect(await code(writeAdapter(fresh('none'), pairs, config(4, ['q_proj', 'v_proj'])))).toBe('ADAPTER_NO_MATCH')
  })

  test('some match: an error that lists both sides, or allowed', async () => {
    const pairs = await pairsFor(STORYTELLER, QV, 4, 14)
    const [gone, ...rest] = pairs
    const strange = { ...gone!, name: 'model.layers.0.self_attn.qkv_proj' }
    const path = writeAdapter(fresh('part'), [strange, ...rest], config(4, ['q_proj', 'v_proj', 'qkv_proj']))
    await expect(load(path)).rejects.toMatchObject({
      code: 'ADAPTER_PARTIAL',
      message: expect.stringContaining('qkv_proj'),
    })
    const report = await load(path, true)
    expect(report.missing).toEqual([gone!.name])
    expect(report.unmatched).toEqual(['base_model.model.model.layers.0.self_attn.qkv_proj'])
    expect(report.matched.length).toBe(rest.length)
  })

  test('shapes and ranks that do not fit', async () => {
    const pairs = await pairsFor(STORYTELLER, QV, 4, 15)
    expect(await code(writeAdapter(fresh('rank'), pairs, config(8, ['q_proj', 'v_proj'])))).toBe('ADAPTER_INVALID')
    const swapped = pairs.map((p) => ({
      ...p,
      shape: [p.shape[0] + 16, p.shape[1]] as const,
      B: new Float32Array((p.shape[0] + 16) * 4),
    }))
    expect(await code(writeAdapter(fresh('shape'), swapped, config(4, ['q_proj', 'v_proj'])))).toBe('ADAPTER_INVALID')
    const half = writeAdapter(fresh('half'), pairs, config(4, ['q_proj', 'v_proj']), {
      name: (m, s) => (s === 'A' ? `${m}.lora_A.weight` : `${m}.x.lora_B.weight`),
    })
    expect(await code(half)).toMatch(/ADAPTER_/)
  })
})
