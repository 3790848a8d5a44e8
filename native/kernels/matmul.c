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
  u32 rows; // of tokensPass
} RowsPass;

typedef void (*RowsFunction)(const RowsPass *);

// `columns` (a multiple of 8) from w and x on, of one row or more, to the partial sums of index row·tokenCount + token.
INLINE void addColumns(const int encoding, const int rowCount, const int tokenCount, const u8 *w, u32 rowBytes, const float *x,
                       u32 xStride, u32 columns, v128 *low, v128 *high) {
  const u32 step = plainBytes(encoding);
  ROLLED for (u32 c = 0; c < columns; c += 8, x += 8, w += 8 * step) {
    UNROLLED for (int r = 0; r < rowCount; r++) {
      v128 w0 = loadPlain4(encoding, w + r * rowBytes), w1 = loadPlain4(encoding, w + r * rowBytes + 4 * step);
      UNROLLED for (int t = 0; t < tokenCount; t++) {
        const int i = r * tokenCount + t;
        low[i] = multiplyAdd(w0, load(x + t * xStride), low[i]);
        high[i] = multiplyAdd(w1, load(x + t * xStride + 4), high[i]);
        if (tokenCount > 1) loadsStay();
      }
    }
  }
}

// The last cols mod 8 columns of one row, then its result. Activations are padded with zeros, weights are not.
INLINE void finishRow(const int encoding, const int tokenCount, const RowsPass *pass, const u8 *w, float *y, v128 *low, v128 *high) {
  const u32 left = pass->cols % 8, step = plainBytes(encoding);
  if (left > 0) {
    const u8 *tail = w + (pass->cols - left) * step;
    const float *x = pass->x + (pass->cols - left);
    v128 w0 = left >= 4 ? loadPlain4(encoding, tail) : loadPlainTail(encoding, tail, left);
    v128 w1 = left > 4 ? loadPlainTail(encoding, tail + 4 * step, left - 4) : zero();
    UNROLLED for (int t = 0; t < tokenCount; t++) {
      low[t] = multiplyAdd(w0, load(x + t * pass->xStride), low[t]);
      high[t] = multiplyAdd(w1, load(x + t * pass->xStride + 4), high[t]);
    }
  }
  UNROLLED for (int t = 0; t < tokenCount; t++)
    finish(y + t * pass->yStride, pass->accumulate, pass->alpha, sum4(wasm_f32x4_add(low[t], high[t])));
}

// One token: four rows at a time keep enough additions in flight.
INLINE void rowsPass(const int encoding, const int rowCount, const RowsPass *pass) {
  const u32 rowBytes = pass->cols * plainBytes(encoding);
  v128 low[4], high[4];
  UNROLLED for (int r = 0; r < rowCount; r++) low[r] = high[r] = zero();
  addColumns(encoding, rowCount, 1, pass->w, rowBytes, pass->x, 0, pass->cols & ~7u, low, high);
  UNROLLED for (int r = 0; r < rowCount; r++)
    finishRow(encoding, 1, pass, pass->w + r * rowBytes, pass->y + r, low + r, high + r);
}

// Four tokens share the decoding of weights; a group of rows shares a stretch of activations, copied side by side: rows of activations
// are often a power of two apart and would push each other out of the first-level cache. Partial sums wait on the stack meanwhile.
#define GROUP_ROWS 12
#define STRETCH 256

INLINE void tokensPass(const int encoding, const RowsPass *pass) {
  const u32 rowBytes = pass->cols * plainBytes(encoding), whole = pass->cols & ~7u;
  v128 sums[GROUP_ROWS][8];
  float x[4 * STRETCH];
  for (u32 r = 0; r < pass->rows; r++) {
    UNROLLED for (int i = 0; i < 8; i++) sums[r][i] = zero();
  }
  for (u32 from = 0; from < whole; from += STRETCH) {
    const u32 columns = minimum(STRETCH, whole - from);
    for (u32 t = 0; t < 4; t++)
      for (u32 c = 0; c < columns; c += 4) wasm_v128_store(x + t * STRETCH + c, load(pass->x + t * pass->xStride + from + c));
    for (u32 r = 0; r < pass->rows; r++) {
      v128 low[4], high[4];
      UNROLLED for (int t = 0; t < 4; t++) low[t] = sums[r][t], high[t] = sums[r][4 + t];
      addColumns(encoding, 1, 4, pass->w + r * rowBytes + from * plainBytes(encoding), rowBytes, x, STRETCH, columns, low, high);
      UNROLLED for (int t = 0; t < 4; t++) sums[r][t] = low[t], sums[r][4 + t] = high[t];
    }
  }
  for (u32 r = 0; r < pass->rows; r++)
    finishRow(encoding, 4, pass, pass->w + r * rowBytes, pass->y + r, sums[r], sums[r] + 4);
}

INLINE void eachRows(const int encoding, RowsPass pass, u32 rows, u32 tokens, RowsFunction one, RowsFunction fourRows,
                     RowsFunction fourTokens) {
  const RowsPass start = pass;
  const u32 rowBytes = pass.cols * plainBytes(encoding), together = tokens & ~3u;
  if (together > 0)
    for (u32 r = 0; r < rows; r += GROUP_ROWS) {
      pass.rows = minimum(GROUP_ROWS, rows - r);
      pass.w = start.w + r * rowBytes;
      for (u32 t = 0; t < together; t += 4) {
        pass.x = start.x + t * start.xStride;
        pass.y = start.y + t * start.yStride + r;
        fourTokens(&pass);
      }
    }
  for (u32 r = 0; r < rows;) {
    const u32 count = r + 4 <= rows ? 4 : 1;
    pass.w = start.w + r * rowBytes;
    for (u32 t = together; t < tokens; t++) {
      pass.x = start.x + t * start.xStride;
      pass.y = start.y + t * start.yStride + r;
      if (count == 4) fourRows(&pass);
      else one(&pass);
    }
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
  OWN name##One(const RowsPass *pass) { rowsPass(name, 1, pass); } \
  OWN name##FourRows(const RowsPass *pass) { rowsPass(name, 4, pass); } \
  OWN name##FourTokens(const RowsPass *pass) { tokensPass(name, pass); }
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
    const RowsPass pass = {w, cols, x, xStride, y, yStride, accumulate, alpha, 0};
#define ROWS(name) \
  if (encoding == name) return eachRows(name, pass, rows, tokens, name##One, name##FourRows, name##FourTokens);
    ROWS(F32)
    ROWS(F16)
    ROWS(BF16)
#undef ROWS
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
