"""Values of ggml blocks of random bytes, by the gguf package of llama.cpp (numpy; shares nothing with src/).

    pip install gguf && python3 ggml_random.py ../fixtures/ggml/random.json

Block bytes come from a linear congruential generator (the test has the same); in the high byte of every float16 the top bit of the
exponent is cleared, so that no scale is infinite or NaN. Writes the SHA-256 of the little-endian float32 values of BLOCKS blocks a type.
"""
import hashlib, json, sys
import numpy as np
from gguf import GGMLQuantizationType, GGML_QUANT_SIZES
from gguf.quants import dequantize

BLOCKS = 256
# Offsets of the high bytes of float16 fields. IQ1_M spreads its scale over four fields.
HALVES = {
    'Q4_0': [1], 'Q4_1': [1, 3], 'Q5_0': [1], 'Q5_1': [1, 3], 'Q8_0': [1],
    'Q2_K': [81, 83], 'Q3_K': [109], 'Q4_K': [1, 3], 'Q5_K': [1, 3], 'Q6_K': [209],
    'IQ1_S': [1], 'IQ1_M': [55], 'IQ2_XXS': [1], 'IQ2_XS': [1], 'IQ2_S': [1], 'IQ3_XXS': [1], 'IQ3_S': [1],
    'IQ4_NL': [1], 'IQ4_XS': [1], 'TQ1_0': [53], 'TQ2_0': [65], 'MXFP4': [], 'NVFP4': [],
}


def random_bytes(length, seed):
    out = bytearray(length)
    x = (seed * 2654435761 + 1) % 2 ** 32
    for i in range(length):
        x = (x * 1664525 + 1013904223) % 2 ** 32
        out[i] = x >> 24
    return out


types = {}
for seed, (name, halves) in enumerate(HALVES.items(), 1):
    kind = GGMLQuantizationType[name]
    _, size = GGML_QUANT_SIZES[kind]
    blocks = random_bytes(size * BLOCKS, seed)
    for b in range(BLOCKS):
        for at in halves:
            blocks[b * size + at] &= 0xbf
    with np.errstate(all='ignore'):
        values = dequantize(np.frombuffer(bytes(blocks), np.uint8).reshape(1, -1), kind).astype('<f4')
    assert not np.isnan(values).any()
    types[name] = {'seed': seed, 'halves': halves, 'sha256': hashlib.sha256(values.tobytes()).hexdigest()}

json.dump({'source': 'gguf 0.19.0 (llama.cpp), test/reference/ggml_random.py', 'blocks': BLOCKS, 'types': types}, open(sys.argv[1], 'w'), indent=1)
