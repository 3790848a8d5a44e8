// Norm, rotary positions, gated activation, addition: kernels over activations alone.
#include "simd.h"

EXPORT(rmsNorm)(const float *x, u32 xStride, const float *weight, float *y, u32 yStride, u32 dim, float epsilon, float offset, u32 tokens) {
  for (u32 t = 0; t < tokens; t++, x += xStride, y += yStride) {
    v128 low = zero(), high = zero();
    u32 i = 0;
    for (; i + 8 <= dim; i += 8) {
      v128 a = load(x + i), b = load(x + i + 4);
      low = wasm_f32x4_add(low, wasm_f32x4_mul(a, a));
      high = wasm_f32x4_add(high, wasm_f32x4_mul(b, b));
    }
    if (i + 4 <= dim) {
      v128 a = load(x + i), b = loadPlainTail(F32, (const u8 *)(x + i + 4), dim - i - 4);
      low = wasm_f32x4_add(low, wasm_f32x4_mul(a, a));
      high = wasm_f32x4_add(high, wasm_f32x4_mul(b, b));
    } else {
      v128 a = loadPlainTail(F32, (const u8 *)(x + i), dim - i);
      low = wasm_f32x4_add(low, wasm_f32x4_mul(a, a));
    }
    const float mean = sum4(wasm_f32x4_add(low, high)) / (float)dim;
    const float inverse = 1.0f / __builtin_sqrtf(mean + epsilon);
    const v128 inverse4 = wasm_f32x4_splat(inverse), offset4 = wasm_f32x4_splat(offset);
    for (i = 0; i + 4 <= dim; i += 4)
      wasm_v128_store(y + i, wasm_f32x4_mul(wasm_f32x4_mul(load(x + i), inverse4), wasm_f32x4_add(offset4, load(weight + i))));
    for (; i < dim; i++) y[i] = (x[i] * inverse) * (offset + weight[i]);
  }
}

EXPORT(rope)(float *x, u32 xStride, u32 heads, u32 headDim, u32 rotaryDim, u32 interleaved, const float *table, u32 tokens) {
  const u32 half = rotaryDim / 2;
  for (u32 t = 0; t < tokens; t++, x += xStride, table += 2 * half)
    for (u32 h = 0; h < heads; h++) {
      float *head = x + h * headDim;
      u32 i = 0;
      if (!interleaved)
        for (; i + 4 <= half; i += 4) {
          v128 t0 = load(table + 2 * i), t1 = load(table + 2 * i + 4);
          v128 cos = wasm_i32x4_shuffle(t0, t1, 0, 2, 4, 6), sin = wasm_i32x4_shuffle(t0, t1, 1, 3, 5, 7);
          v128 a = load(head + i), b = load(head + i + half);
          wasm_v128_store(head + i, wasm_f32x4_sub(wasm_f32x4_mul(a, cos), wasm_f32x4_mul(b, sin)));
          wasm_v128_store(head + i + half, wasm_f32x4_add(wasm_f32x4_mul(a, sin), wasm_f32x4_mul(b, cos)));
        }
      for (; i < half; i++) {
        float *first = interleaved ? head + 2 * i : head + i;
        float *second = interleaved ? first + 1 : first + half;
        const float cos = table[2 * i], sin = table[2 * i + 1], a = *first, b = *second;
        *first = a * cos - b * sin;
        *second = a * sin + b * cos;
      }
    }
}

// silu(g)·u = g / (1 + e^-g) · u.
INLINE v128 gated(v128 g, v128 u) {
  v128 one = wasm_f32x4_const_splat(1.0f);
  return wasm_f32x4_mul(wasm_f32x4_div(g, wasm_f32x4_add(one, exp4(wasm_f32x4_neg(g)))), u);
}

EXPORT(swiglu)(const float *gate, const float *up, float *y, u32 stride, u32 from, u32 to, u32 tokens) {
  for (u32 t = 0; t < tokens; t++, gate += stride, up += stride, y += stride) {
    u32 i = from;
    for (; i + 4 <= to; i += 4) wasm_v128_store(y + i, gated(load(gate + i), load(up + i)));
    if (i < to) {
      v128 g = loadPlainTail(F32, (const u8 *)(gate + i), to - i), u = loadPlainTail(F32, (const u8 *)(up + i), to - i);
      storeTail(y + i, gated(g, u), to - i);
    }
  }
}

EXPORT(add)(const float *x, u32 xStride, float *y, u32 yStride, u32 from, u32 to, u32 tokens, float alpha) {
  const v128 alpha4 = wasm_f32x4_splat(alpha);
  for (u32 t = 0; t < tokens; t++, x += xStride, y += yStride) {
    u32 i = from;
    for (; i + 4 <= to; i += 4) wasm_v128_store(y + i, wasm_f32x4_add(load(y + i), wasm_f32x4_mul(alpha4, load(x + i))));
    for (; i < to; i++) y[i] = y[i] + alpha * x[i];
  }
}
