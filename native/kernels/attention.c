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

// Heads of a group that share the reading of keys and values (and their conversion); at most these many.
#define QUERIES 4

// Scores: element d in lane d mod 8, as in matMul. Either one query and `keyCount` consecutive keys, or four queries (qStride floats
// apart) and one key; scores of a query lie scoreStride floats apart.
INLINE void scoreKeys(const int encoding, const int queries, const int keyCount, const float *q, u32 qStride, const u8 *keys, u32 headDim,
                      float scale, float *scores, u32 scoreStride) {
  const u32 step = plainBytes(encoding), rowBytes = headDim * step;
  const int count = queries * keyCount;
  v128 low[4], high[4];
  UNROLLED for (int i = 0; i < count; i++) low[i] = high[i] = zero();
  const u32 d = headDim & ~7u;
  if (queries == 1) {
    ROLLED for (u32 i = 0; i < d; i += 8) {
      v128 q0 = load(q + i), q1 = load(q + i + 4);
      UNROLLED for (int k = 0; k < keyCount; k++) {
        low[k] = multiplyAdd(loadPlain4(encoding, keys + k * rowBytes + i * step), q0, low[k]);
        high[k] = multiplyAdd(loadPlain4(encoding, keys + k * rowBytes + (i + 4) * step), q1, high[k]);
      }
    }
  } else {
    // One half after the other: sums, loads and constants have to fit into the registers.
    ROLLED for (u32 i = 0; i < d; i += 8) {
      v128 key = loadPlain4(encoding, keys + i * step);
      UNROLLED for (int j = 0; j < queries; j++) low[j] = multiplyAdd(key, load(q + j * qStride + i), low[j]);
    }
    ROLLED for (u32 i = 4; i < d; i += 8) {
      v128 key = loadPlain4(encoding, keys + i * step);
      UNROLLED for (int j = 0; j < queries; j++) high[j] = multiplyAdd(key, load(q + j * qStride + i), high[j]);
    }
  }
  const u32 left = headDim - d;
  if (left > 0) {
    UNROLLED for (int i = 0; i < count; i++) {
      const u8 *tail = keys + (i % keyCount) * rowBytes + d * step, *qTail = (const u8 *)(q + (i % queries) * qStride + d);
      if (left >= 4) low[i] = multiplyAdd(loadPlain4(encoding, tail), load(qTail), low[i]);
      else low[i] = multiplyAdd(loadPlainTail(encoding, tail, left), loadPlainTail(F32, qTail, left), low[i]);
      if (left > 4)
        high[i] = multiplyAdd(loadPlainTail(encoding, tail + 4 * step, left - 4), loadPlainTail(F32, qTail + 16, left - 4), high[i]);
    }
  }
  if (count == 1) {
    scores[0] = sum4(wasm_f32x4_add(low[0], high[0])) * scale;
    return;
  }
  // Four times sum4 at once.
  v128 a = wasm_f32x4_add(low[0], high[0]), b = wasm_f32x4_add(low[1], high[1]);
  v128 c = wasm_f32x4_add(low[2], high[2]), e = wasm_f32x4_add(low[3], high[3]);
  v128 ab = wasm_f32x4_add(wasm_i32x4_shuffle(a, b, 0, 2, 4, 6), wasm_i32x4_shuffle(a, b, 1, 3, 5, 7));
  v128 ce = wasm_f32x4_add(wasm_i32x4_shuffle(c, e, 0, 2, 4, 6), wasm_i32x4_shuffle(c, e, 1, 3, 5, 7));
  v128 all = wasm_f32x4_add(wasm_i32x4_shuffle(ab, ce, 0, 2, 4, 6), wasm_i32x4_shuffle(ab, ce, 1, 3, 5, 7));
  all = wasm_f32x4_mul(all, wasm_f32x4_splat(scale));
  if (queries == 1) {
    wasm_v128_store(scores, all);
    return;
  }
  wasm_v128_store32_lane(scores, all, 0);
  wasm_v128_store32_lane(scores + scoreStride, all, 1);
  wasm_v128_store32_lane(scores + 2 * scoreStride, all, 2);
  wasm_v128_store32_lane(scores + 3 * scoreStride, all, 3);
}

// Positions [first, last] of one key-value head; `at` is the byte offset of the head's keys (or values) in a page.
typedef struct {
  const u32 *pages;
  u32 pageTokens, at, headDim, first, last;
  u32 scoreStride; // floats from one query's scores to the next one's
} Run;

INLINE u32 runInPage(const Run *run, u32 p) { return minimum(run->pageTokens - p % run->pageTokens, run->last + 1 - p); }
INLINE const u8 *rowAt(const int encoding, const Run *run, u32 p) {
  return (const u8 *)(uintptr_t)run->pages[p / run->pageTokens] + run->at + (p % run->pageTokens) * run->headDim * plainBytes(encoding);
}

INLINE void scoreAll(const int encoding, const int queries, const Run *run, const float *q, float scale, float *scores) {
  const u32 headDim = run->headDim, rowBytes = headDim * plainBytes(encoding);
  for (u32 p = run->first; p <= run->last;) {
    const u8 *keys = rowAt(encoding, run, p);
    const u32 end = p + runInPage(run, p);
    if (queries == 1)
      for (; p + 4 <= end; p += 4, keys += 4 * rowBytes) scoreKeys(encoding, 1, 4, q, 0, keys, headDim, scale, scores + p - run->first, 0);
    for (; p < end; p++, keys += rowBytes)
      scoreKeys(encoding, queries, 1, q, headDim, keys, headDim, scale, scores + p - run->first, run->scoreStride);
  }
}

// 4·registers dimensions from d on (or `width` < 4 of them): weights times values in order of position, times `inverse` at the end.
INLINE void weighValues(const int encoding, const int queries, const int registers, const int narrow, const Run *run, const float *weights,
                        const float *inverse, u32 d, u32 width, float *y) {
  const u32 step = plainBytes(encoding), rowBytes = run->headDim * step, stride = run->scoreStride;
  v128 sums[8]; // index register·queries + query
  UNROLLED for (int i = 0; i < registers * queries; i++) sums[i] = zero();
  for (u32 p = run->first; p <= run->last;) {
    const u8 *values = rowAt(encoding, run, p) + d * step;
    const u32 count = runInPage(run, p);
    const float *weight = weights + p - run->first, *end = weight + count;
    p += count;
    ROLLED for (; weight < end; weight++, values += rowBytes) {
      v128 v[4];
      UNROLLED for (int i = 0; i < registers; i++)
        v[i] = narrow ? loadPlainTail(encoding, values, width) : loadPlain4(encoding, values + i * 4 * step);
      UNROLLED for (int j = 0; j < queries; j++) {
        v128 each = wasm_v128_load32_splat(weight + j * stride);
        UNROLLED for (int i = 0; i < registers; i++) sums[i * queries + j] = multiplyAdd(each, v[i], sums[i * queries + j]);
      }
    }
  }
  UNROLLED for (int j = 0; j < queries; j++) {
    UNROLLED for (int i = 0; i < registers; i++) {
      v128 v = wasm_f32x4_mul(sums[i * queries + j], wasm_f32x4_splat(inverse[j]));
      float *out = y + j * run->headDim + d + 4 * i;
      if (narrow) storeTail(out, v, width);
      else wasm_v128_store(out, v);
    }
  }
}

// Heads side by side in q and y.
typedef struct {
  Run keys, values;
  const float *q;
  float *y, *scores;
  float scale;
} Heads;

INLINE void attendHeads(const int encoding, const int queries, const int registers, const Heads *h) {
  const u32 headDim = h->keys.headDim;
  scoreAll(encoding, queries, &h->keys, h->q, h->scale, h->scores);
  float inverse[QUERIES];
  for (int j = 0; j < queries; j++)
    inverse[j] = 1.0f / exponentials(h->scores + j * h->keys.scoreStride, h->keys.last - h->keys.first + 1);
  u32 d = 0, wide = 4 * registers;
  for (; d + wide <= headDim; d += wide) weighValues(encoding, queries, registers, 0, &h->values, h->scores, inverse, d, wide, h->y);
  for (; d + 4 <= headDim; d += 4) weighValues(encoding, queries, 1, 0, &h->values, h->scores, inverse, d, 4, h->y);
  if (d < headDim) weighValues(encoding, queries, 1, 1, &h->values, h->scores, inverse, d, headDim - d, h->y);
}

OWN oneHeadF32(const Heads *h) { attendHeads(F32, 1, 4, h); }
OWN fourHeadsF32(const Heads *h) { attendHeads(F32, QUERIES, 2, h); }
OWN oneHeadF16(const Heads *h) { attendHeads(F16, 1, 4, h); }
OWN fourHeadsF16(const Heads *h) { attendHeads(F16, QUERIES, 2, h); }

EXPORT(attention)(const float *q, u32 qStride, float *y, u32 yStride, u32 heads, u32 kvHeads, u32 headDim, u32 headStart, u32 headEnd,
                  u32 tokens, u32 position, const u32 *pages, u32 pageTokens, u32 kvF16, float scale, u32 window, float *scratch) {
  const u32 group = heads / kvHeads, headBytes = pageTokens * headDim * (kvF16 ? 2 : 4);
  const u32 scoreStride = (position + tokens + 63) & ~63u; // attentionScratch in src/kernels/compute.ts
  for (u32 head = headStart; head < headEnd;) {
    const u32 kvHead = head / group, inGroup = minimum(headEnd, (kvHead + 1) * group) - head;
    const u32 count = inGroup >= QUERIES ? QUERIES : 1;
    for (u32 t = 0; t < tokens; t++) {
      const u32 last = position + t, first = window > 0 && last + 1 > window ? last + 1 - window : 0;
      const Heads h = {
          {pages, pageTokens, kvHead * headBytes, headDim, first, last, scoreStride},
          {pages, pageTokens, (kvHeads + kvHead) * headBytes, headDim, first, last, scoreStride},
          q + t * qStride + head * headDim,
          y + t * yStride + head * headDim,
          scratch,
          scale,
      };
      if (kvF16 && count == 1) oneHeadF16(&h);
      else if (kvF16) fourHeadsF16(&h);
      else if (count == 1) oneHeadF32(&h);
      else fourHeadsF32(&h);
    }
    head += count;
  }
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
