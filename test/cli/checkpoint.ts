// A Hugging Face checkpoint of a few kilobytes, written by hand: random weights from a seed, no tokenizer.
import { mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'

const CONFIG = {
  model_type: 'llama',
  hidden_size: 32,
  intermediate_size: 64,
  num_hidden_layers: 1,
  num_attention_heads: 2,
  num_key_value_heads: 1,
  vocab_size: 48,
  max_position_embeddings: 64,
  rms_norm_eps: 1e-5,
  rope_theta: 10000,
  hidden_act: 'silu',
  tie_word_embeddings: false,
}

const SHAPES: Record<string, number[]> = {
  'model.embed_tokens.weight': [48, 32],
  'model.layers.0.input_layernorm.weight': [32],
  'model.layers.0.self_attn.q_proj.weight': [32, 32],
  'model.layers.0.self_attn.k_proj.weight': [16, 32],
  'model.layers.0.self_attn.v_proj.weight': [16, 32],
  'model.layers.0.self_attn.o_proj.weight': [32, 32],
  'model.layers.0.post_attention_layernorm.weight': [32],
  'model.layers.0.mlp.gate_proj.weight': [64, 32],
  'model.layers.0.mlp.up_proj.weight': [64, 32],
  'model.layers.0.mlp.down_proj.weight': [32, 64],
  'model.norm.weight': [32],
  'lm_head.weight': [48, 32],
}

/** Writes config.json and model.safetensors into `dir`. `config` replaces and adds fields. */
export function writeCheckpoint(dir: string, config: Record<string, unknown> = {}): string {
  mkdirSync(dir, { recursive: true })
  writeFileSync(join(dir, 'config.json'), JSON.stringify({ ...CONFIG, ...config }))
  const header: Record<string, object> = {}
  const parts: Float32Array[] = []
  let offset = 0
  let state = 1
  for (const [name, shape] of Object.entries(SHAPES)) {
    const values = new Float32Array(shape.reduce((a, b) => a * b, 1))
    for (let i = 0; i < values.length; i++) {
      state = (Math.imul(state, 1664525) + 1013904223) >>> 0 // Numerical Recipes
      values[i] = shape.length === 1 ? 1 : state / 2 ** 32 - 0.5
    }
    header[name] = { dtype: 'F32', shape, data_offsets: [offset, offset + values.byteLength] }
    offset += values.byteLength
    parts.push(values)
  }
  const json = Buffer.from(JSON.stringify(header))
  const padding = Buffer.alloc((8 - (json.length % 8)) % 8, ' ')
  const length = Buffer.alloc(8)
  length.writeBigUInt64LE(BigInt(json.length + padding.length))
  const data = parts.map((p) => Buffer.from(p.buffer))
  writeFileSync(join(dir, 'model.safetensors'), Buffer.concat([length, json, padding, ...data]))
  return dir
}
