// What all kernels share: short names, float conversions, the fixed orders of addition.
//
// Compiled twice: without and with relaxed SIMD (RELAXED). Only multiplyAdd, and the integer dot products of quantized.c, differ.
// The plain TypeScript twin of every kernel is in src/kernels/scalar; it has the same roundings in the same order.
#pragma once
#include <stdint.h>
#include <wasm_simd128.h>

typedef uint8_t u8;
typedef int8_t i8;
typedef uint16_t u16;
typedef int16_t i16;
typedef uint32_t u32;
typedef int32_t i32;
typedef v128_t v128;

#define INLINE static inline __attribute__((always_inline))
// Inner functions stay functions of their own: the engine optimises one when it turns hot, and a long call uses the better code from
// the next panel on.
#define OWN static __attribute__((noinline)) void
#define EXPORT(name) __attribute__((export_name(#name), used)) void name
// Loops over registers are unrolled, loops over data stay rolled: plain SIMD loses half its speed on Node 20 otherwise.
#define UNROLLED _Pragma("clang loop unroll(full)")
#define ROLLED _Pragma("clang loop unroll(disable) vectorize(disable)")

// The numbers of COMPUTE in src/kernels/kernels.ts.
enum { F32, F16, BF16, INT8, INT4, INT4M, NF4, FP8_E4M3, FP8_E5M2 };

// Constants live in memory (constants.c): V8 builds a vector literal anew in every iteration, a load costs nothing.
extern const u32 bits0f[4], bits000f[4], bits00f0[4], bits0f00[4], bits00ff[4], bitsff00[4], bits88[4];
extern const u32 halfKept[4], halfLimit[4], infinity[4];
extern const float two112[4], twoMinus112[4];
extern const float nf4Values[16], nf4Unit[4];
extern const u8 nf4Bytes[4][16];
extern const u8 nf4IntegerBytes[2][16];

INLINE v128 load(const void *p) { return wasm_v128_load(p); }
// A constant that is wanted once a block: loaded there, not kept in a register that the loop over the block then lacks.
INLINE v128 loadHere(const void *p) {
  __asm__ volatile("" : "+r"(p));
  return wasm_v128_load(p);
}
// Keeps the loads behind it there: all loads of a pass at once would push its sums out of the registers.
INLINE void loadsStay(void) { __asm__ volatile("" ::: "memory"); }
INLINE v128 zero(void) { return wasm_i32x4_const_splat(0); }
INLINE u32 minimum(u32 a, u32 b) { return a < b ? a : b; }

// a·b + c. Relaxed: rounded once where the processor has fused multiply-add; else each step is rounded.
INLINE v128 multiplyAdd(v128 a, v128 b, v128 c) {
#ifdef RELAXED
  return wasm_f32x4_relaxed_madd(a, b, c);
#else
  return wasm_f32x4_add(c, wasm_f32x4_mul(a, b));
#endif
}

// (0 + 1) + (2 + 3).
INLINE float sum4(v128 v) {
  return (wasm_f32x4_extract_lane(v, 0) + wasm_f32x4_extract_lane(v, 1)) +
         (wasm_f32x4_extract_lane(v, 2) + wasm_f32x4_extract_lane(v, 3));
}

// binary16 in 32-bit lanes, sign-extended → float32, exact with denormals, infinities and NaN. The exponent is 112 too small after
// the shift; the multiplication mends that and normalises; what reaches 2^16 was an infinity or NaN.
INLINE v128 halfToFloat(v128 h) {
  v128 f = wasm_f32x4_mul(wasm_v128_and(wasm_i32x4_shl(h, 13), load(halfKept)), load(two112));
  v128 special = wasm_f32x4_ge(wasm_f32x4_abs(f), load(halfLimit));
  return wasm_v128_or(f, wasm_v128_and(special, load(infinity)));
}

INLINE v128 loadHalf4(const void *p) { return halfToFloat(wasm_i32x4_load16x4(p)); }

// The same for a factor of a product, without comparisons: what was an infinity or NaN (2^16 and more) overflows to an infinity and
// stays one; everything else is exact.
INLINE v128 halfToFactor(v128 h, v128 kept, v128 up, v128 down) {
  v128 f = wasm_v128_and(wasm_i32x4_shl(h, 13), kept);
  return wasm_f32x4_mul(wasm_f32x4_mul(wasm_f32x4_mul(f, up), up), down);
}
INLINE v128 loadHalfFactor4(const void *p) {
  return halfToFactor(wasm_i32x4_load16x4(p), load(halfKept), load(two112), load(twoMinus112));
}
INLINE v128 loadBfloat4(const void *p) { return wasm_i32x4_shl(wasm_u32x4_load16x4(p), 16); }

// Four consecutive plain elements, as factors.
INLINE v128 loadPlain4(const int encoding, const u8 *p) {
  if (encoding == F32) return load(p);
  return encoding == F16 ? loadHalfFactor4(p) : loadBfloat4(p);
}
INLINE u32 plainBytes(const int encoding) { return encoding == F32 ? 4 : 2; }

// The first `count` < 4 elements, then zeros. Reads nothing past them.
INLINE v128 loadPlainTail(const int encoding, const u8 *p, u32 count) {
  if (encoding == F32) {
    v128 v = zero();
    if (count > 0) v = wasm_v128_load32_lane(p, v, 0);
    if (count > 1) v = wasm_v128_load32_lane(p + 4, v, 1);
    if (count > 2) v = wasm_v128_load32_lane(p + 8, v, 2);
    return v;
  }
  v128 v = zero();
  if (count > 0) v = wasm_v128_load16_lane(p, v, 0);
  if (count > 1) v = wasm_v128_load16_lane(p + 2, v, 1);
  if (count > 2) v = wasm_v128_load16_lane(p + 4, v, 2);
  v = wasm_i32x4_extend_low_i16x8(v);
  if (encoding == F16) return halfToFactor(v, load(halfKept), load(two112), load(twoMinus112));
  return wasm_i32x4_shl(v, 16);
}

INLINE void storeTail(float *p, v128 v, u32 count) {
  if (count > 0) p[0] = wasm_f32x4_extract_lane(v, 0);
  if (count > 1) p[1] = wasm_f32x4_extract_lane(v, 1);
  if (count > 2) p[2] = wasm_f32x4_extract_lane(v, 2);
}

// y = alpha·sum, added to what is there when `accumulate`.
INLINE void finish(float *y, u32 accumulate, float alpha, float sum) {
  float term = alpha * sum;
  *y = accumulate ? *y + term : term;
}

// e^x, four at once: exp32 of src/kernels/scalar/float.ts, step by step.
INLINE v128 exp4(v128 x) {
  const v128 low = wasm_f32x4_const_splat(-87.33654f);
  v128 c = wasm_f32x4_min(wasm_f32x4_max(x, low), wasm_f32x4_const_splat(88.37626f));
  v128 n = wasm_f32x4_nearest(wasm_f32x4_mul(c, wasm_f32x4_const_splat(1.44269504088896341f)));
  v128 r = wasm_f32x4_sub(c, wasm_f32x4_mul(n, wasm_f32x4_const_splat(0.693359375f)));
  r = wasm_f32x4_sub(r, wasm_f32x4_mul(n, wasm_f32x4_const_splat(-2.12194440e-4f)));
  v128 p = wasm_f32x4_const_splat(1.9875691500e-4f);
  p = wasm_f32x4_add(wasm_f32x4_mul(p, r), wasm_f32x4_const_splat(1.3981999507e-3f));
  p = wasm_f32x4_add(wasm_f32x4_mul(p, r), wasm_f32x4_const_splat(8.3334519073e-3f));
  p = wasm_f32x4_add(wasm_f32x4_mul(p, r), wasm_f32x4_const_splat(4.1665795894e-2f));
  p = wasm_f32x4_add(wasm_f32x4_mul(p, r), wasm_f32x4_const_splat(1.6666665459e-1f));
  p = wasm_f32x4_add(wasm_f32x4_mul(p, r), wasm_f32x4_const_splat(5.0000001201e-1f));
  p = wasm_f32x4_add(wasm_f32x4_mul(p, wasm_f32x4_mul(r, r)), r);
  p = wasm_f32x4_add(p, wasm_f32x4_const_splat(1.0f));
  v128 exponent = wasm_i32x4_add(wasm_i32x4_trunc_sat_f32x4(n), wasm_i32x4_const_splat(127));
  v128 e = wasm_f32x4_mul(p, wasm_i32x4_shl(exponent, 23));
  return wasm_v128_andnot(e, wasm_f32x4_lt(x, low));
}
