"""Tiny random checkpoints of model families, and an independent float64 forward pass of each, in numpy alone.

    python3 test/reference/families_float64.py [NAME …]        writes test/fixtures/families/<name>/

A folder holds config.json, model.safetensors (float16 or float32, seeded), ids.json and logits.npy (float32 [tokens, vocabulary]).
Shares nothing with src/. What each family does is described by its Hugging Face transformers file, models/<family>/modeling_<family>.py;
YaRN by Peng et al. 2023 (arXiv 2309.00071) and longrope by Ding et al. 2024 (arXiv 2402.13753), with the field names of
modeling_rope_utils.py. Attention is computed query by query over an explicit set of visible positions.
"""
import json, struct, sys
from pathlib import Path
import numpy as np

BASE = dict(hidden_size=48, intermediate_size=80, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2, head_dim=16,
            vocab_size=96, max_position_embeddings=256, rms_norm_eps=1e-5, rope_theta=1000.0, hidden_act='silu',
            tie_word_embeddings=False, torch_dtype='float16')
TOKENS = 40

# name → (architecture, fields, what the forward pass does: independent of how the fields are read elsewhere)
FAMILIES = {
    'qwen2': ('Qwen2ForCausalLM', dict(model_type='qwen2', use_sliding_window=False, sliding_window=8, max_window_layers=1),
              dict(biases=['q', 'k', 'v'])),
    'qwen2-tied-window': ('Qwen2ForCausalLM',
                          dict(model_type='qwen2', tie_word_embeddings=True, use_sliding_window=True, sliding_window=8,
                               max_window_layers=2, rope_scaling=dict(rope_type='yarn', factor=4.0, original_max_position_embeddings=64)),
                          dict(biases=['q', 'k', 'v'], windows=[0, 0, 8], yarn=dict(factor=4.0, original=64))),
    'qwen3': ('Qwen3ForCausalLM', dict(model_type='qwen3', head_dim=24, attention_bias=False, use_sliding_window=False,
                                       sliding_window=None, max_window_layers=3), dict(head_norms=True)),
    'mistral': ('MistralForCausalLM', dict(model_type='mistral', sliding_window=9), dict(windows=[9, 9, 9])),
    'qwen3-moe': ('Qwen3MoeForCausalLM',
                  dict(model_type='qwen3_moe', num_experts=5, num_experts_per_tok=3, moe_intermediate_size=24, norm_topk_prob=True,
                       mlp_only_layers=[], decoder_sparse_step=1, use_sliding_window=False, sliding_window=None, attention_bias=False),
                  dict(head_norms=True, experts=[True, True, True], renormalize=True)),
    'qwen3-moe-sparse-step': ('Qwen3MoeForCausalLM',
                              dict(model_type='qwen3_moe', num_hidden_layers=4, num_experts=6, num_experts_per_tok=2,
                                   moe_intermediate_size=32, norm_topk_prob=False, mlp_only_layers=[3], decoder_sparse_step=2,
                                   use_sliding_window=False, attention_bias=True),
                              dict(head_norms=True, biases=['q', 'k', 'v', 'o'], experts=[False, True, False, False], renormalize=False)),
    'olmo2': ('Olmo2ForCausalLM', dict(model_type='olmo2', attention_bias=False), dict(post_norms=True, width_norms=True)),
    'smollm3': ('SmolLM3ForCausalLM',
                dict(model_type='smollm3', tie_word_embeddings=True, no_rope_layers=[1, 0, 1], no_rope_layer_interval=2, mlp_bias=True,
                     layer_types=['full_attention', 'sliding_attention', 'full_attention'], use_sliding_window=True, sliding_window=11),
                dict(no_rope=[1], biases=['gate', 'up', 'down'], windows=[0, 11, 0])),
    'smollm3-interval': ('SmolLM3ForCausalLM',
                         dict(model_type='smollm3', num_hidden_layers=5, tie_word_embeddings=True, use_sliding_window=False, sliding_window=None),
                         dict(no_rope=[3])),
    'granite': ('GraniteForCausalLM',
                dict(model_type='granite', embedding_multiplier=3.0, residual_multiplier=0.22, attention_multiplier=0.125,
                     logits_scaling=0.25, attention_bias=False),
                dict(embedding_factor=3.0, residual_factor=0.22, score_factor=0.125, logit_divisor=0.25)),
    'phi3': ('Phi3ForCausalLM',
             dict(model_type='phi3', head_dim=None, hidden_size=64, partial_rotary_factor=0.75, sliding_window=17, max_position_embeddings=512,
                  original_max_position_embeddings=64,
                  rope_scaling=dict(type='longrope', short_factor=[1.0, 1.1, 1.25, 1.5, 2.0, 3.0], long_factor=[9.0] * 6)),
             dict(fused=True, rotary_dim=12, windows=[17, 17, 17], short_factor=[1.0, 1.1, 1.25, 1.5, 2.0, 3.0],
                  cos_factor=float(np.sqrt(1 + np.log(512 / 64) / np.log(64))))),
    'llama-yarn': ('LlamaForCausalLM',
                   dict(model_type='llama', max_position_embeddings=8192, rope_parameters=dict(rope_type='yarn', rope_theta=1000.0, factor=8.0, beta_fast=16.0, beta_slow=2.0,
                        original_max_position_embeddings=1024, mscale=0.707, mscale_all_dim=1.2, truncate=False)),
                   dict(yarn=dict(factor=8.0, original=1024, fast=16.0, slow=2.0, whole=False, mscale=(0.707, 1.2)))),
    'llama-dynamic': ('LlamaForCausalLM', dict(model_type='llama', rope_scaling=dict(type='dynamic', factor=4.0)), dict()),
}


def checkpoint(name, config, how):
    """Tensors by name. Norm scales and biases far from 1 and 0, so that leaving one out shows."""
    seed = int.from_bytes(name.encode()[:8].ljust(8, b'\0'), 'little') % (2 ** 32) + len(name)
    rng = np.random.default_rng(seed)
    hidden, inner, heads, kv = (config[k] for k in ('hidden_size', 'intermediate_size', 'num_attention_heads', 'num_key_value_heads'))
    dim = config.get('head_dim') or hidden // heads
    tensors = {}

    def matrix(n, out, width):
        tensors[n + '.weight'] = rng.normal(0, 1.5 / np.sqrt(width), (out, width))

    def vector(n, size, centre):
        tensors[n] = centre + rng.normal(0, 0.4, size)

    def project(module, out, width):
        matrix(module, out, width)
        if module.split('.')[-1].removesuffix('_proj') in how.get('biases', []):
            vector(module + '.bias', out, 0)

    matrix('model.embed_tokens', config['vocab_size'], hidden)
    for i in range(config['num_hidden_layers']):
        at = f'model.layers.{i}.'
        if how.get('fused'):
            matrix(at + 'self_attn.qkv_proj', (heads + 2 * kv) * dim, hidden)
        else:
            project(at + 'self_attn.q_proj', heads * dim, hidden)
            project(at + 'self_attn.k_proj', kv * dim, hidden)
            project(at + 'self_attn.v_proj', kv * dim, hidden)
        project(at + 'self_attn.o_proj', hidden, heads * dim)
        if how.get('head_norms') or how.get('width_norms'):
            vector(at + 'self_attn.q_norm.weight', dim if how.get('head_norms') else heads * dim, 1)
            vector(at + 'self_attn.k_norm.weight', dim if how.get('head_norms') else kv * dim, 1)
        names = ['post_attention_layernorm', 'post_feedforward_layernorm'] if how.get('post_norms') else ['input_layernorm', 'post_attention_layernorm']
        for n in names:
            vector(at + n + '.weight', hidden, 1)
        if how.get('experts', [False] * 9)[i]:
            matrix(at + 'mlp.gate', config['num_experts'], hidden)
            for e in range(config['num_experts']):
                matrix(at + f'mlp.experts.{e}.gate_proj', config['moe_intermediate_size'], hidden)
                matrix(at + f'mlp.experts.{e}.up_proj', config['moe_intermediate_size'], hidden)
                matrix(at + f'mlp.experts.{e}.down_proj', hidden, config['moe_intermediate_size'])
        elif how.get('fused'):
            matrix(at + 'mlp.gate_up_proj', 2 * inner, hidden)
            matrix(at + 'mlp.down_proj', hidden, inner)
        else:
            project(at + 'mlp.gate_proj', inner, hidden)
            project(at + 'mlp.up_proj', inner, hidden)
            project(at + 'mlp.down_proj', hidden, inner)
    vector('model.norm.weight', hidden, 1)
    if not config['tie_word_embeddings']:
        matrix('lm_head', config['vocab_size'], hidden)
    return {n: v.astype('<f2') for n, v in tensors.items()}


def norm(x, weight, eps):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * weight


def silu(x):
    return x / (1 + np.exp(-x))


def frequencies(how, theta, dim):
    """Angle per position of each pair, and the factor of cos and sin."""
    plain = np.array([theta ** (-2.0 * i / dim) for i in range(dim // 2)])
    if 'short_factor' in how:
        return plain / np.array(how['short_factor']), how['cos_factor']
    if 'yarn' not in how:
        return plain, 1.0
    y = how['yarn']
    # Pair i makes original·f_i/2π turns over the original context; solve for the i that makes exactly n turns.
    pair = lambda turns: dim / 2 * np.log(y['original'] / (2 * np.pi * turns)) / np.log(theta)
    low, high = pair(y.get('fast', 32.0)), pair(y.get('slow', 1.0))
    if y.get('whole', True):
        low, high = np.floor(low), np.ceil(high)
    low, high = max(low, 0), min(high, dim - 1)
    share = np.clip((np.arange(dim // 2) - low) / (high - low), 0, 1)  # of interpolation
    grow = lambda m: 0.1 * m * np.log(y['factor']) + 1
    a, b = y.get('mscale', (1.0, None))
    return share * plain / y['factor'] + (1 - share) * plain, grow(a) / (grow(b) if b else 1.0)


def rotate(x, positions, angles, factor):
    """x [tokens, heads, dim]; the first 2·len(angles) dimensions turn, halves as pairs."""
    n = len(angles)
    out = x.copy()
    c = np.cos(positions[:, None] * angles)[:, None, :] * factor
    s = np.sin(positions[:, None] * angles)[:, None, :] * factor
    out[..., :n] = x[..., :n] * c - x[..., n:2 * n] * s
    out[..., n:2 * n] = x[..., n:2 * n] * c + x[..., :n] * s
    return out


def forward(config, how, tensors, ids):
    w = {n: v.astype(np.float64) for n, v in tensors.items()}
    hidden, inner, heads, kv = (config[k] for k in ('hidden_size', 'intermediate_size', 'num_attention_heads', 'num_key_value_heads'))
    dim = config.get('head_dim') or hidden // heads
    eps = config['rms_norm_eps']
    angles, cos_factor = frequencies(how, config['rope_theta'], how.get('rotary_dim', dim))
    positions = np.arange(len(ids), dtype=np.float64)
    residual_factor = how.get('residual_factor', 1.0)

    def linear(module, x):
        y = x @ w[module + '.weight'].T
        return y + w[module + '.bias'] if module + '.bias' in w else y

    def attention(i, x):
        at = f'model.layers.{i}.self_attn.'
        if how.get('fused'):
            y = linear(at + 'qkv_proj', x)
            q, k, v = np.split(y, [heads * dim, (heads + kv) * dim], axis=-1)
        else:
            q, k, v = (linear(at + p + '_proj', x) for p in 'qkv')
        if how.get('width_norms'):
            q, k = norm(q, w[at + 'q_norm.weight'], eps), norm(k, w[at + 'k_norm.weight'], eps)
        q, k, v = (t.reshape(len(ids), -1, dim) for t in (q, k, v))
        if how.get('head_norms'):
            q, k = norm(q, w[at + 'q_norm.weight'], eps), norm(k, w[at + 'k_norm.weight'], eps)
        if i not in how.get('no_rope', []):
            q, k = rotate(q, positions, angles, cos_factor), rotate(k, positions, angles, cos_factor)
        window = how.get('windows', [0] * 9)[i]
        y = np.zeros((len(ids), heads, dim))
        for t in range(len(ids)):
            seen = [p for p in range(len(ids)) if p <= t and (window == 0 or t - p < window)]
            for h in range(heads):
                scores = k[seen, h // (heads // kv)] @ q[t, h] * how.get('score_factor', 1 / np.sqrt(dim))
                e = np.exp(scores - scores.max())
                y[t, h] = (e / e.sum()) @ v[seen, h // (heads // kv)]
        return linear(at + 'o_proj', y.reshape(len(ids), -1))

    def feed_forward(i, x):
        at = f'model.layers.{i}.mlp.'
        if how.get('fused'):
            gate, up = np.split(linear(at + 'gate_up_proj', x), 2, axis=-1)
            return linear(at + 'down_proj', silu(gate) * up)
        expert = lambda module, v: linear(module + 'down_proj', silu(linear(module + 'gate_proj', v)) * linear(module + 'up_proj', v))
        if not how.get('experts', [False] * 9)[i]:
            return expert(at, x)
        y = np.zeros_like(x)
        for t in range(len(ids)):
            logits = linear(at + 'gate', x[t])
            p = np.exp(logits - logits.max())
            p /= p.sum()
            best = sorted(range(len(p)), key=lambda e: (-p[e], e))[:config['num_experts_per_tok']]
            total = p[best].sum() if how['renormalize'] else 1.0
            for e in best:
                y[t] += p[e] / total * expert(f'{at}experts.{e}.', x[t])
        return y

    x = w['model.embed_tokens.weight'][ids] * how.get('embedding_factor', 1.0)
    for i in range(config['num_hidden_layers']):
        at = f'model.layers.{i}.'
        if how.get('post_norms'):
            x = x + norm(attention(i, x), w[at + 'post_attention_layernorm.weight'], eps)
            x = x + norm(feed_forward(i, x), w[at + 'post_feedforward_layernorm.weight'], eps)
        else:
            x = x + residual_factor * attention(i, norm(x, w[at + 'input_layernorm.weight'], eps))
            x = x + residual_factor * feed_forward(i, norm(x, w[at + 'post_attention_layernorm.weight'], eps))
    x = norm(x, w['model.norm.weight'], eps)
    head = 'model.embed_tokens' if config['tie_word_embeddings'] else 'lm_head'
    return x @ w[head + '.weight'].T / how.get('logit_divisor', 1.0)


def write_safetensors(path, tensors):
    header, at = {}, 0
    for n, v in tensors.items():
        header[n] = dict(dtype='F16', shape=list(v.shape), data_offsets=[at, at + v.nbytes])
        at += v.nbytes
    text = json.dumps(header, separators=(',', ':')).encode()
    text += b' ' * (-len(text) % 8)
    path.write_bytes(struct.pack('<Q', len(text)) + text + b''.join(v.tobytes() for v in tensors.values()))


def main():
    root = Path(__file__).parents[1] / 'fixtures' / 'families'
    for name in sys.argv[1:] or FAMILIES:
        architecture, fields, how = FAMILIES[name]
        config = {**BASE, 'architectures': [architecture], **fields}
        tensors = checkpoint(name, config, how)
        ids = np.random.default_rng(7).integers(0, config['vocab_size'], TOKENS).tolist()
        logits = forward(config, how, tensors, ids)
        folder = root / name
        folder.mkdir(parents=True, exist_ok=True)
        (folder / 'config.json').write_text(json.dumps(config, indent=2) + '\n')
        (folder / 'ids.json').write_text(json.dumps(ids) + '\n')
        write_safetensors(folder / 'model.safetensors', tensors)
        np.save(folder / 'logits.npy', logits.astype('<f4'))
        print(name, (folder / 'model.safetensors').stat().st_size, float(np.abs(logits).max()))


if __name__ == '__main__':
    main()
