"""An independent float64 forward pass of a Llama or Mixtral checkpoint (safetensors directory), in numpy alone.

    python3 llama_float64.py MODEL_DIR 1,403,407 OUT.npy [--rope-scaling]

Writes float32 [tokens, vocabulary] logits. Shares nothing with src/: the formulas are those of the Llama 2 paper (Touvron et al. 2023)
and Mixtral (Jiang et al. 2024); names and rotary layout (half split) are Hugging Face's.
"""
import json, struct, sys
from pathlib import Path
import numpy as np


def read_tensors(directory):
    tensors = {}
    for file in sorted(Path(directory).glob('*.safetensors')):
        raw = file.read_bytes()
        n = struct.unpack('<Q', raw[:8])[0]
        header = json.loads(raw[8:8 + n])
        header.pop('__metadata__', None)
        for name, t in header.items():
            a, b = t['data_offsets']
            data = raw[8 + n + a:8 + n + b]
            if t['dtype'] == 'BF16':
                values = (np.frombuffer(data, '<u2').astype(np.uint32) << 16).view(np.float32)
            else:
                values = np.frombuffer(data, {'F32': '<f4', 'F16': '<f2'}[t['dtype']])
            tensors[name] = values.astype(np.float64).reshape(t['shape'])
    return tensors


def rms_norm(x, weight, eps):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * weight


def rotate(x, theta):  # [tokens, heads, dim]
    tokens, _, dim = x.shape
    half = dim // 2
    angle = np.arange(tokens)[:, None] * theta ** (-np.arange(half) * 2.0 / dim)[None, :]
    cos, sin = np.cos(angle)[:, None, :], np.sin(angle)[:, None, :]
    a, b = x[..., :half], x[..., half:]
    return np.concatenate([a * cos - b * sin, b * cos + a * sin], -1)


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def silu(x):
    return x / (1 + np.exp(-x))


def forward(directory, ids):
    c = json.loads((Path(directory) / 'config.json').read_text())
    w = read_tensors(directory)
    heads, kv = c['num_attention_heads'], c['num_key_value_heads']
    dim = c.get('head_dim') or c['hidden_size'] // heads
    eps, theta = c['rms_norm_eps'], c.get('rope_theta', 10000.0)
    x = w['model.embed_tokens.weight'][ids]
    n = len(ids)
    mask = np.triu(np.full((n, n), -np.inf), 1)
    for l in range(c['num_hidden_layers']):
        p = f'model.layers.{l}.'
        h = rms_norm(x, w[p + 'input_layernorm.weight'], eps)
        q = rotate((h @ w[p + 'self_attn.q_proj.weight'].T).reshape(n, heads, dim), theta)
        k = rotate((h @ w[p + 'self_attn.k_proj.weight'].T).reshape(n, kv, dim), theta)
        v = (h @ w[p + 'self_attn.v_proj.weight'].T).reshape(n, kv, dim)
        out = np.empty((n, heads, dim))
        for i in range(heads):
            j = i // (heads // kv)
            out[:, i] = softmax(q[:, i] @ k[:, j].T / np.sqrt(dim) + mask) @ v[:, j]
        x = x + out.reshape(n, -1) @ w[p + 'self_attn.o_proj.weight'].T
        h = rms_norm(x, w[p + 'post_attention_layernorm.weight'], eps)
        if p + 'mlp.gate_proj.weight' in w:
            x = x + (silu(h @ w[p + 'mlp.gate_proj.weight'].T) * (h @ w[p + 'mlp.up_proj.weight'].T)) @ w[p + 'mlp.down_proj.weight'].T
            continue
        p += 'block_sparse_moe.'
        probabilities = softmax(h @ w[p + 'gate.weight'].T)
        y = np.zeros_like(x)
        for t in range(n):
            chosen = np.argsort(-probabilities[t], kind='stable')[:c['num_experts_per_tok']]
            total = probabilities[t, chosen].sum()
            for e in chosen:
                q_ = p + f'experts.{e}.'
                y[t] += probabilities[t, e] / total * (w[q_ + 'w2.weight'] @ (silu(w[q_ + 'w1.weight'] @ h[t]) * (w[q_ + 'w3.weight'] @ h[t])))
        x = x + y
    x = rms_norm(x, w['model.norm.weight'], eps)
    return x @ w.get('lm_head.weight', w['model.embed_tokens.weight']).T


if __name__ == '__main__':
    logits = forward(sys.argv[1], [int(i) for i in sys.argv[2].split(',')])
    np.save(sys.argv[3], logits.astype('<f4'))
