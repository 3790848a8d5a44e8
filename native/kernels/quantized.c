// Mat-mul over int8 activations: integer dot products within a block, float32 between blocks. Integers are exact, so scalar,
// baseline and relaxed give the same bits. Layout of quantized activations: quantizedStride in src/kernels/compute.ts.
#include "panel.h"

typedef struct {
  const i8 *codes;   // a byte a column
  const i16 *pairs;  // the same codes, four columns as (0, 2, 1, 3)
  const float *scales;
  const i32 *sums; // of a block's codes
} Activations;

INLINE u32 quantizedBytes(u32 blocks, u32 block) { return (blocks * (3 * block + 8) + 63) & ~63u; }

INLINE Activations activationsAt(const u8 *p, u32 blocks, u32 block) {
  const u32 n = blocks * block;
  const u8 *tail = p + 3 * n;
  Activations a = {(const i8 *)p, (const i16 *)(p + n), (const float *)tail, (const i32 *)(tail + 4 * blocks)};
  return a;
}

// Blocks whose largest magnitude is below this become zero: 127 / amax would overflow.
#define SMALLEST_AMAX 0x1p-120f

EXPORT(quantize)(const float *x, u32 xStride, u32 cols, u32 block, u32 tokens, u8 *out) {
  const u32 blocks = (cols + block - 1) / block;
  for (u32 t = 0; t < tokens; t++, x += xStride, out += quantizedBytes(blocks, block)) {
    Activations a = activationsAt(out, blocks, block);
    for (u32 b = 0; b < blocks; b++) {
      const float *xb = x + b * block;
      v128 top = zero();
      for (u32 c = 0; c < block; c += 4) top = wasm_f32x4_max(top, wasm_f32x4_abs(load(xb + c)));
      top = wasm_f32x4_max(top, wasm_i32x4_shuffle(top, top, 2, 3, 0, 1));
      top = wasm_f32x4_max(top, wasm_i32x4_shuffle(top, top, 1, 0, 3, 2));
      const float amax = wasm_f32x4_extract_lane(top, 0);
      const v128 inverse = wasm_f32x4_splat(amax >= SMALLEST_AMAX ? 127.0f / amax : 0.0f);
      v128 sum = zero();
      for (u32 c = 0; c < block; c += 4) {
        v128 code = wasm_i32x4_trunc_sat_f32x4(wasm_f32x4_nearest(wasm_f32x4_mul(load(xb + c), inverse)));
        sum = wasm_i32x4_add(sum, code);
        v128 words = wasm_i16x8_narrow_i32x4(code, code);
        wasm_v128_store64_lane((void *)(a.pairs + b * block + c), wasm_i16x8_shuffle(words, words, 0, 2, 1, 3, 4, 6, 5, 7), 0);
        wasm_v128_store32_lane((void *)(a.codes + b * block + c), wasm_i8x16_narrow_i16x8(words, words), 0);
      }
      const i32 total = wasm_i32x4_extract_lane(sum, 0) + wasm_i32x4_extract_lane(sum, 1) + wasm_i32x4_extract_lane(sum, 2) +
                        wasm_i32x4_extract_lane(sum, 3);
      // A NaN fails this comparison only, and still has to show.
      ((float *)a.scales)[b] = amax < SMALLEST_AMAX ? 0.0f : amax / 127.0f;
      ((i32 *)a.sums)[b] = total;
    }
  }
}

INLINE v128 splat4(const void *p) { return wasm_v128_load32_splat(p); }
INLINE v128 dotAdd(v128 a, v128 b, v128 sum) { return wasm_i32x4_add(sum, wasm_i32x4_dot_i16x8(a, b)); }

// The dot functions add, for `registers` registers of rows from `w` on and `tokenCount` tokens, a block's integer dot products to
// dots[register·tokenCount + token]. `stride` is the distance of tokens, in bytes.

#ifdef RELAXED

// Codes 0…15 are the 7-bit operand. Sixteen-bit sums hold 32 columns: 8 · 2 · 15 · 127 < 2^15.
INLINE void dotFourBit(const int registers, const int tokenCount, const u8 *w, u32 block, const i8 *codes, u32 stride, v128 *dots) {
  ROLLED for (u32 half = 0; half < block; half += 32) {
    v128 words[8];
    UNROLLED for (int i = 0; i < registers * tokenCount; i++) words[i] = zero();
    ROLLED for (u32 c = half; c < half + 32; c += 8, w += 64) {
      UNROLLED for (int i = 0; i < registers; i++) {
        v128 v = load(w + i * 16);
        v128 low = wasm_v128_and(v, load(bits0f)), high = wasm_v128_and(wasm_u16x8_shr(v, 4), load(bits0f));
        UNROLLED for (int t = 0; t < tokenCount; t++) {
          v128 sum = words[i * tokenCount + t];
          sum = wasm_i16x8_add(sum, wasm_i16x8_relaxed_dot_i8x16_i7x16(splat4(codes + t * stride + c), low));
          sum = wasm_i16x8_add(sum, wasm_i16x8_relaxed_dot_i8x16_i7x16(splat4(codes + t * stride + c + 4), high));
          words[i * tokenCount + t] = sum;
        }
      }
    }
    UNROLLED for (int i = 0; i < registers * tokenCount; i++)
      dots[i] = wasm_i32x4_add(dots[i], wasm_i32x4_extadd_pairwise_i16x8(words[i]));
  }
}

#else

// Nibbles stay where they are in 16-bit words: the activations bring every product to ·256.
INLINE void dotFourBit(const int registers, const int tokenCount, const u8 *w, u32 block, const i16 *pairs, u32 stride, v128 *dots) {
  ROLLED for (u32 c = 0; c < block; c += 8, w += 64) {
    UNROLLED for (int i = 0; i < registers; i++) {
      v128 v = load(w + i * 16);
      v128 low02 = wasm_v128_and(v, load(bits000f)), low13 = wasm_v128_and(v, load(bits0f00));
      v128 high02 = wasm_v128_and(v, load(bits00f0)), high13 = wasm_u16x8_shr(v, 12);
      UNROLLED for (int t = 0; t < tokenCount; t++) {
        const u8 *x = (const u8 *)(pairs + c) + t * stride;
        v128 sum = dots[i * tokenCount + t];
        sum = dotAdd(low02, wasm_i16x8_shl(splat4(x), 8), sum);
        sum = dotAdd(low13, splat4(x + 4), sum);
        sum = dotAdd(high02, wasm_i16x8_shl(splat4(x + 8), 4), sum);
        sum = dotAdd(high13, wasm_i16x8_shl(splat4(x + 12), 8), sum);
        dots[i * tokenCount + t] = sum;
      }
    }
  }
}

#endif

// Even and odd bytes as 16-bit words ·256.
INLINE void dotInt8(const int registers, const int tokenCount, const u8 *w, u32 block, const i16 *pairs, u32 stride, v128 *dots) {
  ROLLED for (u32 c = 0; c < block; c += 4, w += 64) {
    UNROLLED for (int i = 0; i < registers; i++) {
      v128 v = load(w + i * 16);
      v128 even = wasm_i16x8_shl(v, 8), odd = wasm_v128_and(v, load(bitsff00));
      UNROLLED for (int t = 0; t < tokenCount; t++) {
        const u8 *x = (const u8 *)(pairs + c) + t * stride;
        dots[i * tokenCount + t] = dotAdd(odd, splat4(x + 4), dotAdd(even, splat4(x), dots[i * tokenCount + t]));
      }
    }
  }
}

INLINE v128 evenWords(v128 lowBytes, v128 highBytes) {
  return wasm_v128_or(wasm_v128_and(lowBytes, load(bits00ff)), wasm_i16x8_shl(highBytes, 8));
}
INLINE v128 oddWords(v128 lowBytes, v128 highBytes) {
  return wasm_v128_or(wasm_u16x8_shr(lowBytes, 8), wasm_v128_and(highBytes, load(bitsff00)));
}

// The codebook as 16-bit integers, low and high bytes looked up apart.
INLINE void dotNf4(const int registers, const int tokenCount, const u8 *w, u32 block, const i16 *pairs, u32 stride, v128 *dots) {
  ROLLED for (u32 c = 0; c < block; c += 8, w += 64) {
    UNROLLED for (int i = 0; i < registers; i++) {
      v128 v = load(w + i * 16);
      v128 low = wasm_v128_and(v, load(bits0f)), high = wasm_v128_and(wasm_u16x8_shr(v, 4), load(bits0f));
      v128 low0 = lookUp(load(nf4IntegerBytes[0]), low), low1 = lookUp(load(nf4IntegerBytes[1]), low);
      v128 high0 = lookUp(load(nf4IntegerBytes[0]), high), high1 = lookUp(load(nf4IntegerBytes[1]), high);
      UNROLLED for (int t = 0; t < tokenCount; t++) {
        const u8 *x = (const u8 *)(pairs + c) + t * stride;
        v128 sum = dots[i * tokenCount + t];
        sum = dotAdd(evenWords(low0, low1), splat4(x), sum);
        sum = dotAdd(oddWords(low0, low1), splat4(x + 4), sum);
        sum = dotAdd(evenWords(high0, high1), splat4(x + 8), sum);
        sum = dotAdd(oddWords(high0, high1), splat4(x + 12), sum);
        dots[i * tokenCount + t] = sum;
      }
    }
  }
}

// fp8 has no integers: float32 products of values and activation codes, in column order, every step rounded.
INLINE void dotFloat8(const int encoding, const int registers, const int tokenCount, const u8 *w, u32 block, const i8 *codes, u32 stride, v128 *dots) {
  ROLLED for (u32 c = 0; c < block; c += 4, w += 64) {
    UNROLLED for (int i = 0; i < registers; i++) {
      v128 code[8];
      chunkToFloat(encoding, load(w + i * 16), code);
      UNROLLED for (int j = 0; j < 4; j++) {
        UNROLLED for (int t = 0; t < tokenCount; t++) {
          v128 x = wasm_f32x4_splat((float)codes[t * stride + c + j]);
          dots[i * tokenCount + t] = wasm_f32x4_add(dots[i * tokenCount + t], wasm_f32x4_mul(code[j], x));
        }
      }
    }
  }
}

INLINE void quantizedPass(const int encoding, const int registers, const int tokenCount, const Pass *pass) {
  const u8 *w = pass->w + pass->q * 16; // codes of the first register
  const u32 blocks = pass->blocks, block = pass->block, scaleF32 = pass->scaleF32, stride = pass->xStride;
  const int float8 = encoding == FP8_E4M3 || encoding == FP8_E5M2;
  const u32 codes = codeBytes(encoding, block), bytes = blockBytes(encoding, block, scaleF32), words = stride / 4;
  const u8 *scales = pass->w + codes + pass->q * (scaleF32 ? 16 : 8);
  const Activations x = activationsAt(pass->x, blocks, block);
  v128 sums[8]; // index register·tokenCount + token
  UNROLLED for (int i = 0; i < registers * tokenCount; i++) sums[i] = zero();
  ROLLED for (u32 b = 0; b < blocks; b++, w += bytes, scales += bytes) {
    v128 dots[8];
    UNROLLED for (int t = 0; t < tokenCount; t++) {
      v128 start = zero();
#ifdef RELAXED
      if (encoding == INT4) start = wasm_i32x4_splat(-8 * x.sums[b + t * words]);
#else
      if (encoding == INT4) start = wasm_i32x4_splat(-8 * 256 * x.sums[b + t * words]);
#endif
      UNROLLED for (int i = 0; i < registers; i++) dots[i * tokenCount + t] = start;
    }
#ifdef RELAXED
    if (encoding == INT4 || encoding == INT4M) dotFourBit(registers, tokenCount, w, block, x.codes + b * block, stride, dots);
    const int times256 = encoding == INT8;
#else
    if (encoding == INT4 || encoding == INT4M) dotFourBit(registers, tokenCount, w, block, x.pairs + b * block, stride, dots);
    const int times256 = encoding == INT4 || encoding == INT4M || encoding == INT8;
#endif
    if (encoding == INT8) dotInt8(registers, tokenCount, w, block, x.pairs + b * block, stride, dots);
    if (times256) {
      UNROLLED for (int i = 0; i < registers * tokenCount; i++) dots[i] = wasm_i32x4_shr(dots[i], 8);
    }
    if (encoding == NF4) dotNf4(registers, tokenCount, w, block, x.pairs + b * block, stride, dots);
    if (float8) dotFloat8(encoding, registers, tokenCount, w, block, x.codes + b * block, stride, dots);
    v128 scale[4];
    loadScales(scales, registers, scaleF32, scale);
    UNROLLED for (int i = 0; i < registers; i++) {
      UNROLLED for (int t = 0; t < tokenCount; t++) {
        v128 dot = dots[i * tokenCount + t], each = wasm_f32x4_mul(scale[i], wasm_v128_load32_splat(x.scales + b + t * words));
        if (!float8) dot = wasm_f32x4_convert_i32x4(dot);
        if (encoding == NF4) each = wasm_f32x4_mul(each, loadHere(nf4Unit));
        sums[i * tokenCount + t] = wasm_f32x4_add(sums[i * tokenCount + t], wasm_f32x4_mul(dot, each));
      }
    }
    if (encoding == INT4M) {
      loadScales(scales + scaleBytes(scaleF32), registers, scaleF32, scale);
      UNROLLED for (int t = 0; t < tokenCount; t++) {
        v128 xSum = wasm_f32x4_splat(x.scales[b + t * words] * (float)x.sums[b + t * words]);
        UNROLLED for (int i = 0; i < registers; i++)
          sums[i * tokenCount + t] = wasm_f32x4_add(sums[i * tokenCount + t], wasm_f32x4_mul(scale[i], xSum));
      }
    }
  }
  UNROLLED for (int i = 0; i < registers; i++) {
    UNROLLED for (int t = 0; t < tokenCount; t++)
      finishRows(pass->y + t * pass->yStride, pass->q + i, pass->rows, pass->multiplier, pass->accumulate, pass->alpha, sums[i * tokenCount + t]);
  }
}

#define PANELS(name) \
  OWN name##One(const Pass *pass) { quantizedPass(name, 4, 1, pass); } \
  OWN name##Four(const Pass *pass) { quantizedPass(name, 2, 4, pass); }
PANELS(INT8)
PANELS(INT4)
PANELS(INT4M)
PANELS(NF4)
PANELS(FP8_E4M3)
PANELS(FP8_E5M2)
#undef PANELS

EXPORT(matMulQ)(u32 encoding, const u8 *w, u32 rows, u32 cols, u32 block, u32 scaleF32, float multiplier, const u8 *xq, float *y,
                u32 yStride, u32 tokens, u32 accumulate, float alpha) {
  const u32 blocks = (cols + block - 1) / block;
  const Pass pass = {w, 0, blocks, block, scaleF32, multiplier, xq, quantizedBytes(blocks, block), y, yStride, 0, accumulate, alpha};
#define PANELS(name) \
  if (encoding == name) return eachPass(name, pass, rows, tokens, name##One, name##Four);
  PANELS(INT8)
  PANELS(INT4)
  PANELS(INT4M)
  PANELS(NF4)
  PANELS(FP8_E4M3)
  PANELS(FP8_E5M2)
  __builtin_trap();
}
