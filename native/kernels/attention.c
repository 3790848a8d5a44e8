// Attention over a paged key-value cache, and the writing of that cache. A page holds keys [kvHeads, pageTokens, headDim], then
// values the same.
#include "simd.h"

// Replaces n values by e^(value - maximum); returns their sum, value i in lane i mod 4.
INLINE float exponentials(float *x, u32 n) {
  v128 top4 = wasm_f32x4_const_splat(-__builtin_inff());
  u32 i = 0;
  for (; i + 4 <= n; i += 4) top4 = wasm_f32x4_max(top4, load(x + i));
  top4 = wasm_f32x4_max(top4, wasm_i32x4_shuffle(top4, top4, 2, 3, 0, 1));
  top4 = wasm_f32x4_max(top4, wasm_i32x4_shuffle(top4, top4, 1, 0, 3, 2));
  for (; i < n; i++) top4 = wasm_f32x4_max(top4, wasm_f32x4_splat(x[i]));
  v128 sum = zero();
  for (i = 0; i + 4 <= n; i += 4) {
    v128 e = exp4(wasm_f32x4_sub(load(x + i), top4));
    wasm_v128_store(x + i, e);
    sum = wasm_f32x4_add(sum, e);
  }
  const u32 left = n - i;
  if (left > 0) {
    v128 e = exp4(wasm_f32x4_sub(loadPlainTail(F32, (const u8 *)(x + i), left), top4));
    storeTail(x + i, e, left);
    sum = wasm_f32x4_add(sum, loadPlainTail(F32, (const u8 *)(x + i), left));
  }
  return sum4(sum);
}

EXPORT(softmax)(float *x, u32 n) {
  const v128 inverse = wasm_f32x4_splat(1.0f / exponentials(x, n));
  u32 i = 0;
  for (; i + 4 <= n; i += 4) wasm_v128_store(x + i, wasm_f32x4_mul(load(x + i), inverse));
  storeTail(x + i, wasm_f32x4_mul(loadPlainTail(F32, (const u8 *)(x + i), n - i), inverse), n - i);
}

// Scores of `count` consecutive keys: element d in lane d mod 8, as in matMul.
INLINE void scoreKeys(const int encoding, const int count, const float *q, const u8 *keys, u32 headDim, float scale, float *scores) {
  const u32 step = plainBytes(encoding), rowBytes = headDim * step;
  v128 low[4], high[4];
  UNROLLED for (int i = 0; i < count; i++) low[i] = high[i] = zero();
  u32 d = 0;
  ROLLED for (; d + 8 <= headDim; d += 8) {
    v128 q0 = load(q + d), q1 = load(q + d + 4);
    UNROLLED for (int i = 0; i < count; i++) {
      low[i] = multiplyAdd(loadPlain4(encoding, keys + i * rowBytes + d * step), q0, low[i]);
      high[i] = multiplyAdd(loadPlain4(encoding, keys + i * rowBytes + (d + 4) * step), q1, high[i]);
    }
  }
  const u32 left = headDim - d;
  UNROLLED for (int i = 0; i < count; i++) {
    const u8 *tail = keys + i * rowBytes + d * step, *qTail = (const u8 *)(q + d);
    if (left >= 4) low[i] = multiplyAdd(loadPlain4(encoding, tail), load(qTail), low[i]);
    else if (left > 0) low[i] = multiplyAdd(loadPlainTail(encoding, tail, left), loadPlainTail(F32, qTail, left), low[i]);
    if (left > 4)
      high[i] = multiplyAdd(loadPlainTail(encoding, tail + 4 * step, left - 4), loadPlainTail(F32, qTail + 16, left - 4), high[i]);
  }
  UNROLLED for (int i = 0; i < count; i++) scores[i] = sum4(wasm_f32x4_add(low[i], high[i])) * scale;
}

// Positions [first, last] of one head; `at` is the byte offset of the head's keys (or values) in a page.
typedef struct {
  const u32 *pages;
  u32 pageTokens, at, headDim, first, last;
} Run;

INLINE u32 runInPage(const Run *run, u32 p) { return minimum(run->pageTokens - p % run->pageTokens, run->last + 1 - p); }
INLINE const u8 *rowAt(const int encoding, const Run *run, u32 p) {
  return (const u8 *)(uintptr_t)run->pages[p / run->pageTokens] + run->at + (p % run->pageTokens) * run->headDim * plainBytes(encoding);
}

INLINE void scoreAll(const int encoding, const Run *run, const float *q, float scale, float *scores) {
  const u32 rowBytes = run->headDim * plainBytes(encoding);
  for (u32 p = run->first; p <= run->last;) {
    const u8 *keys = rowAt(encoding, run, p);
    const u32 end = p + runInPage(run, p);
    for (; p + 4 <= end; p += 4, keys += 4 * rowBytes) scoreKeys(encoding, 4, q, keys, run->headDim, scale, scores + p - run->first);
    for (; p < end; p++, keys += rowBytes) scoreKeys(encoding, 1, q, keys, run->headDim, scale, scores + p - run->first);
  }
}

// 4·registers dimensions from d on: weights times values in order of position, times `inverse` at the end.
INLINE void weighValues(const int encoding, const int registers, const Run *run, const float *weights, float inverse, u32 d, u32 width, float *y) {
  const u32 step = plainBytes(encoding), rowBytes = run->headDim * step;
  v128 sums[4];
  UNROLLED for (int i = 0; i < registers; i++) sums[i] = zero();
  for (u32 p = run->first; p <= run->last;) {
    const u8 *values = rowAt(encoding, run, p) + d * step;
    const u32 end = p + runInPage(run, p);
    ROLLED for (; p < end; p++, values += rowBytes) {
      v128 weight = wasm_v128_load32_splat(weights + p - run->first);
      UNROLLED for (int i = 0; i < registers; i++) {
        v128 v = width < 4 ? loadPlainTail(encoding, values, width) : loadPlain4(encoding, values + i * 4 * step);
        sums[i] = multiplyAdd(weight, v, sums[i]);
      }
    }
  }
  UNROLLED for (int i = 0; i < registers; i++) {
    v128 v = wasm_f32x4_mul(sums[i], wasm_f32x4_splat(inverse));
    if (width < 4) storeTail(y + d, v, width);
    else wasm_v128_store(y + d + 4 * i, v);
  }
}

INLINE void attentionHeads(const int encoding, const float *q, u32 qStride, float *y, u32 yStride, u32 heads, u32 kvHeads, u32 headDim,
                           u32 headStart, u32 headEnd, u32 tokens, u32 position, const u32 *pages, u32 pageTokens, float scale,
                           u32 window, float *scores) {
  const u32 group = heads / kvHeads, headBytes = pageTokens * headDim * plainBytes(encoding);
  for (u32 head = headStart; head < headEnd; head++) {
    const u32 kvHead = head / group;
    for (u32 t = 0; t < tokens; t++) {
      const u32 last = position + t, first = window > 0 && last + 1 > window ? last + 1 - window : 0;
      const Run keys = {pages, pageTokens, kvHead * headBytes, headDim, first, last};
      const Run values = {pages, pageTokens, (kvHeads + kvHead) * headBytes, headDim, first, last};
      scoreAll(encoding, &keys, q + t * qStride + head * headDim, scale, scores);
      const float inverse = 1.0f / exponentials(scores, last - first + 1);
      float *out = y + t * yStride + head * headDim;
      u32 d = 0;
      for (; d + 16 <= headDim; d += 16) weighValues(encoding, 4, &values, scores, inverse, d, 16, out);
      for (; d + 4 <= headDim; d += 4) weighValues(encoding, 1, &values, scores, inverse, d, 4, out);
      if (d < headDim) weighValues(encoding, 1, &values, scores, inverse, d, headDim - d, out);
    }
  }
}

EXPORT(attention)(const float *q, u32 qStride, float *y, u32 yStride, u32 heads, u32 kvHeads, u32 headDim, u32 headStart, u32 headEnd,
                  u32 tokens, u32 position, const u32 *pages, u32 pageTokens, u32 kvF16, float scale, u32 window, float *scratch) {
  if (kvF16)
    attentionHeads(F16, q, qStride, y, yStride, heads, kvHeads, headDim, headStart, headEnd, tokens, position, pages, pageTokens, scale, window, scratch);
  else
    attentionHeads(F32, q, qStride, y, yStride, heads, kvHeads, headDim, headStart, headEnd, tokens, position, pages, pageTokens, scale, window, scratch);
}

// float32 → binary16, to nearest even; the same steps as floatToHalf in src/kernels/scalar/float.ts.
INLINE u16 floatToHalf(float value) {
  union {
    float f;
    u32 bits;
  } u = {value};
  const u32 sign = (u.bits >> 16) & 0x8000;
  u.bits &= 0x7fffffff;
  if (u.bits > 0x7f800000) return (u16)(sign | 0x7e00);
  if (u.bits >= 0x477ff000) return (u16)(sign | 0x7c00);
  if (u.bits < 0x38800000) {
    u.f += 0.5f;
    return (u16)(sign | (u.bits - 0x3f000000));
  }
  return (u16)(sign | ((u.bits - 0x38000000 + 0xfff + ((u.bits >> 13) & 1)) >> 13));
}

EXPORT(kvAppend)(const float *k, const float *v, u32 stride, const u32 *pages, u32 pageTokens, u32 kvF16, u32 kvHeads, u32 headDim,
                 u32 headStart, u32 headEnd, u32 position, u32 tokens) {
  for (u32 t = 0; t < tokens; t++) {
    u8 *page = (u8 *)(uintptr_t)pages[(position + t) / pageTokens];
    const u32 slot = (position + t) % pageTokens;
    for (u32 kind = 0; kind < 2; kind++)
      for (u32 head = headStart; head < headEnd; head++) {
        const float *from = (kind == 0 ? k : v) + t * stride + head * headDim;
        const u32 to = ((kind * kvHeads + head) * pageTokens + slot) * headDim;
        if (kvF16)
          for (u32 d = 0; d < headDim; d++) ((u16 *)page)[to + d] = floatToHalf(from[d]);
        else
          for (u32 d = 0; d < headDim; d++) ((float *)page)[to + d] = from[d];
      }
  }
}
