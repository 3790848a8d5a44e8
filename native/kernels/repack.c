// ggml rows to row panels: the same codes and scales in another order. Q4_0: binary16 scale, then 16 bytes, byte i = element i low,
// element i + 16 high. Q8_0: binary16 scale, then 32 signed bytes. Rows that do not exist become zero bytes.
#include "simd.h"

typedef struct __attribute__((packed)) {
  u16 value;
} Unaligned16;
typedef struct __attribute__((packed)) {
  u32 value;
} Unaligned32;

INLINE void copy16(u8 *to, const u8 *from, u32 exists) { ((Unaligned16 *)to)->value = exists ? ((const Unaligned16 *)from)->value : 0; }
INLINE u32 read32(const u8 *p) { return ((const Unaligned32 *)p)->value; }
INLINE void write32(u8 *p, u32 value) { ((Unaligned32 *)p)->value = value; }

EXPORT(repackQ4_0)(const u8 *src, u8 *dst, u32 rows, u32 cols) {
  const u32 blocks = cols / 32;
  for (u32 first = 0; first < rows; first += 16)
    for (u32 b = 0; b < blocks; b++, dst += 288)
      for (u32 r = 0; r < 16; r++) {
        const u32 exists = first + r < rows;
        const u8 *from = src + ((first + r) * blocks + b) * 18;
        for (u32 c = 0; c < 4; c++) {
          // Columns 8c…8c+3 and 8c+4…8c+7 are eight bytes of the block, in their low nibbles for c < 2, else in their high ones.
          u32 bytes = 0;
          if (exists) {
            const u32 shift = c < 2 ? 0 : 4;
            const u32 left = read32(from + 2 + (c & 1) * 8) >> shift & 0x0f0f0f0f;
            const u32 right = read32(from + 6 + (c & 1) * 8) >> shift & 0x0f0f0f0f;
            bytes = left | right << 4;
          }
          write32(dst + c * 64 + r * 4, bytes);
        }
        copy16(dst + 256 + r * 2, from, exists);
      }
}

EXPORT(repackQ8_0)(const u8 *src, u8 *dst, u32 rows, u32 cols) {
  const u32 blocks = cols / 32;
  for (u32 first = 0; first < rows; first += 16)
    for (u32 b = 0; b < blocks; b++, dst += 544)
      for (u32 r = 0; r < 16; r++) {
        const u32 exists = first + r < rows;
        const u8 *from = src + ((first + r) * blocks + b) * 34;
        for (u32 c = 0; c < 8; c++) write32(dst + c * 64 + r * 4, exists ? read32(from + 2 + c * 4) : 0);
        copy16(dst + 512 + r * 2, from, exists);
      }
}
