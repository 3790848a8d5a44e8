// Mat-mul over float32 activations. One call of an inner function computes whole dot products, each in the order of
// src/kernels/scalar/matmul.ts; how many rows and tokens share a pass never changes that order.
#include "panel.h"

// --- plain rows: two registers of partial sums a row and token, column c in lane c mod 8

// Some rows against some tokens.
typedef struct {
  const u8 *w;
  u32 cols;
  const float *x;
  u32 xStride;
  float *y;
  u32 yStride, accumulate;
  float alpha;
} RowsPass;

typedef void (*RowsFunction)(const RowsPass *);

INLINE void rowsPass(const int encoding, const int rowCount, const int tokenCount, const RowsPass *pass) {
  const u8 *w = pass->w;
  const float *x = pass->x;
  const u32 cols = pass->cols, xStride = pass->xStride, rowBytes = cols * plainBytes(encoding);
  v128 low[4], high[4]; // index row·tokenCount + token
  UNROLLED for (int i = 0; i < rowCount * tokenCount; i++) low[i] = high[i] = zero();
  const u32 step = plainBytes(encoding);
  u32 c = 0;
  ROLLED for (; c + 8 <= cols; c += 8) {
    UNROLLED for (int r = 0; r < rowCount; r++) {
      v128 w0 = loadPlain4(encoding, w + r * rowBytes + c * step);
      v128 w1 = loadPlain4(encoding, w + r * rowBytes + (c + 4) * step);
      UNROLLED for (int t = 0; t < tokenCount; t++) {
        low[r * tokenCount + t] = multiplyAdd(w0, load(x + t * xStride + c), low[r * tokenCount + t]);
        high[r * tokenCount + t] = multiplyAdd(w1, load(x + t * xStride + c + 4), high[r * tokenCount + t]);
      }
    }
  }
  // Activations are padded with zeros, weights are not.
  UNROLLED for (int r = 0; r < rowCount; r++) {
    const u8 *tail = w + r * rowBytes + c * step;
    const u32 left = cols - c;
    if (left == 0) break;
    v128 w0 = left >= 4 ? loadPlain4(encoding, tail) : loadPlainTail(encoding, tail, left);
    v128 w1 = left > 4 ? loadPlainTail(encoding, tail + 4 * step, left - 4) : zero();
    UNROLLED for (int t = 0; t < tokenCount; t++) {
      low[r * tokenCount + t] = multiplyAdd(w0, load(x + t * xStride + c), low[r * tokenCount + t]);
      high[r * tokenCount + t] = multiplyAdd(w1, load(x + t * xStride + c + 4), high[r * tokenCount + t]);
    }
  }
  UNROLLED for (int r = 0; r < rowCount; r++) {
    UNROLLED for (int t = 0; t < tokenCount; t++) {
      int i = r * tokenCount + t;
      finish(pass->y + t * pass->yStride + r, pass->accumulate, pass->alpha, sum4(wasm_f32x4_add(low[i], high[i])));
    }
  }
}

// Four rows a pass keep enough additions in flight for one token; four tokens a pass share the decoding of weights.
INLINE void eachRows(const int encoding, RowsPass pass, u32 rows, u32 tokens, RowsFunction one, RowsFunction fourRows,
                     RowsFunction fourTokens) {
  const u32 rowBytes = pass.cols * plainBytes(encoding);
  const float *x = pass.x;
  const u32 together = tokens < 4 ? 4 : 1;
  for (u32 r = 0; r < rows;) {
    const u32 count = r + together <= rows ? together : 1;
    float *y = pass.y;
    pass.x = x;
    u32 t = 0;
    for (; t + 4 <= tokens; t += 4, pass.x += 4 * pass.xStride, pass.y += 4 * pass.yStride) fourTokens(&pass);
    for (; t < tokens; t++, pass.x += pass.xStride, pass.y += pass.yStride) count == 4 ? fourRows(&pass) : one(&pass);
    pass.y = y + count;
    pass.w += count * rowBytes;
    r += count;
  }
}

// --- panels: lanes are rows, so no sum over lanes is ever needed

// Sum of a block's activations: column c in lane c mod 4.
INLINE float blockSum(const float *x, u32 block) {
  v128 sum = zero();
  ROLLED for (u32 c = 0; c < block; c += 4) sum = wasm_f32x4_add(sum, load(x + c));
  return sum4(sum);
}

// Registers q…q+registers-1 (four rows each) of one panel, `tokenCount` tokens.
INLINE void panelPass(const int encoding, const int registers, const int tokenCount, const Pass *pass) {
  const u8 *w = pass->w + pass->q * 16; // codes of the first register
  const float *x = (const float *)pass->x;
  const u32 blocks = pass->blocks, block = pass->block, scaleF32 = pass->scaleF32, xStride = pass->xStride / 4;
  v128 sums[8]; // index register·tokenCount + token
  UNROLLED for (int i = 0; i < registers * tokenCount; i++) sums[i] = zero();
  const u32 codes = codeBytes(encoding, block), bytes = blockBytes(encoding, block, scaleF32);
  const u8 *scales = pass->w + codes + pass->q * (scaleF32 ? 16 : 8);
  const int columns = (int)chunkColumns(encoding);
  ROLLED for (u32 b = 0; b < blocks; b++) {
    v128 parts[8];
    UNROLLED for (int i = 0; i < registers * tokenCount; i++) parts[i] = zero();
    const float *xb = x + b * block;
    ROLLED for (u32 at = 0; at < codes; at += 64) {
      UNROLLED for (int i = 0; i < registers; i++) {
        v128 code[8];
        chunkToFloat(encoding, load(w + at + i * 16), code);
        UNROLLED for (int c = 0; c < columns; c++) {
          UNROLLED for (int t = 0; t < tokenCount; t++) {
            v128 xc = wasm_v128_load32_splat(xb + t * xStride + c);
            parts[i * tokenCount + t] = multiplyAdd(code[c], xc, parts[i * tokenCount + t]);
          }
        }
      }
      xb += columns;
    }
    v128 scale[4];
    loadScales(scales, registers, scaleF32, scale);
    UNROLLED for (int i = 0; i < registers; i++) {
      UNROLLED for (int t = 0; t < tokenCount; t++)
        sums[i * tokenCount + t] = multiplyAdd(scale[i], parts[i * tokenCount + t], sums[i * tokenCount + t]);
    }
    if (encoding == INT4M) {
      loadScales(scales + scaleBytes(scaleF32), registers, scaleF32, scale);
      UNROLLED for (int t = 0; t < tokenCount; t++) {
        v128 total = wasm_f32x4_splat(blockSum(x + t * xStride + b * block, block));
        UNROLLED for (int i = 0; i < registers; i++)
          sums[i * tokenCount + t] = multiplyAdd(scale[i], total, sums[i * tokenCount + t]);
      }
    }
    w += bytes;
    scales += bytes;
  }
  UNROLLED for (int i = 0; i < registers; i++) {
    UNROLLED for (int t = 0; t < tokenCount; t++)
      finishRows(pass->y + t * pass->yStride, pass->q + i, pass->rows, pass->multiplier, pass->accumulate, pass->alpha, sums[i * tokenCount + t]);
  }
}

#define ROWS(name) \
  OWN name##One(const RowsPass *pass) { rowsPass(name, 1, 1, pass); } \
  OWN name##FourRows(const RowsPass *pass) { rowsPass(name, 4, 1, pass); } \
  OWN name##FourTokens(const RowsPass *pass) { rowsPass(name, 1, 4, pass); }
#define PANELS(name) \
  OWN name##One(const Pass *pass) { panelPass(name, 4, 1, pass); } \
  OWN name##Four(const Pass *pass) { panelPass(name, 2, 4, pass); }
ROWS(F32)
ROWS(F16)
ROWS(BF16)
PANELS(INT8)
PANELS(INT4)
PANELS(INT4M)
PANELS(NF4)
PANELS(FP8_E4M3)
PANELS(FP8_E5M2)
#undef ROWS
#undef PANELS

EXPORT(matMul)(u32 encoding, const u8 *w, u32 rows, u32 cols, u32 block, u32 scaleF32, float multiplier, const float *x,
               u32 xStride, float *y, u32 yStride, u32 tokens, u32 accumulate, float alpha) {
  if (encoding <= BF16) {
    const RowsPass pass = {w, cols, x, xStride, y, yStride, accumulate, alpha};
#define ROWS(name) \
  if (encoding == name) return eachRows(name, pass, rows, tokens, name##One, name##FourRows, name##FourTokens);
    ROWS(F32)
    ROWS(F16)
    ROWS(BF16)
  }
  const u32 blocks = (cols + block - 1) / block;
  const Pass pass = {w, 0, blocks, block, scaleF32, multiplier, (const u8 *)x, xStride * 4, y, yStride, 0, accumulate, alpha};
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
