// Fields of config.json that the Llama family shares: those without effect on the logits, and those that are accepted only with the value
// under which they have none.
import type { JsonValue } from '../base/json.ts'

const HARMLESS = new Set([
  ...['_name_or_path', '_commit_hash', 'architectures', 'model_type', 'transformers_version', 'torch_dtype', 'dtype'],
  ...[
    'bos_token_id',
    'eos_token_id',
    'pad_token_id',
    'unk_token_id',
    'sep_token_id',
    'decoder_start_token_id',
    'tokenizer_class',
  ],
  ...[
    'initializer_range',
    'use_cache',
    'pretraining_tp',
    'output_attentions',
    'output_hidden_states',
    'return_dict',
    'torchscript',
  ],
  ...['attention_dropout', 'hidden_dropout', 'hidden_dropout_prob', 'resid_pdrop', 'embd_pdrop', 'attn_pdrop'],
  ...[
    'id2label',
    'label2id',
    'problem_type',
    'task_specific_params',
    'finetuning_task',
    'max_sequence_length',
    'max_length',
  ],
  ...[
    'output_router_logits',
    'router_aux_loss_coef',
    'router_jitter_noise',
    'is_llama_config',
    'rope_interleaved',
    'transformers.js_config',
  ],
  ...[
    '_attn_implementation',
    '_attn_implementation_autoset',
    'attn_implementation',
    '_flash_attn_2_enabled',
    'use_flash_attention_2',
  ],
  ...[
    'is_decoder',
    'is_encoder_decoder',
    'add_cross_attention',
    'cross_attention_hidden_size',
    'chunk_size_feed_forward',
    'prefix',
  ],
  ...['unsloth_version', 'unsloth_fixed', 'generation_config'],
])

/** Field → values under which it changes nothing. Absent or null is always such a value. */
export const NEUTRAL: Readonly<Record<string, readonly JsonValue[]>> = {
  hidden_act: ['silu', 'swish'],
  hidden_activation: ['silu', 'swish'],
  quantization_config: [],
  compression_config: [],
  sliding_window: [],
  use_sliding_window: [false],
  partial_rotary_factor: [1],
  rotary_pct: [1],
  rope_interleaved: [false],
  rope_type: ['default'],
  use_qk_norm: [false],
  qk_layernorm: [false],
  qk_norm: [false],
  clip_qkv: [],
  logit_scale: [1],
  logits_scaling: [1],
  attention_multiplier: [],
  embedding_multiplier: [1],
  residual_multiplier: [1],
  attn_logit_softcapping: [],
  final_logit_softcapping: [],
  logit_softcapping: [],
  layer_types: [],
  no_rope_layers: [],
  attention_chunk_size: [],
  is_decoder: [true, false],
  is_encoder_decoder: [false],
  add_cross_attention: [false],
  moe_layer_start_index: [],
  num_shared_experts: [0],
  n_shared_experts: [0],
  residual_dropout: [0],
  lm_head_bias: [false],
  full_attn_mod: [1],
  interpolate_factor: [1],
}

export function isHarmless(key: string): boolean {
  return HARMLESS.has(key)
}
