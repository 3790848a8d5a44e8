// Tiny models on disk for attacks: a Llama with seeded weights in safetensors, a tokenizer, an adapter. Every part can be replaced.
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll } from 'vitest'

export interface TensorBytes {
  readonly shape: readonly number[]
  readonly data: Float32Array
}

export const SIZE = { hidden: 64, inner: 96, layers: 2, heads: 4, kvHeads: 2, vocabulary: 64, context: 64 }

/** config.json of the tiny model. A key set to undefined is left out. */
export function config(more: object = {}): object {
  return {
    architectures: ['LlamaForCausalLM'],
    model_type: 'llama',
    hidden_size: SIZE.hidden,
    intermediate_size: SIZE.inner,
    num_hidden_layers: SIZE.layers,
    num_attention_heads: SIZE.heads,
    num_key_value_heads: SIZE.kvHeads,
    vocab_size: SIZE.vocabulary,
    max_position_embeddings: SIZE.context,
    rms_norm_eps: 1e-5,
    rope_theta: 10000,
    hidden_act: 'silu',
    tie_word_embeddings: false,
    ...more,
  }
}

/** xorshift32, the same numbers for the same seed on every machine: integers below n. */
export function dice(seed: number): (n: number) => number {
  let s = seed >>> 0 || 1
  return (n) => {
    s ^= s << 13
    s ^= s >>> 17
    s ^= s << 5
    s >>>= 0
    return s % n
  }
}

export function weights(seed = 1): Map<string, TensorBytes> {
  const roll = dice(seed)
  const { hidden, inner, layers, heads, kvHeads, vocabulary } = SIZE
  const headDim = hidden / heads
  const tensors = new Map<string, TensorBytes>()
  const add = (name: string, ...shape: number[]) => {
    const spread = shape.length === 1 ? 0 : 2 / Math.sqrt(shape[1]!)
    const data = Float32Array.from(
      { length: shape.reduce((a, b) => a * b, 1) },
      () => (shape.length === 1 ? 1 : 0) + (roll(2001) / 1000 - 1) * spread,
    )
    tensors.set(name, { shape, data })
  }
  add('model.embed_tokens.weight', vocabulary, hidden)
  for (let i = 0; i < layers; i++) {
    const at = `model.layers.${i}`
    add(`${at}.input_layernorm.weight`, hidden)
    add(`${at}.self_attn.q_proj.weight`, heads * headDim, hidden)
    add(`${at}.self_attn.k_proj.weight`, kvHeads * headDim, hidden)
    add(`${at}.self_attn.v_proj.weight`, kvHeads * headDim, hidden)
    add(`${at}.self_attn.o_proj.weight`, hidden, heads * headDim)
    add(`${at}.post_attention_layernorm.weight`, hidden)
    add(`${at}.mlp.gate_proj.weight`, inner, hidden)
    add(`${at}.mlp.up_proj.weight`, inner, hidden)
    add(`${at}.mlp.down_proj.weight`, hidden, inner)
  }
  add('model.norm.weight', hidden)
  add('lm_head.weight', vocabulary, hidden)
  return tensors
}

/** A safetensors file: 8 bytes of header length, header, data. */
export function safetensors(tensors: ReadonlyMap<string, TensorBytes>): Buffer {
  const header: [string, object][] = []
  const parts: Buffer[] = []
  let at = 0
  for (const [name, { shape, data }] of tensors) {
    header.push([name, { dtype: 'F32', shape, data_offsets: [at, at + data.byteLength] }])
    parts.push(Buffer.from(data.buffer, data.byteOffset, data.byteLength))
    at += data.byteLength
  }
  const json = `{${header.map(([name, entry]) => `${JSON.stringify(name)}:${JSON.stringify(entry)}`).join(',')}}`
  const text = Buffer.from(json.padEnd(Math.ceil(Buffer.byteLength(json) / 8) * 8))
  const length = Buffer.alloc(8)
  length.writeBigUInt64LE(BigInt(text.length))
  return Buffer.concat([length, text, ...parts])
}

/** A byte-level BPE of 64 tokens: two special ones, "Ġ", lower-case letters, a few merges. */
export function tokenizer(more: object = {}): object {
  const letters = [...'abcdefghijklmnopqrstuvwxyz.,!?']
  const tokens = ['<s>', '</s>', 'Ġ', ...letters, 'th', 'he', 'the', 'in', 'an', 'Ġa', 'Ġt', 'Ġthe']
  for (let i = tokens.length; i < SIZE.vocabulary; i++) tokens.push(`<x${i}>`)
  return {
    version: '1.0',
    truncation: null,
    padding: null,
    added_tokens: [0, 1].map((id) => ({
      id,
      content: tokens[id],
      single_word: false,
      lstrip: false,
      rstrip: false,
      normalized: false,
      special: true,
    })),
    normalizer: null,
    pre_tokenizer: { type: 'ByteLevel', add_prefix_space: false, trim_offsets: true, use_regex: true },
    post_processor: null,
    decoder: { type: 'ByteLevel', add_prefix_space: true, trim_offsets: true, use_regex: true },
    model: {
      type: 'BPE',
      dropout: null,
      unk_token: '<s>',
      continuing_subword_prefix: null,
      end_of_word_suffix: null,
      fuse_unk: false,
      byte_fallback: false,
      ignore_merges: false,
      vocab: Object.fromEntries(tokens.map((t, i) => [t, i])),
      merges: ['t h', 'h e', 'th e', 'i n', 'a n', 'Ġ a', 'Ġ t', 'Ġ the'],
    },
    ...more,
  }
}

export interface ModelParts {
  config?: object | string
  weights?: ReadonlyMap<string, TensorBytes>
  tokenizer?: object | string
  /** More files, by name. */
  files?: Readonly<Record<string, string | Buffer>>
}

/** Writes a model folder. */
export function writeModel(folder: string, parts: ModelParts = {}): string {
  mkdirSync(folder, { recursive: true })
  const text = (value: object | string) => (typeof value === 'string' ? value : JSON.stringify(value))
  writeFileSync(join(folder, 'config.json'), text(parts.config ?? config()))
  writeFileSync(join(folder, 'tokenizer.json'), text(parts.tokenizer ?? tokenizer()))
  writeFileSync(join(folder, 'model.safetensors'), safetensors(parts.weights ?? weights()))
  for (const [name, bytes] of Object.entries(parts.files ?? {})) writeFileSync(join(folder, name), bytes)
  return folder
}

export interface AdapterParts {
  rank?: number
  config?: object
  /** Value of every element of lora_B. */
  b?: number
  modules?: readonly string[]
}

/** A PEFT adapter on q_proj of both layers (hidden × hidden). */
export function writeAdapter(
  folder: string,
  { rank = 2, config: more = {}, b = 0.5, modules }: AdapterParts = {},
): string {
  mkdirSync(folder, { recursive: true })
  const tensors = new Map<string, TensorBytes>()
  for (const module of modules ?? [0, 1].map((i) => `model.layers.${i}.self_attn.q_proj`)) {
    const name = (side: string) => `base_model.model.${module}.lora_${side}.weight`
    tensors.set(name('A'), { shape: [rank, SIZE.hidden], data: new Float32Array(rank * SIZE.hidden).fill(0.1) })
    tensors.set(name('B'), { shape: [SIZE.hidden, rank], data: new Float32Array(SIZE.hidden * rank).fill(b) })
  }
  writeFileSync(join(folder, 'adapter_model.safetensors'), safetensors(tensors))
  const json = { peft_type: 'LORA', r: rank, lora_alpha: rank, target_modules: ['q_proj'], ...more }
  writeFileSync(join(folder, 'adapter_config.json'), JSON.stringify(json))
  return folder
}

/** A folder that is gone after the tests of the file. */
export function scratch(): string {
  const folder = mkdtempSync(join(tmpdir(), 'sluice-hostile-'))
  afterAll(() => rmSync(folder, { recursive: true, force: true }))
  return folder
}
