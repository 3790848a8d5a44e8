// Mat-mul over int8 activations: integer dot products within a block, float32 between blocks. Integers are exact, so scalar,
// baseline and relaxed give the same bits.
#include "tiles.h"

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
      ((u32 *)a.starts)[b] = ((u32)(-8 * (wasm_i32x4_extract_lane(sum, 0) + wasm_i32x4_extract_lane(sum, 1))) & 0xffff) |
                             (u32)(-8 * (wasm_i32x4_extract_lane(sum, 2) + wasm_i32x4_extract_lane(sum, 3))) << 16;
      // A NaN fails this comparison only, and still has to show.
      ((float *)a.scales)[b] = amax < SMALLEST_AMAX ? 0.0f : amax / 127.0f;
      ((i32 *)a.sums)[b] = total;
    }
  }
}

// --- one token: the dot functions give a block's integer dot products with the 16 rows from `w` on, times 256 where they say so

#ifdef RELAXED

// Codes 0…15 are the 7-bit operand. Sixteen-bit sums start at -8·Σx: what they end with, Σ (code - 8)·x over half of a block's columns,
// is at most 32 · 8 · 127 < 2^15, whatever happens on the way.
INLINE void dotFourBit(const u8 *w, u32 block, const i8 *x, const i32 *start, v128 *dots) {
  v128 words[4];
  UNROLLED for (int i = 0; i < 4; i++) words[i] = wasm_v128_load32_splat(start);
  ROLLED for (u32 c = 0; c < block; c += 8, w += 64) {
    UNROLLED for (int i = 0; i < 4; i++) {
      v128 v = load(w + i * 16);
      words[i] = wasm_i16x8_add(words[i], dotBytes(splat4(x + c), wasm_v128_and(v, load(bits0f))));
      words[i] = wasm_i16x8_add(words[i], dotBytes(splat4(x + c + 4), wasm_v128_and(wasm_u16x8_shr(v, 4), load(bits0f))));
    }
  }
  UNROLLED for (int i = 0; i < 4; i++) dots[i] = wasm_i32x4_extadd_pairwise_i16x8(words[i]);
}

#else

// Times 256: nibbles stay where they are in 16-bit words, the activations bring every product to ·256.
INLINE void dotFourBit(const u8 *w, u32 block, const i16 *pairs, v128 *dots) {
  ROLLED for (u32 c = 0; c < block; c += 8, w += 64) {
    const u8 *x = (const u8 *)(pairs + c);
    UNROLLED for (int i = 0; i < 4; i++) {
      v128 v = load(w + i * 16);
      dots[i] = dotAdd(wasm_v128_and(v, load(bits000f)), wasm_i16x8_shl(splat4(x), 8), dots[i]);
      dots[i] = dotAdd(wasm_v128_and(v, load(bits0f00)), splat4(x + 4), dots[i]);
      dots[i] = dotAdd(wasm_v128_and(v, load(bits00f0)), wasm_i16x8_shl(splat4(x + 8), 4), dots[i]);
      dots[i] = dotAdd(wasm_u16x8_shr(v, 12), wasm_i16x8_shl(splat4(x + 12), 8), dots[i]);
    }
  }
}

#endif

// Times 256: even and odd bytes as 16-bit words ·256.
INLINE void dotInt8(const u8 *w, u32 block, const i16 *pairs, v128 *dots) {
  ROLLED for (u32 c = 0; c < block; c += 4, w += 64) {
    const u8 *x = (const u8 *)(pairs + c);
    UNROLLED for (int i = 0; i < 4; i++) {
      v128 v = load(w + i * 16);
      dots[i] = dotAdd(wasm_v128_and(v, load(bitsff00)), splat4(x + 4), dotAdd(wasm_i16x8_shl(v, 8), splat4(x), dots[i]));
    }
  }
}

// The codebook as 16-bit integers, low and high bytes looked up apart.
INLINE void dotNf4(const u8 *w, u32 block, const i16 *pairs, v128 *dots) {
  ROLLED for (u32 c = 0; c < block; c += 8, w += 64) {
    const u8 *x = (const u8 *)(pairs + c);
    UNROLLED for (int i = 0; i < 4; i++) {
      v128 v = load(w + i * 16);
      v128 low = wasm_v128_and(v, load(bits0f)), high = wasm_v128_and(wasm_u16x8_shr(v, 4), load(bits0f));
      v128 low0 = lookUp(load(nf4IntegerBytes[0]), low), low1 = lookUp(load(nf4IntegerBytes[1]), low);
      v128 high0 = lookUp(load(nf4IntegerBytes[0]), high), high1 = lookUp(load(nf4IntegerBytes[1]), high);
      dots[i] = dotAdd(evenWords(low0, low1), splat4(x), dots[i]);
      dots[i] = dotAdd(oddWords(low0, low1), splat4(x + 4), dots[i]);
      dots[i] = dotAdd(evenWords(high0, high1), splat4(x + 8), dots[i]);
      dots[i] = dotAdd(oddWords(high0, high1), splat4(x + 12), dots[i]);
    }
  }
}

INLINE void onePass(const int encoding, const Pass *pass) {
  const u8 *w = pass->w;
  const u32 blocks = pass->blocks, block = pass->block, scaleF32 = pass->scaleF32;
  const u32 codes = codeBytes(encoding, block), bytes = blockBytes(encoding, block, scaleF32);
  const Activations x = activationsAt(pass->x, blocks, block);
  v128 sums[4];
  UNROLLED for (int i = 0; i < 4; i++) sums[i] = zero();
  ROLLED for (u32 b = 0; b < blocks; b++, w += bytes) {
    v128 dots[4];
#ifdef RELAXED
    const int times256 = encoding == INT8;
    if (encoding == INT4 || encoding == INT4M) dotFourBit(w, block, x.codes + b * block, x.starts + b, dots);
    else {
      UNROLLED for (int i = 0; i < 4; i++) dots[i] = zero();
    }
    if (encoding == INT4M) {
      const v128 eight = wasm_i32x4_shl(splat4(x.sums + b), 3);
      UNROLLED for (int i = 0; i < 4; i++) dots[i] = wasm_i32x4_add(dots[i], eight);
    }
#else
    const int times256 = encoding == INT4 || encoding == INT4M || encoding == INT8;
    const v128 start = encoding == INT4 ? wasm_i32x4_splat(-8 * 256 * x.sums[b]) : zero();
    UNROLLED for (int i = 0; i < 4; i++) dots[i] = start;
    if (encoding == INT4 || encoding == INT4M) dotFourBit(w, block, x.pairs + b * block, dots);
#endif
    if (encoding == INT8) dotInt8(w, block, x.pairs + b * block, dots);
    if (encoding == NF4) dotNf4(w, block, x.pairs + b * block, dots);
    v128 scale[4];
    loadScales(w + codes, 4, scaleF32, scale);
    const v128 xScale = wasm_v128_load32_splat(x.scales + b);
    UNROLLED for (int i = 0; i < 4; i++) {
      v128 dot = times256 ? wasm_i32x4_shr(dots[i], 8) : dots[i], each = wasm_f32x4_mul(scale[i], xScale);
      if (encoding == NF4) each = wasm_f32x4_mul(each, loadHere(nf4Unit));
      sums[i] = wasm_f32x4_add(sums[i], wasm_f32x4_mul(wasm_f32x4_convert_i32x4(dot), each));
    }
    if (encoding == INT4M) {
      loadScales(w + codes + scaleBytes(scaleF32), 4, scaleF32, scale);
      const v128 xSum = wasm_f32x4_splat(x.scales[b] * (float)x.sums[b]);
      UNROLLED for (int i = 0; i < 4; i++) sums[i] = wasm_f32x4_add(sums[i], wasm_f32x4_mul(scale[i], xSum));
    }
  }
  UNROLLED for (int i = 0; i < 4; i++)
    finishRows(pass->y, i, pass->rows, pass->multiplier, pass->accumulate, pass->alpha, sums[i]);
}

// --- fp8 has no integers: dot products are float32, in column order

// `tokenCount` tokens from t on.
INLINE void float8Pass(const int encoding, const int tokenCount, const Pass *pass, u32 t) {
  const u8 *w = pass->w;
  const u32 blocks = pass->blocks, block = pass->block, scaleF32 = pass->scaleF32, stride = pass->xStride;
  const u32 codes = codeBytes(encoding, block), bytes = blockBytes(encoding, block, scaleF32);
  const Activations x = activationsAt(pass->x + t * stride, blocks, block);
  v128 sums[8]; // index 4·token + register
  UNROLLED for (int i = 0; i < 4 * tokenCount; i++) sums[i] = zero();
  ROLLED for (u32 b = 0; b < blocks; b++, w += bytes) {
    v128 dots[8];
    UNROLLED for (int i = 0; i < 4 * tokenCount; i++) dots[i] = zero();
    const i8 *xb = x.codes + b * block;
    ROLLED for (u32 c = 0; c < block; c += 4) {
      UNROLLED for (int i = 0; i < 4; i++) {
        v128 code[8];
        chunkToFloat(encoding, load(w + c * 16 + i * 16), code);
        UNROLLED for (int n = 0; n < 4; n++) {
          UNROLLED for (int j = 0; j < tokenCount; j++) {
            v128 xc = wasm_f32x4_splat((float)xb[j * stride + c + n]);
            dots[4 * j + i] = wasm_f32x4_add(dots[4 * j + i], wasm_f32x4_mul(code[n], xc));
          }
        }
      }
    }
    v128 scale[4];
    loadScales(w + codes, 4, scaleF32, scale);
    UNROLLED for (int j = 0; j < tokenCount; j++) {
      const v128 xScale = wasm_v128_load32_splat(x.scales + b + j * (stride / 4));
      UNROLLED for (int i = 0; i < 4; i++)
        sums[4 * j + i] = wasm_f32x4_add(sums[4 * j + i], wasm_f32x4_mul(dots[4 * j + i], wasm_f32x4_mul(scale[i], xScale)));
    }
  }
  UNROLLED for (int j = 0; j < tokenCount; j++) {
    UNROLLED for (int i = 0; i < 4; i++)
      finishRows(pass->y + (t + j) * pass->yStride, i, pass->rows, pass->multiplier, pass->accumulate, pass->alpha, sums[4 * j + i]);
  }
}

// --- several tokens

// Tokens together, TILE_TOKENS at most.
INLINE void tilePass(const int encoding, const Pass *pass, u32 tokens, void (*add)(Tile *)) {
  const u32 bytes = blockBytes(encoding, pass->block, pass->scaleF32), step = TILE_BYTES / tileBytes(encoding, pass->block);
  Tile tile;
  tile.block = pass->block;
  tile.tokens = tokens;
  tile.allBlocks = pass->blocks;
  tile.x = pass->x;
  tile.stride = pass->xStride;
  for (u32 i = 0; i < tokens * 4; i++) tile.sums[i] = zero();
  for (u32 b = 0; b < pass->blocks; b += step) {
    tile.first = b;
    tile.blocks = minimum(step, pass->blocks - b);
    fillTile(encoding, &tile, pass->w + b * bytes, pass->scaleF32);
    add(&tile);
  }
  for (u32 t = 0; t < tokens; t++)
    for (u32 q = 0; q < 4; q++)
      finishRows(pass->y + t * pass->yStride, q, pass->rows, pass->multiplier, pass->accumulate, pass->alpha, tile.sums[4 * t + q]);
}

// Two tokens alone are faster than words taken apart for them.
INLINE u32 fewestTogether(const int encoding) {
  return isByteTile(encoding) || encoding == NF4 || encoding >= FP8_E4M3 ? 2 : 4;
}

#define TILES(name) \
  OWN name##One(const Pass *pass) { onePass(name, pass); } \
  OWN name##Add(Tile *tile) { \
    for (u32 t = 0; t < tile->tokens; t += 2) addTile(name, tile, t); \
  } \
  OWN name##Together(const Pass *pass, u32 tokens) { tilePass(name, pass, tokens, name##Add); }
#define FLOATS(name) \
  OWN name##One(const Pass *pass) { float8Pass(name, 1, pass, 0); } \
  OWN name##Two(const Pass *pass, u32 t) { float8Pass(name, 2, pass, t); } \
  OWN name##Together(const Pass *pass, u32 tokens) { \
    for (u32 t = 0; t < tokens; t += 2) name##Two(pass, t); \
  }
TILES(INT8)
TILES(INT4)
TILES(INT4M)
TILES(NF4)
FLOATS(FP8_E4M3)
FLOATS(FP8_E5M2)
#undef TILES
#undef FLOATS

EXPORT(matMulQ)(u32 encoding, const u8 *w, u32 rows, u32 cols, u32 block, u32 scaleF32, float multiplier, const u8 *xq, float *y,
                u32 yStride, u32 tokens, u32 accumulate, float alpha) {
  const u32 blocks = (cols + block - 1) / block;
  const Pass pass = {w, blocks, block, scaleF32, multiplier, xq, quantizedBytes(blocks, block), y, yStride, 0, accumulate, alpha};
#define PANELS(name) \
  if (encoding == name) return eachPanel(name, pass, rows, tokens, fewestTogether(name), TILE_TOKENS, name##One, name##Together);
  PANELS(INT8)
  PANELS(INT4)
  PANELS(INT4M)
  PANELS(NF4)
  PANELS(FP8_E4M3)
  PANELS(FP8_E5M2)
#undef PANELS
  __builtin_trap();
}
