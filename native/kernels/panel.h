// Row panels: 16 rows, blocks of 32 or 64 columns: codes, 16 scales, 16 minima for int4m (docs/FORMAT.md, "Row panels").
// A register holds four rows; register q of a 64-byte chunk holds rows 4q…4q+3.
#pragma once
#include "simd.h"

INLINE int isFourBit(const int encoding) { return encoding == INT4 || encoding == INT4M || encoding == NF4; }
INLINE u32 codeBytes(const int encoding, u32 block) { return isFourBit(encoding) ? block * 8 : block * 16; }
INLINE u32 scaleBytes(u32 scaleF32) { return scaleF32 ? 64 : 32; }
INLINE u32 blockBytes(const int encoding, u32 block, u32 scaleF32) {
  return codeBytes(encoding, block) + scaleBytes(scaleF32) * (encoding == INT4M ? 2 : 1);
}

// Scales (or minima) of registers of rows from `p` on.
INLINE void loadScales(const u8 *p, const int registers, u32 scaleF32, v128 out[4]) {
  if (scaleF32) {
    UNROLLED for (int i = 0; i < registers; i++) out[i] = load(p + i * 16);
    return;
  }
  const v128 kept = loadHere(halfKept), up = loadHere(two112), down = loadHere(twoMinus112);
  UNROLLED for (int i = 0; i < registers; i++) {
    out[i] = halfToFactor(wasm_i32x4_load16x4(p + i * 8), kept, up, down);
  }
}

// fp8 in the top byte of each lane, anything below → float32. E4M3: bias 7, 0x7f is NaN, denormals are multiples of 2^-9.
INLINE v128 e4m3ToFloat(v128 top) {
  v128 sign = wasm_v128_and(top, wasm_i32x4_const_splat((i32)0x80000000));
  v128 magnitude = wasm_u32x4_shr(wasm_v128_and(top, wasm_i32x4_const_splat(0x7f000000)), 4);
  v128 normal = wasm_i32x4_add(magnitude, wasm_i32x4_const_splat(120 << 23));
  v128 denormal = wasm_f32x4_sub(wasm_i32x4_add(magnitude, wasm_i32x4_const_splat(121 << 23)), wasm_f32x4_const_splat(0x1p-6f));
  v128 isDenormal = wasm_i32x4_lt(magnitude, wasm_i32x4_const_splat(1 << 23));
  v128 isNan = wasm_i32x4_eq(magnitude, wasm_i32x4_const_splat(0x07f00000));
  v128 value = wasm_v128_bitselect(denormal, normal, isDenormal);
  return wasm_v128_or(wasm_v128_or(value, sign), wasm_v128_and(isNan, wasm_i32x4_const_splat(0x7fc00000)));
}

INLINE v128 byteToFloat(const int encoding, v128 top) {
  if (encoding == INT8) return wasm_f32x4_convert_i32x4(wasm_i32x4_shr(top, 24));
  if (encoding == FP8_E4M3) return e4m3ToFloat(top);
  return halfToFloat(wasm_i32x4_shl(wasm_i32x4_shr(top, 24), 8)); // E5M2 is the upper byte of a binary16
}

#ifdef RELAXED
#define lookUp wasm_i8x16_relaxed_swizzle
#else
#define lookUp wasm_i8x16_swizzle
#endif

INLINE v128 zipLow(v128 a, v128 b) {
  return wasm_i8x16_shuffle(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
}
INLINE v128 zipHigh(v128 a, v128 b) {
  return wasm_i8x16_shuffle(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
}

// Sixteen nf4 codes, one a byte, four rows × four columns → columns: the four bytes of every float are looked up and interleaved.
INLINE void nf4Columns(v128 codes, v128 out[4]) {
  v128 byColumn = wasm_i8x16_shuffle(codes, codes, 0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  v128 b0 = lookUp(load(nf4Bytes[0]), byColumn), b1 = lookUp(load(nf4Bytes[1]), byColumn);
  v128 b2 = lookUp(load(nf4Bytes[2]), byColumn), b3 = lookUp(load(nf4Bytes[3]), byColumn);
  v128 low01 = zipLow(b0, b1), low23 = zipLow(b2, b3);
  v128 high01 = zipHigh(b0, b1), high23 = zipHigh(b2, b3);
  out[0] = wasm_i16x8_shuffle(low01, low23, 0, 8, 1, 9, 2, 10, 3, 11);
  out[1] = wasm_i16x8_shuffle(low01, low23, 4, 12, 5, 13, 6, 14, 7, 15);
  out[2] = wasm_i16x8_shuffle(high01, high23, 0, 8, 1, 9, 2, 10, 3, 11);
  out[3] = wasm_i16x8_shuffle(high01, high23, 4, 12, 5, 13, 6, 14, 7, 15);
}

INLINE u32 chunkColumns(const int encoding) { return isFourBit(encoding) ? 8 : 4; }

// Codes of 16 bytes (four rows) of a chunk as floats: out[i] = column i of the chunk; four or eight columns.
INLINE void chunkToFloat(const int encoding, v128 v, v128 out[8]) {
  if (encoding == NF4) {
    nf4Columns(wasm_v128_and(v, load(bits0f)), out);
    nf4Columns(wasm_v128_and(wasm_u16x8_shr(v, 4), load(bits0f)), out + 4);
  } else if (encoding == INT4) {
    // With its top bit flipped, code - 8 is the nibble read as a signed number.
    v = wasm_v128_xor(v, load(bits88));
    out[0] = wasm_f32x4_convert_i32x4(wasm_i32x4_shr(wasm_i32x4_shl(v, 28), 28));
    out[1] = wasm_f32x4_convert_i32x4(wasm_i32x4_shr(wasm_i32x4_shl(v, 20), 28));
    out[2] = wasm_f32x4_convert_i32x4(wasm_i32x4_shr(wasm_i32x4_shl(v, 12), 28));
    out[3] = wasm_f32x4_convert_i32x4(wasm_i32x4_shr(wasm_i32x4_shl(v, 4), 28));
    out[4] = wasm_f32x4_convert_i32x4(wasm_i32x4_shr(wasm_i32x4_shl(v, 24), 28));
    out[5] = wasm_f32x4_convert_i32x4(wasm_i32x4_shr(wasm_i32x4_shl(v, 16), 28));
    out[6] = wasm_f32x4_convert_i32x4(wasm_i32x4_shr(wasm_i32x4_shl(v, 8), 28));
    out[7] = wasm_f32x4_convert_i32x4(wasm_i32x4_shr(v, 28));
  } else if (encoding == INT4M) {
    out[0] = wasm_f32x4_convert_i32x4(wasm_u32x4_shr(wasm_i32x4_shl(v, 28), 28));
    out[1] = wasm_f32x4_convert_i32x4(wasm_u32x4_shr(wasm_i32x4_shl(v, 20), 28));
    out[2] = wasm_f32x4_convert_i32x4(wasm_u32x4_shr(wasm_i32x4_shl(v, 12), 28));
    out[3] = wasm_f32x4_convert_i32x4(wasm_u32x4_shr(wasm_i32x4_shl(v, 4), 28));
    out[4] = wasm_f32x4_convert_i32x4(wasm_u32x4_shr(wasm_i32x4_shl(v, 24), 28));
    out[5] = wasm_f32x4_convert_i32x4(wasm_u32x4_shr(wasm_i32x4_shl(v, 16), 28));
    out[6] = wasm_f32x4_convert_i32x4(wasm_u32x4_shr(wasm_i32x4_shl(v, 8), 28));
    out[7] = wasm_f32x4_convert_i32x4(wasm_u32x4_shr(v, 28));
  } else {
    out[0] = byteToFloat(encoding, wasm_i32x4_shl(v, 24));
    out[1] = byteToFloat(encoding, wasm_i32x4_shl(v, 16));
    out[2] = byteToFloat(encoding, wasm_i32x4_shl(v, 8));
    out[3] = byteToFloat(encoding, v);
  }
}

// Writes the sums of rows 4q…4q+3, as far as the panel has rows. The multiplier of scales is a power of two: applied to a finished
// sum it gives the bits it would give when applied to every scale.
INLINE void finishRows(float *y, u32 q, u32 rows, float multiplier, u32 accumulate, float alpha, v128 sums) {
  sums = wasm_f32x4_mul(sums, wasm_f32x4_splat(multiplier));
  if (rows >= 4 * q + 4) {
    v128 term = wasm_f32x4_mul(wasm_f32x4_splat(alpha), sums);
    wasm_v128_store(y + 4 * q, accumulate ? wasm_f32x4_add(load(y + 4 * q), term) : term);
    return;
  }
  if (rows > 4 * q) finish(y + 4 * q, accumulate, alpha, wasm_f32x4_extract_lane(sums, 0));
  if (rows > 4 * q + 1) finish(y + 4 * q + 1, accumulate, alpha, wasm_f32x4_extract_lane(sums, 1));
  if (rows > 4 * q + 2) finish(y + 4 * q + 2, accumulate, alpha, wasm_f32x4_extract_lane(sums, 2));
}

// One panel against the tokens of a pass.
typedef struct {
  const u8 *w;
  u32 q; // first register of rows
  u32 blocks, block, scaleF32;
  float multiplier;
  const u8 *x;
  u32 xStride; // bytes
  float *y;
  u32 yStride; // floats
  u32 rows;    // of the panel
  u32 accumulate;
  float alpha;
} Pass;

typedef void (*PassFunction)(const Pass *);

// All panels and tokens: four tokens a pass share the decoding of weights (two registers of rows at a time, as many sums as there
// are registers for), the others go alone. `pass` adds the same numbers in the same order either way.
INLINE void eachPass(const int encoding, Pass pass, u32 rows, u32 tokens, PassFunction one, PassFunction four) {
  const u32 panelBytes = pass.blocks * blockBytes(encoding, pass.block, pass.scaleF32);
  const u8 *x = pass.x;
  for (u32 first = 0; first < rows; first += 16, pass.w += panelBytes) {
    float *y = pass.y;
    pass.rows = minimum(16, rows - first);
    pass.x = x;
    u32 t = 0;
    for (; t + 4 <= tokens; t += 4, pass.x += 4 * pass.xStride, pass.y += 4 * pass.yStride)
      for (pass.q = 0; pass.q < 4; pass.q += 2) four(&pass);
    pass.q = 0;
    for (; t < tokens; t++, pass.x += pass.xStride, pass.y += pass.yStride) one(&pass);
    pass.y = y + 16;
  }
}
