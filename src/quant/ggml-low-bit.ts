// ggml's types of one and two bits, one scale a block: Q1_0, Q2_0, TQ1_0, TQ2_0. All begin or end with a float16 scale d.
//
// Q1_0, 128 columns in 18 bytes: d, then column c at bit c & 7 of byte c >> 3. value = d or -d (bit clear)
// Q2_0, 64 columns in 18 bytes: d, then column c at bits 2·(c & 3) of byte c >> 2. value = d·(q - 1)
// TQ2_0, 256 columns in 66 bytes: codes, then d. Byte 32h + i holds columns 128h + 32k + i at bits 2k. value = d·(q - 1)
// TQ1_0, 256 columns in 54 bytes: 52 bytes of base-3 digits, then d. value = d·(digit - 1). A byte is ⌈256·n/243⌉ for five digits n in
// base 3: digit k is the top of 3·(byte·3^k mod 256) >> 8. Bytes 0…31 hold columns 32k + i, bytes 32…47 columns 160 + 16k + i, bytes 48…51
// columns 240 + 4k + i (four digits).
import { f16, type PackedBlock } from './ggml-packed.ts'

export const Q1_0: PackedBlock = {
  type: 'Q1_0',
  columns: 128,
  bytes: 18,
  group: 128,
  minima: false,
  unpack(view, at, { codes, scales }, bigEndian) {
    scales[0] = f16(view, at, bigEndian)
    for (let c = 0; c < 128; c++) codes[c] = (((view.getUint8(at + 2 + (c >> 3)) >>> (c & 7)) & 1) << 1) - 1
  },
}

export const Q2_0: PackedBlock = {
  type: 'Q2_0',
  columns: 64,
  bytes: 18,
  group: 64,
  minima: false,
  unpack(view, at, { codes, scales }, bigEndian) {
    scales[0] = f16(view, at, bigEndian)
    for (let c = 0; c < 64; c++) codes[c] = ((view.getUint8(at + 2 + (c >> 2)) >>> (2 * (c & 3))) & 3) - 1
  },
}

export const TQ2_0: PackedBlock = {
  type: 'TQ2_0',
  columns: 256,
  bytes: 66,
  group: 256,
  minima: false,
  unpack(view, at, { codes, scales }, bigEndian) {
    scales[0] = f16(view, at + 64, bigEndian)
    for (let h = 0; h < 2; h++)
      for (let i = 0; i < 32; i++) {
        const byte = view.getUint8(at + 32 * h + i)
        for (let k = 0; k < 4; k++) codes[128 * h + 32 * k + i] = ((byte >>> (2 * k)) & 3) - 1
      }
  },
}

export const TQ1_0: PackedBlock = {
  type: 'TQ1_0',
  columns: 256,
  bytes: 54,
  group: 256,
  minima: false,
  unpack(view, at, { codes, scales }, bigEndian) {
    scales[0] = f16(view, at + 52, bigEndian)
    digits(view, at, 32, 5, codes, 0)
    digits(view, at + 32, 16, 5, codes, 160)
    digits(view, at + 48, 4, 4, codes, 240)
  },
}

/** `count` bytes of `each` digits: digit k of byte i is column first + count·k + i. */
function digits(view: DataView, at: number, count: number, each: number, codes: Int8Array, first: number): void {
  for (let i = 0; i < count; i++)
    for (let k = 0, rest = view.getUint8(at + i); k < each; k++, rest = (rest * 3) & 255)
      codes[first + count * k + i] = ((rest * 3) >>> 8) - 1
}
