// Several tokens against a panel of integer codes. A stretch of the panel is taken apart once, into bytes or words that dot products
// read as they are, then every token meets it. Sums wait in memory between stretches; each is the sum that one token alone would have.
#pragma once
#include "activations.h"
#include "panel.h"

// Tokens that share a stretch, and its size; both live on the stack (8 KiB).
#define TILE_TOKENS 32
#define TILE_BYTES 2048

// A stretch against the tokens of a group.
typedef struct {
  v128 codes[TILE_BYTES / 16];
  v128 scales[4 * 4]; // float32, of each block
  v128 minima[4 * 4]; // int4m
  v128 sums[TILE_TOKENS * 4];
  u32 blocks;    // of the stretch
  u32 block;     // columns of each
  u32 tokens;    // of the group
  u32 first;     // block of the panel that the stretch begins with
  u32 allBlocks; // of the panel
  const u8 *x;   // quantized activations of the first token
  u32 stride;    // of tokens, bytes
} Tile;

#ifdef RELAXED
INLINE int isByteTile(const int encoding) { return encoding == INT4 || encoding == INT4M; }
#else
INLINE int isByteTile(const int encoding) { return encoding < 0; }
#endif

// Bytes of a tile that a block of 32 columns takes.
INLINE u32 tileBytes(const int encoding, u32 block) { return block * (isByteTile(encoding) ? 16 : 32); }

// Takes the blocks of a stretch apart. Bytes: four columns of 16 rows in 64 bytes, codes 0…15. Words: columns 0 and 2, then columns 1
// and 3, each in 64 bytes, the order of Activations.pairs.
INLINE void fillTile(const int encoding, Tile *tile, const u8 *w, u32 scaleF32) {
  const u32 codes = codeBytes(encoding, tile->block), bytes = blockBytes(encoding, tile->block, scaleF32);
  v128 *out = tile->codes;
  for (u32 b = 0; b < tile->blocks; b++, w += bytes) {
    ROLLED for (u32 at = 0; at < codes; at += 64) {
      UNROLLED for (int q = 0; q < 4; q++) {
        v128 v = load(w + at + q * 16);
        if (encoding == INT8) {
          out[q] = wasm_i16x8_shr(wasm_i16x8_shl(v, 8), 8);
          out[q + 4] = wasm_i16x8_shr(v, 8);
          continue;
        }
        v128 low = wasm_v128_and(v, load(bits0f)), high = wasm_v128_and(wasm_u16x8_shr(v, 4), load(bits0f));
        if (isByteTile(encoding)) {
          out[q] = low;
          out[q + 4] = high;
        } else if (encoding == NF4) {
          v128 low0 = lookUp(load(nf4IntegerBytes[0]), low), low1 = lookUp(load(nf4IntegerBytes[1]), low);
          v128 high0 = lookUp(load(nf4IntegerBytes[0]), high), high1 = lookUp(load(nf4IntegerBytes[1]), high);
          out[q] = evenWords(low0, low1);
          out[q + 4] = oddWords(low0, low1);
          out[q + 8] = evenWords(high0, high1);
          out[q + 12] = oddWords(high0, high1);
        } else {
          out[q] = wasm_v128_and(low, load(bits00ff));
          out[q + 4] = wasm_u16x8_shr(low, 8);
          out[q + 8] = wasm_v128_and(high, load(bits00ff));
          out[q + 12] = wasm_u16x8_shr(high, 8);
        }
      }
      out += isByteTile(encoding) || encoding == INT8 ? 8 : 16;
    }
    loadScales(w + codes, 4, scaleF32, tile->scales + 4 * b);
    if (encoding == INT4M) loadScales(w + codes + scaleBytes(scaleF32), 4, scaleF32, tile->minima + 4 * b);
  }
}

// Two tokens from t on. Eight sums, four registers of codes and two of activations fit into V8's registers; more would not.
INLINE void addTile(const int encoding, Tile *tile, u32 t) {
  const u32 block = tile->block, stride = tile->stride, words = stride / 4, end = tile->first + tile->blocks;
  const Activations x = activationsAt(tile->x + t * stride, tile->allBlocks, block);
  const v128 *codes = tile->codes, *scales = tile->scales, *minima = tile->minima;
  v128 *sums = tile->sums + 4 * t; // index 4·token + register of rows
  ROLLED for (u32 b = tile->first; b < end; b++, scales += 4, minima += 4) {
    loadsStay();
    v128 dots[8]; // as sums
    if (isByteTile(encoding)) {
      // Sixteen-bit sums start at -8·Σx: what they end with is at most 32 · 8 · 127 < 2^15, whatever happens on the way.
      UNROLLED for (int i = 0; i < 8; i++) dots[i] = splat4(x.starts + b + (i / 4) * words);
      const i8 *x0 = x.codes + b * block, *x1 = x0 + stride, *stop = x0 + block;
      ROLLED for (; x0 < stop; x0 += 4, x1 += 4, codes += 4) {
        const v128 both[2] = {splat4(x0), splat4(x1)};
        UNROLLED for (int i = 0; i < 4; i++) {
          dots[i] = wasm_i16x8_add(dots[i], dotBytes(both[0], codes[i]));
          dots[4 + i] = wasm_i16x8_add(dots[4 + i], dotBytes(both[1], codes[i]));
        }
      }
      UNROLLED for (int i = 0; i < 8; i++) dots[i] = wasm_i32x4_extadd_pairwise_i16x8(dots[i]);
    } else {
      UNROLLED for (int i = 0; i < 8; i++) dots[i] = zero();
      const i16 *x0 = x.pairs + b * block, *x1 = x0 + stride / 2, *stop = x0 + block;
      ROLLED for (; x0 < stop; x0 += 2, x1 += 2, codes += 4) {
        const v128 both[2] = {splat4(x0), splat4(x1)};
        UNROLLED for (int i = 0; i < 4; i++) {
          dots[i] = dotAdd(codes[i], both[0], dots[i]);
          dots[4 + i] = dotAdd(codes[i], both[1], dots[4 + i]);
        }
      }
    }
    loadsStay();
    UNROLLED for (int j = 0; j < 2; j++) {
      const u32 n = b + j * words;
      const v128 xScale = splat4(x.scales + n), xCodes = splat4(x.sums + n), eight = wasm_i32x4_shl(xCodes, 3);
      const v128 xSum = wasm_f32x4_mul(xScale, wasm_f32x4_convert_i32x4(xCodes));
      UNROLLED for (int i = 0; i < 4; i++) {
        v128 dot = dots[4 * j + i];
        // Bytes of int4m are code - 8 by their start, words of int4 are the plain code.
        if (encoding == INT4M && isByteTile(encoding)) dot = wasm_i32x4_add(dot, eight);
        if (encoding == INT4 && !isByteTile(encoding)) dot = wasm_i32x4_sub(dot, eight);
        v128 each = wasm_f32x4_mul(scales[i], xScale);
        if (encoding == NF4) each = wasm_f32x4_mul(each, loadHere(nf4Unit));
        v128 sum = wasm_f32x4_add(sums[4 * j + i], wasm_f32x4_mul(wasm_f32x4_convert_i32x4(dot), each));
        if (encoding == INT4M) sum = wasm_f32x4_add(sum, wasm_f32x4_mul(minima[i], xSum));
        sums[4 * j + i] = sum;
      }
    }
  }
}
