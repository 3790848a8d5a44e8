// Quantized activations as kernels read them (layout: quantizedStride in src/kernels/compute.ts), and dot products with them.
#pragma once
#include "simd.h"

typedef struct {
  const i8 *codes;   // a byte a column
  const i16 *pairs;  // the same codes, four columns as (0, 2, 1, 3)
  const float *scales;
  const i32 *sums;   // of a block's codes
  const i32 *starts; // of a block: two 16-bit words, -8 times the sums of columns 0 and 1 of each four, and of columns 2 and 3
} Activations;

INLINE u32 quantizedBytes(u32 blocks, u32 block) { return (blocks * (3 * block + 12) + 63) & ~63u; }

INLINE Activations activationsAt(const u8 *p, u32 blocks, u32 block) {
  const u32 n = blocks * block;
  const u8 *tail = p + 3 * n;
  Activations a = {(const i8 *)p, (const i16 *)(p + n), (const float *)tail, (const i32 *)(tail + 4 * blocks), (const i32 *)(tail + 8 * blocks)};
  return a;
}

INLINE v128 splat4(const void *p) { return wasm_v128_load32_splat(p); }
INLINE v128 dotAdd(v128 a, v128 b, v128 sum) { return wasm_i32x4_add(sum, wasm_i32x4_dot_i16x8(a, b)); }

#ifdef RELAXED
// Pairs of products of bytes and codes 0…127, as words.
INLINE v128 dotBytes(v128 x, v128 codes) { return wasm_i16x8_relaxed_dot_i8x16_i7x16(x, codes); }
#else
INLINE v128 dotBytes(v128 x, v128 codes) { return wasm_v128_xor(x, codes); } // never reached: tiles of bytes are relaxed
#endif

INLINE v128 evenWords(v128 lowBytes, v128 highBytes) {
  return wasm_v128_or(wasm_v128_and(lowBytes, load(bits00ff)), wasm_i16x8_shl(highBytes, 8));
}
INLINE v128 oddWords(v128 lowBytes, v128 highBytes) {
  return wasm_v128_or(wasm_u16x8_shr(lowBytes, 8), wasm_v128_and(highBytes, load(bitsff00)));
}

