// Weights to float32 rows. Four codes of a row lie side by side, so a row is read back four columns at a time.
#include "panel.h"

INLINE void decodeRows(const int encoding, const u8 *w, u32 rows, u32 cols, float *out, u32 outStride) {
  const u32 step = plainBytes(encoding);
  for (u32 r = 0; r < rows; r++, w += cols * step, out += outStride) {
    u32 c = 0;
    for (; c + 4 <= cols; c += 4)
      wasm_v128_store(out + c, encoding == F16 ? loadHalf4(w + c * step) : loadPlain4(encoding, w + c * step));
    for (; c < cols; c++) {
      v128 one = encoding == F32 ? wasm_v128_load32_zero(w + c * step) : wasm_i32x4_extend_low_i16x8(wasm_v128_load16_splat(w + c * step));
      if (encoding == F16) one = halfToFloat(one);
      if (encoding == BF16) one = wasm_i32x4_shl(one, 16);
      out[c] = wasm_f32x4_extract_lane(one, 0);
    }
  }
}

// Four bytes, one code each → floats.
INLINE v128 codesToFloat(const int encoding, v128 bytes) {
  v128 top = wasm_i32x4_shl(wasm_u32x4_extend_low_u16x8(wasm_u16x8_extend_low_u8x16(bytes)), 24);
  if (encoding == NF4) {
    v128 v = wasm_v128_load32_splat(nf4Values + wasm_u8x16_extract_lane(bytes, 0));
    v = wasm_v128_load32_lane(nf4Values + wasm_u8x16_extract_lane(bytes, 1), v, 1);
    v = wasm_v128_load32_lane(nf4Values + wasm_u8x16_extract_lane(bytes, 2), v, 2);
    return wasm_v128_load32_lane(nf4Values + wasm_u8x16_extract_lane(bytes, 3), v, 3);
  }
  if (encoding == INT4 || encoding == INT4M) {
    v128 code = wasm_i32x4_shr(top, 24);
    return wasm_f32x4_convert_i32x4(encoding == INT4 ? wasm_i32x4_sub(code, wasm_i32x4_const_splat(8)) : code);
  }
  return byteToFloat(encoding, top);
}

// As loadScales, but a NaN stays one.
INLINE v128 exactScales(const u8 *p, u32 q, u32 scaleF32) { return scaleF32 ? load(p + q * 16) : loadHalf4(p + q * 8); }

INLINE void storeColumns(float *out, u32 columns, v128 v) {
  if (columns >= 4) wasm_v128_store(out, v);
  else storeTail(out, v, columns);
}

INLINE void decodePanels(const int encoding, const u8 *w, u32 rows, u32 cols, u32 block, u32 scaleF32, float multiplier, float *out,
                         u32 outStride) {
  const u32 codes = codeBytes(encoding, block), bytes = blockBytes(encoding, block, scaleF32), chunk = chunkColumns(encoding);
  const v128 unit = wasm_f32x4_splat(multiplier);
  for (u32 first = 0; first < rows; first += 16) {
    const u32 inPanel = minimum(16, rows - first);
    for (u32 from = 0; from < cols; from += block, w += bytes) {
      float scales[16], minima[16];
      for (u32 q = 0; q < 4; q++) {
        wasm_v128_store(scales + 4 * q, wasm_f32x4_mul(exactScales(w + codes, q, scaleF32), unit));
        if (encoding == INT4M) wasm_v128_store(minima + 4 * q, wasm_f32x4_mul(exactScales(w + codes + scaleBytes(scaleF32), q, scaleF32), unit));
      }
      const u32 to = minimum(from + block, cols);
      for (u32 r = 0; r < inPanel; r++) {
        float *row = out + (first + r) * outStride;
        const v128 scale = wasm_f32x4_splat(scales[r]);
        const v128 least = encoding == INT4M ? wasm_f32x4_splat(minima[r]) : zero();
        const u8 *p = w + r * 4;
        for (u32 c = from; c < to; c += chunk, p += 64) {
          v128 v = wasm_v128_load32_zero(p);
          v128 low = isFourBit(encoding) ? wasm_v128_and(v, load(bits0f)) : v;
          v128 value = wasm_f32x4_mul(scale, codesToFloat(encoding, low));
          storeColumns(row + c, to - c, encoding == INT4M ? wasm_f32x4_add(value, least) : value);
          if (isFourBit(encoding) && c + 4 < to) {
            value = wasm_f32x4_mul(scale, codesToFloat(encoding, wasm_v128_and(wasm_u16x8_shr(v, 4), load(bits0f))));
            storeColumns(row + c + 4, to - c - 4, encoding == INT4M ? wasm_f32x4_add(value, least) : value);
          }
        }
      }
    }
  }
}

EXPORT(decode)(u32 encoding, const u8 *w, u32 rows, u32 cols, u32 block, u32 scaleF32, float multiplier, float *out, u32 outStride) {
  switch (encoding) {
#define ROWS(name) \
  case name: decodeRows(name, w, rows, cols, out, outStride); return;
#define PANELS(name) \
  case name: decodePanels(name, w, rows, cols, block, scaleF32, multiplier, out, outStride); return;
    ROWS(F32) ROWS(F16) ROWS(BF16)
    PANELS(INT8) PANELS(INT4) PANELS(INT4M) PANELS(NF4) PANELS(FP8_E4M3) PANELS(FP8_E5M2)
  }
  __builtin_trap();
}
