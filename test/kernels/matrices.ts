// Weights of every encoding from random codes, written here from the text of the format and read by nothing of the package: bytes
// for kernels beside the float64 values they stand for.
import { COMPUTE, type ComputeName, type MatrixBlock } from '#sluice/kernels/kernels.js'

/** bitsandbytes' NF4 codebook (arXiv:2305.14314). */
const NF4 = [
  -1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635, -0.18477343022823334,
  -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224,
  0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0,
].map(Math.fround)

export type Style = 'usual' | 'zeros' | 'denormal' | 'large'
export const STYLES: readonly Style[] = ['usual', 'zeros', 'denormal', 'large']

export interface Matrix {
  bytes: Uint8Array
  block: Omit<MatrixBlock, 'address'>
  /** float64 [rows, cols]. */
  values: Float64Array
  /** |scale·code| + |minimum| of each: what a rounding error is a share of. */
  magnitudes: Float64Array
}

export const half = (bits: number) => {
  const sign = bits >> 15 ? -1 : 1
  const e = (bits >> 10) & 31
  const m = bits & 1023
  if (e === 31) return m === 0 ? sign * Infinity : NaN
  return e === 0 ? sign * m * 2 ** -24 : sign * (1024 + m) * 2 ** (e - 25)
}

export const float8 = (byte: number, mantissaBits: number, bias: number) => {
  const sign = byte >> 7 ? -1 : 1
  const e = (byte & 0x7f) >> mantissaBits
  const m = byte & ((1 << mantissaBits) - 1)
  return e === 0
    ? sign * m * 2 ** (1 - bias - mantissaBits)
    : sign * (2 ** mantissaBits + m) * 2 ** (e - bias - mantissaBits)
}

/** A finite binary16 of the style. */
function randomHalf(random: () => number, style: Style): number {
  const sign = random() < 0.5 ? 0x8000 : 0
  if (style === 'zeros') return random() < 0.8 ? sign : sign | 0x3c00
  if (style === 'denormal') return sign | Math.floor(random() * 0x800)
  if (style === 'large') return sign | (0x7800 + Math.floor(random() * 0x400))
  return sign | (0x1c00 + Math.floor(random() * 0x1400))
}

export function randomMatrix(
  random: () => number,
  name: ComputeName,
  rows: number,
  cols: number,
  options: { block?: 32 | 64; scaleF32?: 0 | 1; exponent?: number; style?: Style } = {},
): Matrix {
  const { block = 32, scaleF32 = 0, exponent = 0, style = 'usual' } = options
  if (COMPUTE[name] < COMPUTE.int8) return plain(random, name, rows, cols, style)
  return panels(random, name, rows, cols, block, scaleF32, exponent, style)
}

function plain(random: () => number, name: ComputeName, rows: number, cols: number, style: Style): Matrix {
  const size = name === 'f32' ? 4 : 2
  const bytes = new Uint8Array(rows * cols * size)
  const view = new DataView(bytes.buffer)
  const values = new Float64Array(rows * cols)
  for (let i = 0; i < values.length; i++) {
    const bits = randomHalf(random, style)
    const v = Math.fround(half(bits) * (1 + random()))
    if (name === 'f32') {
      view.setFloat32(i * 4, v, true)
      values[i] = v
    } else if (name === 'f16') {
      view.setUint16(i * 2, bits, true)
      values[i] = half(bits)
    } else {
      // The upper half of a float32, cut off.
      const wide = new DataView(new ArrayBuffer(4))
      wide.setFloat32(0, v)
      wide.setUint16(2, 0)
      view.setUint16(i * 2, wide.getUint16(0), true)
      values[i] = wide.getFloat32(0)
    }
  }
  return {
    bytes,
    block: { encoding: COMPUTE[name], rows, cols, block: 0, scaleF32: 0, multiplier: 1 },
    values,
    magnitudes: values.map(Math.abs),
  }
}

function panels(
  random: () => number,
  name: ComputeName,
  rows: number,
  cols: number,
  g: 32 | 64,
  scaleF32: 0 | 1,
  exponent: number,
  style: Style,
): Matrix {
  const fourBit = name === 'int4' || name === 'int4m' || name === 'nf4'
  const codeBytes = fourBit ? g * 8 : g * 16
  const numberBytes = scaleF32 ? 4 : 2
  const blockBytes = codeBytes + 16 * numberBytes * (name === 'int4m' ? 2 : 1)
  const across = Math.ceil(cols / g)
  const bytes = new Uint8Array(Math.ceil(rows / 16) * across * blockBytes)
  const view = new DataView(bytes.buffer)
  const values = new Float64Array(rows * cols)
  const magnitudes = new Float64Array(rows * cols)
  const putNumber = (at: number, i: number) => {
    const bits = randomHalf(random, style)
    if (!scaleF32) {
      view.setUint16(at + i * 2, bits, true)
      return half(bits) * 2 ** exponent
    }
    const value = Math.fround(half(bits) * (1 + random() / 2))
    view.setFloat32(at + i * 4, value, true)
    return value * 2 ** exponent
  }
  for (let r = 0; r < rows; r++)
    for (let b = 0; b < across; b++) {
      const base = (Math.floor(r / 16) * across + b) * blockBytes
      const lane = r % 16
      const scale = putNumber(base + codeBytes, lane)
      const min = name === 'int4m' ? putNumber(base + codeBytes + 16 * numberBytes, lane) : 0
      for (let i = 0; i < g; i++) {
        const c = b * g + i
        if (c >= cols) break
        let code = Math.floor(random() * (fourBit ? 16 : 256))
        // Finite fp8 only; NaN has a test of its own.
        if (name === 'fp8_e4m3' && (code & 0x7f) === 0x7f) code = 0x7e
        if (name === 'fp8_e5m2' && (code & 0x7c) === 0x7c) code &= 0xbf
        if (fourBit) {
          // Chunk i div 8, byte lane·4 + (i mod 4), low nibble for the first four columns of the chunk.
          const at = base + Math.floor(i / 8) * 64 + lane * 4 + (i % 4)
          bytes[at] = bytes[at]! | (i % 8 < 4 ? code : code << 4)
        } else bytes[base + Math.floor(i / 4) * 64 + lane * 4 + (i % 4)] = code
        const value =
          name === 'int8'
            ? code - (code > 127 ? 256 : 0)
            : name === 'int4'
              ? code - 8
              : name === 'int4m'
                ? code
                : name === 'nf4'
                  ? NF4[code]!
                  : float8(code, name === 'fp8_e4m3' ? 3 : 2, name === 'fp8_e4m3' ? 7 : 15)
        values[r * cols + c] = value * scale + min
        magnitudes[r * cols + c] = Math.abs(value * scale) + Math.abs(min)
      }
    }
  const multiplier = 2 ** exponent
  return { bytes, block: { encoding: COMPUTE[name], rows, cols, block: g, scaleF32, multiplier }, values, magnitudes }
}
