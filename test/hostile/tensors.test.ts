// Models whose tensors do not fit their configuration: refused before anything runs, whatever the format.
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { open } from '#sluice/api/model.js'
import { config, SIZE, scratch, type TensorBytes, weights, writeModel } from './models.ts'

const root = scratch()
let n = 0

async function refusal(change: (tensors: Map<string, TensorBytes>) => void, json = config()): Promise<string> {
  const tensors = weights()
  change(tensors)
  const model = await open(writeModel(join(root, `m${n++}`), { weights: tensors, config: json }))
  try {
    model.architecture()
    return 'accepted'
  } catch (err) {
    return (err as { code: string }).code
  } finally {
    await model.close()
  }
}

const zeros = (...shape: number[]): TensorBytes => ({
  shape,
  data: new Float32Array(shape.reduce((a, b) => a * b, 1)),
})

describe('tensors that do not fit the configuration', () => {
  it('accepts the model as it is', async () => {
    expect(await refusal(() => undefined)).toBe('accepted')
  })

  it.each([
    ['model.layers.1.self_attn.k_proj.weight'],
    ['model.layers.0.input_layernorm.weight'],
    ['model.embed_tokens.weight'],
    ['lm_head.weight'],
  ])('%s is missing', async (name) => {
    expect(await refusal((t) => void t.delete(name))).toBe('TENSOR_MISSING')
  })

  it.each([
    ['model.layers.1.self_attn.k_proj.weight', zeros(16, SIZE.hidden)],
    ['model.layers.1.self_attn.k_proj.weight', zeros(64, SIZE.hidden)],
    ['model.layers.0.mlp.down_proj.weight', zeros(SIZE.inner, SIZE.hidden)],
    ['model.layers.0.input_layernorm.weight', zeros(SIZE.hidden / 2)],
    ['model.norm.weight', zeros(SIZE.hidden * 4)],
    ['model.norm.weight', zeros(0)],
    ['model.norm.weight', zeros(1, SIZE.hidden)],
    ['model.embed_tokens.weight', zeros(SIZE.vocabulary - 1, SIZE.hidden)],
    ['lm_head.weight', zeros(SIZE.hidden)],
  ])('%s has another shape', async (name, tensor) => {
    expect(await refusal((t) => void t.set(name, tensor))).toBe('TENSOR_SHAPE')
  })

  it.each([
    ['model.layers.2.input_layernorm.weight', zeros(SIZE.hidden)],
    ['model.layers.0.self_attn.q_proj.bias', zeros(SIZE.hidden)],
    ['model.layers.0.self_attn.q_norm.weight', zeros(16)],
    ['__proto__', zeros(1)],
  ])('%s is there and nobody uses it', async (name, tensor) => {
    expect(await refusal((t) => void t.set(name, tensor))).toBe('TENSOR_UNEXPECTED')
  })

  it('says fewer layers than there are', async () => {
    expect(await refusal(() => undefined, config({ num_hidden_layers: 1 }))).toBe('TENSOR_UNEXPECTED')
  })

  it('says tied embeddings, and the head that is there is left out with a warning', async () => {
    expect(await refusal(() => undefined, config({ tie_word_embeddings: true }))).toBe('accepted')
  })
})
