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

// V8 loads everything an iteration needs before it computes: sums and loads together have to fit into 15 registers, or sums wait in
// memory and their chains of additions take twice as long.

// One token: `columns` (a multiple of 8) of one row or more.
INLINE void addRows(const int encoding, const int rowCount, const u8 *w, u32 rowBytes, const float *x, u32 columns, v128 *low, v128 *high) {
  const u32 step = plainBytes(encoding);
  ROLLED for (u32 c = 0; c < columns; c += 8, x += 8, w += 8 * step) {
    v128 x0 = load(x), x1 = load(x + 4);
    UNROLLED for (int r = 0; r < rowCount; r++) {
      low[r] = multiplyAdd(loadPlain4(encoding, w + r * rowBytes), x0, low[r]);
      high[r] = multiplyAdd(loadPlain4(encoding, w + r * rowBytes + 4 * step), x1, high[r]);
    }
  }
}

// Rows that share the activations of four tokens, and of one: the constants that float16 needs take registers.
INLINE int rowsTogether(const int encoding) { return encoding == F16 ? 1 : 2; }
#define ROWS_F32 3
#define ROWS_BF16 3
#define ROWS_F16 2

// Four tokens, one row or two, half of the columns: the first four of every eight from w and x on. Index 4·row + token.
INLINE void addHalf(const int encoding, const int rowCount, const u8 *w0, const u8 *w1, const float *x, u32 xStride, u32 columns, v128 *sums) {
  const u32 step = plainBytes(encoding);
  const float *end = x + columns;
  ROLLED for (; x < end; x += 8, w0 += 8 * step, w1 += 8 * step) {
    v128 a = loadPlain4(encoding, w0), b = rowCount == 2 ? loadPlain4(encoding, w1) : a;
    UNROLLED for (int t = 0; t < 4; t++) {
      v128 xt = load(x + t * xStride);
      sums[t] = multiplyAdd(a, xt, sums[t]);
      if (rowCount == 2) sums[4 + t] = multiplyAdd(b, xt, sums[4 + t]);
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

// One token: several rows at a time keep enough additions in flight.
INLINE void rowsPass(const int encoding, const int rowCount, const RowsPass *pass) {
  const u32 rowBytes = pass->cols * plainBytes(encoding);
  v128 low[3], high[3];
  UNROLLED for (int r = 0; r < rowCount; r++) low[r] = high[r] = zero();
  addRows(encoding, rowCount, pass->w, rowBytes, pass->x, pass->cols & ~7u, low, high);
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
    const int rowCount = rowsTogether(encoding);
    for (u32 r = 0; r < pass->rows; r += rowCount) {
      const u32 s = rowCount == 2 && r + 1 < pass->rows ? r + 1 : r; // an odd last row is computed twice, with the same result
      for (u32 half = 0; half < 2; half++) {
        const u8 *w = pass->w + (from + 4 * half) * plainBytes(encoding);
        v128 both[8], *kept0 = sums[r] + 4 * half, *kept1 = sums[s] + 4 * half;
        UNROLLED for (int t = 0; t < 4; t++) both[t] = kept0[t], both[4 + t] = kept1[t];
        addHalf(encoding, rowCount, w + r * rowBytes, w + s * rowBytes, x + 4 * half, STRETCH, columns, both);
        UNROLLED for (int t = 0; t < 4; t++) {
          kept0[t] = both[t];
          if (rowCount == 2) kept1[t] = both[4 + t];
        }
      }
    }
  }
  for (u32 r = 0; r < pass->rows; r++)
    finishRow(encoding, 4, pass, pass->w + r * rowBytes, pass->y + r, sums[r], sums[r] + 4);
}

INLINE void eachRows(const int encoding, const u32 several, RowsPass pass, u32 rows, u32 tokens, RowsFunction one, RowsFunction severalRows,
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
    const u32 count = r + several <= rows ? several : 1;
    pass.w = start.w + r * rowBytes;
    for (u32 t = together; t < tokens; t++) {
      pass.x = start.x + t * start.xStride;
      pass.y = start.y + t * start.yStride + r;
      if (count == several) severalRows(&pass);
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

// One panel, one token.
INLINE void panelPass(const int encoding, const Pass *pass) {
  const u8 *w = pass->w;
  const float *x = (const float *)pass->x;
  const u32 blocks = pass->blocks, block = pass->block, scaleF32 = pass->scaleF32;
  const u32 codes = codeBytes(encoding, block), bytes = blockBytes(encoding, block, scaleF32);
  const int columns = (int)chunkColumns(encoding);
  v128 sums[4];
  UNROLLED for (int i = 0; i < 4; i++) sums[i] = zero();
  ROLLED for (u32 b = 0; b < blocks; b++, w += bytes) {
    v128 parts[4];
    UNROLLED for (int i = 0; i < 4; i++) parts[i] = zero();
    const float *xb = x + b * block;
    ROLLED for (u32 at = 0; at < codes; at += 64, xb += columns) {
      UNROLLED for (int i = 0; i < 4; i++) {
        v128 code[8];
        chunkToFloat(encoding, load(w + at + i * 16), code);
        UNROLLED for (int c = 0; c < columns; c++) parts[i] = multiplyAdd(code[c], wasm_v128_load32_splat(xb + c), parts[i]);
      }
    }
    v128 scale[4];
    loadScales(w + codes, 4, scaleF32, scale);
    UNROLLED for (int i = 0; i < 4; i++) sums[i] = multiplyAdd(scale[i], parts[i], sums[i]);
    if (encoding == INT4M) {
      loadScales(w + codes + scaleBytes(scaleF32), 4, scaleF32, scale);
      const v128 total = wasm_f32x4_splat(blockSum(x + b * block, block));
      UNROLLED for (int i = 0; i < 4; i++) sums[i] = multiplyAdd(scale[i], total, sums[i]);
    }
  }
  UNROLLED for (int i = 0; i < 4; i++)
    finishRows(pass->y, i, pass->rows, pass->multiplier, pass->accumulate, pass->alpha, sums[i]);
}

// --- panels, several tokens: a stretch of the panel becomes float32 once, then every token meets it; each sum takes the steps of
// panelPass in the same order

#define STRETCH_FLOATS 512 // a tile: 16 rows, 32 columns
#define GROUP_TOKENS 24

typedef struct {
  v128 codes[STRETCH_FLOATS / 4]; // 64 bytes a column
  v128 scales[4], minima[4];      // of the block
  v128 parts[GROUP_TOKENS * 4], sums[GROUP_TOKENS * 4];
  u32 first, ends;                // whether the stretch begins a block, and whether it ends one
  u32 tokens;
  const float *x; // activations of the first token in the stretch
  u32 xStride, block;
} FloatTile;

INLINE void fillFloats(const int encoding, FloatTile *tile, const u8 *w) {
  const int columns = (int)chunkColumns(encoding);
  v128 *out = tile->codes;
  ROLLED for (u32 c = 0; c < 32; c += columns, w += 64, out += columns * 4) {
    UNROLLED for (int q = 0; q < 4; q++) {
      v128 code[8];
      chunkToFloat(encoding, load(w + q * 16), code);
      UNROLLED for (int i = 0; i < columns; i++) out[4 * i + q] = code[i];
    }
  }
}

// Two tokens from t on.
INLINE void addFloats(FloatTile *tile, const int hasMinima, u32 t) {
  const float *x0 = tile->x + t * tile->xStride, *x1 = x0 + tile->xStride, *end = x0 + 32;
  v128 *kept = tile->parts + 4 * t, *sums = tile->sums + 4 * t;
  v128 parts[8]; // index 4·token + register
  UNROLLED for (int i = 0; i < 8; i++) parts[i] = tile->first ? zero() : kept[i];
  const v128 *codes = tile->codes;
  ROLLED for (; x0 < end; x0++, x1++, codes += 4) {
    v128 a = wasm_v128_load32_splat(x0), b = wasm_v128_load32_splat(x1);
    UNROLLED for (int i = 0; i < 4; i++) {
      v128 code = codes[i];
      parts[i] = multiplyAdd(code, a, parts[i]);
      parts[4 + i] = multiplyAdd(code, b, parts[4 + i]);
    }
  }
  if (!tile->ends) {
    UNROLLED for (int i = 0; i < 8; i++) kept[i] = parts[i];
    return;
  }
  UNROLLED for (int i = 0; i < 8; i++) sums[i] = multiplyAdd(tile->scales[i & 3], parts[i], sums[i]);
  if (hasMinima) {
    UNROLLED for (int j = 0; j < 2; j++) {
      v128 total = wasm_f32x4_splat(blockSum((j == 0 ? x0 : x1) - tile->block, tile->block));
      UNROLLED for (int i = 0; i < 4; i++) sums[4 * j + i] = multiplyAdd(tile->minima[i], total, sums[4 * j + i]);
    }
  }
}
OWN addFloatTile(FloatTile *tile) {
  for (u32 t = 0; t < tile->tokens; t += 2) addFloats(tile, 0, t);
}
OWN addFloatTileMinima(FloatTile *tile) {
  for (u32 t = 0; t < tile->tokens; t += 2) addFloats(tile, 1, t);
}

// An even number of tokens, GROUP_TOKENS at most.
INLINE void panelTogether(const int encoding, const Pass *pass, u32 tokens) {
  const u32 block = pass->block, codes = codeBytes(encoding, block), bytes = blockBytes(encoding, block, pass->scaleF32);
  FloatTile tile;
  tile.tokens = tokens;
  tile.x = (const float *)pass->x;
  tile.xStride = pass->xStride / 4;
  tile.block = block;
  for (u32 i = 0; i < tokens * 4; i++) tile.sums[i] = zero();
  const u8 *w = pass->w;
  for (u32 b = 0; b < pass->blocks; b++, w += bytes) {
    loadScales(w + codes, 4, pass->scaleF32, tile.scales);
    if (encoding == INT4M) loadScales(w + codes + scaleBytes(pass->scaleF32), 4, pass->scaleF32, tile.minima);
    for (u32 c = 0; c < block; c += 32, tile.x += 32) {
      tile.first = c == 0;
      tile.ends = c + 32 == block;
      fillFloats(encoding, &tile, w + codes / block * c);
      if (encoding == INT4M) addFloatTileMinima(&tile);
      else addFloatTile(&tile);
    }
  }
  for (u32 t = 0; t < tokens; t++)
    for (u32 q = 0; q < 4; q++)
      finishRows(pass->y + t * pass->yStride, q, pass->rows, pass->multiplier, pass->accumulate, pass->alpha, tile.sums[4 * t + q]);
}

#define ROWS(name) \
  OWN name##One(const RowsPass *pass) { rowsPass(name, 1, pass); } \
  OWN name##SeveralRows(const RowsPass *pass) { rowsPass(name, ROWS_##name, pass); } \
  OWN name##FourTokens(const RowsPass *pass) { tokensPass(name, pass); }
#define PANELS(name) \
  OWN name##One(const Pass *pass) { panelPass(name, pass); } \
  OWN name##Together(const Pass *pass, u32 tokens) { panelTogether(name, pass, tokens); }
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
  if (encoding == name) return eachRows(name, ROWS_##name, pass, rows, tokens, name##One, name##SeveralRows, name##FourTokens);
    ROWS(F32)
    ROWS(F16)
    ROWS(BF16)
#undef ROWS
  }
  const u32 blocks = (cols + block - 1) / block;
  const Pass pass = {w, blocks, block, scaleF32, multiplier, (const u8 *)x, xStride * 4, y, yStride, 0, accumulate, alpha};
#define PANELS(name) \
  if (encoding == name) return eachPanel(name, pass, rows, tokens, 2, GROUP_TOKENS, name##One, name##Together);
  PANELS(INT8)
  PANELS(INT4)
  PANELS(INT4M)
  PANELS(NF4)
  PANELS(FP8_E4M3)
  PANELS(FP8_E5M2)
  __builtin_trap();
}
