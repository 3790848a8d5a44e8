// float32 to row panels. One function a scheme turns up to G values of a row into codes and a scale (and a minimum); packing is shared.
//
// How codes are chosen (division and rounding in float64, half to even; x is compared with the scale as stored):
//   int8   scale = absmax/127, code = round(x/scale). Error ≤ scale/2.
//   int4   two candidates, the one with the lower squared error wins: scale = v/-8 where v is the value of largest magnitude with
//          its sign (that value then is exact; others of opposite sign may be clipped, by up to one step), or absmax/7
//          (nothing is clipped, error ≤ scale/2).
//   int4m  minimum = min rounded down, scale = (max-minimum)/15. Error ≤ scale/2. A block that ends beyond the last column
//          must represent 0: its minimum is -k·scale, with the k and scale of lowest squared error.
//   nf4    scale = absmax, nearest codebook entry. Error ≤ 0.152·scale, half the widest gap.
//   fp8    scale = absmax/448 (E4M3) or absmax/57344 (E5M2), nearest. Relative error ≤ 2^-4 (2^-3) for normal codes.
// Each bound grows by a float32 rounding of the value. A float16 scale that would be denormal is rounded up where rounding to
// nearest would clip values. A block of zeros has scale 0.
import { ConversionError } from '../base/errors.ts'
import { findNonFinite, refuseValue } from './bounds.ts'
import { E4M3, E5M2, type Fp8Format, fp8Saturating } from './fp8.ts'
import { bitsToFloat, floatBits } from './minifloat.ts'
import { encodeNf4 } from './nf4.ts'
import type { PanelLayout } from './panel-layout.ts'
import { ScaleFormat } from './panel-scale.ts'
import { PANEL_ROWS, type PanelSchemeName } from './scheme.ts'

/** The matrix being encoded, and what the last block row came to. */
interface BlockRow {
  readonly name: string
  readonly values: Float32Array
  /** The same values as bits: integer maxima also catch NaN and infinities. */
  readonly bits: Int32Array
  readonly cols: number
  readonly block: number
  readonly scales: ScaleFormat
  readonly minima: ScaleFormat
  codes: Uint8Array
  spareCodes: Uint8Array
  scaleBits: number
  minimumBits: number
}

type EncodeBlockRow = (row: BlockRow, at: number, n: number) => void

const ENCODERS: Readonly<Record<PanelSchemeName, EncodeBlockRow>> = {
  int8: encodeInt8,
  int4: encodeInt4,
  int4m: encodeInt4Min,
  nf4: encodeNormalFloat,
  fp8_e4m3: (row, at, n) => encodeFloat8(E4M3, row, at, n),
  fp8_e5m2: (row, at, n) => encodeFloat8(E5M2, row, at, n),
}

/** Adding and taking away 1.5·2^52 rounds a double below 2^51 to an integer, ties to even. */
const ROUND = 6755399441055744

/** Encodes a matrix. Throws QUANT_RANGE naming row and column of a value that is not finite, or a block whose scale overflows. */
export function encodePanels(
  scheme: PanelSchemeName,
  layout: PanelLayout,
  values: Float32Array,
  rows: number,
  cols: number,
  out: Uint8Array,
): void {
  const { block, blockBytes, scalesAt, minimaAt, scaleBytes } = layout
  const { bits, minima, zeroCode } = layout.scheme
  const encode = ENCODERS[scheme]
  const row: BlockRow = {
    name: layout.name,
    values,
    bits: new Int32Array(values.buffer, values.byteOffset, values.length),
    cols,
    block,
    scales: new ScaleFormat(layout, scheme !== 'nf4'),
    minima: new ScaleFormat(layout, false),
    codes: new Uint8Array(block),
    spareCodes: new Uint8Array(block),
    scaleBits: 0,
    minimumBits: 0,
  }
  let at = 0
  for (let first = 0; first < rows; first += PANEL_ROWS) {
    const lanes = Math.min(PANEL_ROWS, rows - first)
    for (let col = 0; col < cols; col += block, at += blockBytes) {
      const n = Math.min(block, cols - col)
      for (let lane = 0; lane < PANEL_ROWS; lane++) {
        row.scaleBits = 0
        row.minimumBits = 0
        if (lane < lanes) {
          if (n < block) row.codes.fill(zeroCode)
          encode(row, (first + lane) * cols + col, n)
        } else row.codes.fill(zeroCode)
        if (bits === 8) packBytes(row.codes, block, out, at + lane * 4)
        else packNibbles(row.codes, block, out, at + lane * 4)
        row.scales.write(row.scaleBits, out, at + scalesAt + lane * scaleBytes)
        if (minima) row.minima.write(row.minimumBits, out, at + minimaAt + lane * scaleBytes)
      }
    }
  }
}

function packBytes(codes: Uint8Array, block: number, out: Uint8Array, at: number): void {
  for (let i = 0, p = at; i < block; i += 4, p += 64) {
    out[p] = codes[i]!
    out[p + 1] = codes[i + 1]!
    out[p + 2] = codes[i + 2]!
    out[p + 3] = codes[i + 3]!
  }
}

function packNibbles(codes: Uint8Array, block: number, out: Uint8Array, at: number): void {
  for (let i = 0, p = at; i < block; i += 8, p += 64) {
    out[p] = codes[i]! | (codes[i + 4]! << 4)
    out[p + 1] = codes[i + 1]! | (codes[i + 5]! << 4)
    out[p + 2] = codes[i + 2]! | (codes[i + 6]! << 4)
    out[p + 3] = codes[i + 3]! | (codes[i + 7]! << 4)
  }
}

/** Bits of the largest magnitude. Refuses NaN and infinities. */
function absMaxBits(row: BlockRow, at: number, n: number): number {
  const bits = row.bits
  let max = 0
  for (let i = at; i < at + n; i++) {
    const magnitude = bits[i]! & 0x7fffffff
    if (magnitude > max) max = magnitude
  }
  if (max >= 0x7f800000) refuseValue(row.name, row.values, findNonFinite(row.values, at, at + n), row.cols)
  return max
}

/** Sets the scale to the stored number nearest to x, one step larger where |x|·limit would pass reach·scale. Returns the scale applied. */
function setScale(row: BlockRow, at: number, x: number, limit: number, reach: number): number {
  let bits = row.scales.nearest(x)
  if (Math.abs(x) * limit > Math.abs(row.scales.value(bits)) * reach) bits += row.scales.step
  if (row.scales.overflows(bits)) refuseScale(row, at, x)
  const scale = row.scales.value(bits)
  row.scaleBits = scale === 0 ? 0 : bits
  return scale
}

function refuseScale(row: BlockRow, at: number, scale: number): never {
  const r = Math.floor(at / row.cols)
  const column = at - r * row.cols
  throw new ConversionError('QUANT_RANGE', {
    what: `block scale or minimum cannot be stored in ${row.name}`,
    where: `row ${r}, columns from ${column}`,
    got: scale,
    remedy: "Choose the exponent from the tensor's largest magnitude, or float32 scales.",
    details: { row: r, column, scale },
  })
}

function encodeInt8(row: BlockRow, at: number, n: number): void {
  const { values, codes } = row
  const max = bitsToFloat(absMaxBits(row, at, n))
  const scale = setScale(row, at, max / 127, 127, 127.5)
  if (scale === 0) {
    codes.fill(0)
    return
  }
  for (let i = 0; i < n; i++) {
    const q = values[at + i]! / scale + ROUND - ROUND
    codes[i] = Math.max(-127, Math.min(127, q))
  }
}

function encodeInt4(row: BlockRow, at: number, n: number): void {
  const { values, bits } = row
  const maxBits = absMaxBits(row, at, n)
  const max = bitsToFloat(maxBits)
  let i = at
  while ((bits[i]! & 0x7fffffff) !== maxBits) i++
  const symmetric = setScale(row, at, max / 7, 7, 7.5)
  const symmetricBits = row.scaleBits
  const signed = setScale(row, at, values[i]! / -8, 8, 8.5)
  if (signed === 0) {
    row.codes.fill(8)
    return
  }
  const signedError = quantizeInt4(values, at, n, signed, row.codes)
  const symmetricError = quantizeInt4(values, at, n, symmetric, row.spareCodes)
  if (signedError <= symmetricError) return
  row.scaleBits = symmetricBits
  row.spareCodes.fill(8, n)
  const codes = row.codes
  row.codes = row.spareCodes
  row.spareCodes = codes
}

/** Codes 0…15 (value minus 8) for a scale that is not 0. Returns the squared error. */
function quantizeInt4(values: Float32Array, at: number, n: number, scale: number, codes: Uint8Array): number {
  let error = 0
  for (let i = 0; i < n; i++) {
    const x = values[at + i]!
    const rounded = x / scale + ROUND - ROUND
    const q = Math.max(-8, Math.min(7, rounded))
    codes[i] = q + 8
    const d = x - q * scale
    error += d * d
  }
  return error
}

function encodeInt4Min(row: BlockRow, at: number, n: number): void {
  const { values, codes } = row
  absMaxBits(row, at, n)
  let min = values[at]!
  let max = min
  for (let i = at + 1; i < at + n; i++) {
    const x = values[i]!
    if (x < min) min = x
    if (x > max) max = x
  }
  let minimum: number
  let scale: number
  if (n < row.block) {
    const k = setZeroPoint(row, at, n, Math.min(min, 0), Math.max(max, 0))
    codes.fill(k, n)
    minimum = row.minima.value(row.minimumBits)
    scale = row.scales.value(row.scaleBits)
  } else {
    row.minimumBits = row.minima.floor(min)
    if (row.minima.overflows(row.minimumBits)) refuseScale(row, at, min)
    minimum = row.minima.value(row.minimumBits)
    scale = setScale(row, at, (max - minimum) / 15, 15, 15.5)
  }
  if (scale === 0) {
    codes.fill(0)
    return
  }
  for (let i = 0; i < n; i++) {
    const q = (values[at + i]! - minimum) / scale + ROUND - ROUND
    codes[i] = Math.max(0, Math.min(15, q))
  }
}

/**
 * Scale and minimum = -k·scale for min ≤ 0 ≤ max. Candidates are the 30 pairs in which min is code 0 or max is code 15; the lowest squared
 * error wins. (A matrix has at most one such block a row.) Returns k, the code of 0.
 */
function setZeroPoint(row: BlockRow, at: number, n: number, min: number, max: number): number {
  if (min === 0 && max === 0) return 0
  let best = Number.POSITIVE_INFINITY
  let zero = -1
  for (let k = 0; k <= 15; k++)
    for (const x of [k === 0 ? 0 : -min / k, k === 15 ? 0 : max / (15 - k)]) {
      if (x === 0) continue
      const bits = row.scales.coarse(x)
      const scale = row.scales.value(bits)
      const minimumBits = k === 0 ? 0 : row.minima.nearest(-k * scale)
      if (scale === 0 || row.scales.overflows(bits) || row.minima.overflows(minimumBits)) continue
      const error = zeroPointError(row.values, at, n, scale, k)
      if (error >= best) continue
      best = error
      zero = k
      row.scaleBits = bits
      row.minimumBits = minimumBits
    }
  // No candidate: too large to store, or so small that every value is 0 beside the exponent.
  if (zero < 0 && row.scales.value(row.scales.coarse((max - min) / 15)) !== 0) refuseScale(row, at, (max - min) / 15)
  return Math.max(0, zero)
}

function zeroPointError(values: Float32Array, at: number, n: number, scale: number, k: number): number {
  let error = 0
  for (let i = at; i < at + n; i++) {
    const q = values[i]! / scale + ROUND - ROUND
    const d = values[i]! - Math.max(-k, Math.min(15 - k, q)) * scale
    error += d * d
  }
  return error
}

function encodeNormalFloat(row: BlockRow, at: number, n: number): void {
  const { values, codes } = row
  const scale = setScale(row, at, bitsToFloat(absMaxBits(row, at, n)), 1, 1.13)
  if (scale === 0) {
    codes.fill(7)
    return
  }
  for (let i = 0; i < n; i++) codes[i] = encodeNf4(values[at + i]! / scale)
}

function encodeFloat8(format: Fp8Format, row: BlockRow, at: number, n: number): void {
  const { values, codes } = row
  const max = bitsToFloat(absMaxBits(row, at, n))
  // Halfway to the code after the largest is where nearest rounding would leave the range.
  const reach = format.max + (format.max - format.values[format.maxCode - 1]!) / 2
  const scale = setScale(row, at, max / format.max, format.max, reach)
  if (scale === 0) {
    codes.fill(0)
    return
  }
  for (let i = 0; i < n; i++) codes[i] = fp8Saturating(format, floatBits(values[at + i]! / scale))
}
