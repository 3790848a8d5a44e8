// Weights, adapters and configurations with numbers that are none: never a result, always LOGITS_INVALID or a refusal.
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { open } from '#sluice/api/model.js'
import { config, scratch, weights, writeAdapter, writeModel } from './models.ts'

const root = scratch()
let n = 0

/** Error code of a pass over five tokens, or 'ran'. */
async function pass(
  path: string,
  options: { precision?: 'exact' | 'fast'; logits?: 'all' | 'last'; adapter?: string; scale?: number } = {},
): Promise<string> {
  const model = await open(path)
  try {
    const adapters = []
    if (options.adapter !== undefined) {
      const { name, reader, pairs } = await model.adapter(options.adapter)
      adapters.push({ name, reader, pairs, scale: options.scale ?? 1 })
    }
    const memory = 256 * 2 ** 20 + process.memoryUsage().rss
    const engine = await model.engine({ memory, threads: 2, precision: options.precision ?? 'fast', adapters })
    try {
      const sequence = engine.createSequence()
      try {
        await sequence.forward([5, 6, 7, 8, 9], { logits: options.logits ?? 'last' })
        return 'ran'
      } finally {
        // A pass that gave no logits leaves nothing in the sequence.
        expect(sequence.length % 5).toBe(0)
      }
    } finally {
      await engine.close()
    }
  } catch (err) {
    return (err as { code?: string }).code ?? String(err)
  } finally {
    await model.close()
  }
}

describe('numbers that are none', () => {
  const names = [...weights().keys()].filter((name) => !name.includes('layers.1'))
  it.each(names)('a NaN in %s', async (name) => {
    const tensors = weights()
    const { data } = tensors.get(name)!
    for (let i = 7 * 64; i < 8 * 64; i++) data[i % data.length] = Number.NaN
    const path = writeModel(join(root, `nan${n++}`), { weights: tensors })
    expect(await pass(path, { logits: 'all' })).toBe('LOGITS_INVALID')
    expect(await pass(path, { logits: 'all', precision: 'exact' })).toBe('LOGITS_INVALID')
  })

  it.each(['model.norm.weight', 'lm_head.weight'])('an Infinity in %s', async (name) => {
    const tensors = weights()
    tensors.get(name)!.data[9] = Number.POSITIVE_INFINITY
    expect(await pass(writeModel(join(root, `inf${n++}`), { weights: tensors }))).toBe('LOGITS_INVALID')
  })

  it('an adapter with NaN, and one whose scale overflows', async () => {
    const path = writeModel(join(root, 'base'))
    expect(await pass(path, { adapter: writeAdapter(join(root, 'ok')) })).toBe('ran')
    expect(await pass(path, { adapter: writeAdapter(join(root, 'nan'), { b: Number.NaN }) })).toBe('LOGITS_INVALID')
    const loud = writeAdapter(join(root, 'loud'), { config: { lora_alpha: 1e308 } })
    expect(await pass(path, { adapter: loud })).toBe('LOGITS_INVALID')
    expect(await pass(path, { adapter: writeAdapter(join(root, 'ok2')), scale: Number.POSITIVE_INFINITY })).toBe(
      'ADAPTER_INVALID',
    )
    expect(await pass(path, { adapter: writeAdapter(join(root, 'ok3')), scale: Number.NaN })).toBe('ADAPTER_INVALID')
  })

  it.each([
    ['rope_theta', 0],
    ['rope_theta', -10000],
    ['rope_theta', '10000'],
    ['rope_theta', 1e308],
    ['rms_norm_eps', 0],
    ['rms_norm_eps', -1e-5],
    ['rms_norm_eps', 1e300],
    ['num_hidden_layers', 0],
    ['num_hidden_layers', 2147483648],
    ['num_hidden_layers', 1e9],
    ['num_attention_heads', 3],
    ['num_attention_heads', 0],
    ['num_attention_heads', 2147483648],
    ['num_key_value_heads', 3],
    ['head_dim', 0],
    ['head_dim', -16],
    ['head_dim', 15],
    ['head_dim', 1e9],
    ['hidden_size', '64'],
    ['hidden_size', 64.5],
    ['hidden_size', 2147483648],
    ['vocab_size', 65],
    ['vocab_size', -1],
    ['max_position_embeddings', 0],
    ['max_position_embeddings', -1],
    ['intermediate_size', null],
    ['rope_scaling', { rope_type: 'linear', factor: 0 }],
    ['rope_scaling', { rope_type: 'linear', factor: -2 }],
    ['rope_scaling', { rope_type: 'constructor', factor: 2 }],
    ['rope_scaling', []],
    ['sliding_window', -1],
    ['sliding_window', 4],
    ['quantization_config', { quant_method: 'gptq' }],
  ])('config.json with %s %j', async (key, value) => {
    const path = writeModel(join(root, `c${n++}`), { config: config({ [key]: value }) })
    expect(['CONFIG_INVALID', 'ARCH_UNSUPPORTED', 'TENSOR_SHAPE', 'GRAPH_INVALID']).toContain(await pass(path))
  })

  it('a context of 2^31 positions is room the default does not take', async () => {
    expect(await pass(writeModel(join(root, 'long'), { config: config({ max_position_embeddings: 2 ** 31 }) }))).toBe(
      'ran',
    )
  })
})
