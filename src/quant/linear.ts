// The standard's own quantization (WIA-AI-014, "Quantization"): q = round(r/scale) + zeroPoint, r = (q - zeroPoint)·scale, with
// one scale for the tensor or one a channel. Rounding is to nearest, ties to even, as ONNX QuantizeLinear does it.
import { ConversionError, ModelFormatError, notImplemented } from '../base/errors.ts'
import { elementCount, type Shape } from '../base/shape.ts'

/** Parameters of the standard's quantization: r = (q − zeroPoint)·scale. */
export interface LinearParams {
  /** One, or as many as axis `axis` is long. */
  readonly scales: readonly number[]
  readonly zeroPoints: readonly number[]
  readonly axis?: number
  /** The text names LOGARITHMIC without a formula: refused with NOT_IMPLEMENTED. */
  readonly scheme: 'linear' | 'logarithmic'
}

/** Range of codes: int4 is -8…7, uint4 0…15 and so on. */
export const LINEAR_RANGE = {
  int4: [-8, 7],
  uint4: [0, 15],
  int8: [-128, 127],
  uint8: [0, 255],
  int16: [-32768, 32767],
  uint16: [0, 65535],
  int32: [-2147483648, 2147483647],
} as const
export type LinearCode = keyof typeof LINEAR_RANGE

/** Codes (row-major, of `shape`) to float32: (q - zeroPoint)·scale, scale as float32, the product rounded once. */
export function dequantizeLinear(
  codes: ArrayLike<number>,
  shape: Shape,
  params: LinearParams,
  out: Float32Array,
): void {
  const { channels, inner, count } = check(shape, params, codes.length, out.length)
  for (let at = 0, channel = 0; at < count; at += inner, channel = (channel + 1) % channels) {
    const scale = Math.fround(params.scales[channel]!)
    const zeroPoint = params.zeroPoints[channel]!
    for (let i = at; i < at + inner; i++) out[i] = (codes[i]! - zeroPoint) * scale
  }
}

/**
 * float32 to codes. Throws QUANT_RANGE for NaN and infinities, and for codes outside the range of `code` unless `clip` is set
 * (calibrated scales are meant to clip outliers).
 */
export function quantizeLinear(
  values: Float32Array,
  shape: Shape,
  params: LinearParams,
  code: LinearCode,
  out: { length: number; [index: number]: number },
  clip = false,
): void {
  const { channels, inner, count } = check(shape, params, values.length, out.length)
  const [low, high] = LINEAR_RANGE[code]
  for (let at = 0, channel = 0; at < count; at += inner, channel = (channel + 1) % channels) {
    const scale = Math.fround(params.scales[channel]!)
    const zeroPoint = params.zeroPoints[channel]!
    for (let i = at; i < at + inner; i++) {
      const q = roundHalfEven(values[i]! / scale) + zeroPoint
      if (q >= low && q <= high) out[i] = q
      else if (clip && Number.isFinite(values[i])) out[i] = q < low ? low : high
      else
        throw new ConversionError('QUANT_RANGE', {
          what: `value cannot be represented in ${code}`,
          where: `element ${i}`,
          expected: `a code from ${low} to ${high}`,
          got: String(values[i]),
          details: { index: i, value: values[i] },
        })
    }
  }
}

function roundHalfEven(x: number): number {
  const floor = Math.floor(x)
  const rest = x - floor
  return rest > 0.5 || (rest === 0.5 && floor % 2 !== 0) ? floor + 1 : floor
}

/** Runs of `inner` elements share a channel; channels come round in order. */
function check(
  shape: Shape,
  params: LinearParams,
  input: number,
  output: number,
): { channels: number; inner: number; count: number } {
  if (params.scheme === 'logarithmic') notImplemented('LOGARITHMIC quantization (the standard gives no formula)')
  if (params.scheme !== 'linear')
    throw new ModelFormatError('QUANT_UNSUPPORTED', {
      what: 'quantization scheme is not known',
      expected: ['linear', 'logarithmic'],
      got: params.scheme,
    })
  const count = elementCount(shape)
  for (const length of [input, output])
    if (length < count)
      throw new ModelFormatError('FORMAT_INVALID', {
        what: 'array is shorter than its shape',
        expected: count,
        got: length,
      })
  const { axis, scales, zeroPoints } = params
  if (axis !== undefined && (!Number.isInteger(axis) || axis < 0 || axis >= shape.length))
    throw new ModelFormatError('FORMAT_INVALID', { what: 'quantization axis is not one of the shape', got: axis })
  const channels = axis === undefined ? 1 : shape[axis]!
  for (const [name, list] of [
    ['scales', scales],
    ['zeroPoints', zeroPoints],
  ] as const)
    if (list.length !== channels)
      throw new ModelFormatError('FORMAT_INVALID', {
        what: `${name} has another length than the quantized axis`,
        expected: channels,
        got: list.length,
      })
  for (const [channel, scale] of scales.entries())
    if (!(Math.fround(scale) > 0) || !Number.isFinite(Math.fround(scale)))
      throw new ModelFormatError('FORMAT_INVALID', {
        what: 'scale is not a positive float32',
        where: `channel ${channel}`,
        got: scale,
      })
  for (const [channel, zeroPoint] of zeroPoints.entries())
    if (!Number.isSafeInteger(zeroPoint))
      throw new ModelFormatError('FORMAT_INVALID', {
        what: 'zero point is not an integer',
        where: `channel ${channel}`,
        got: zeroPoint,
      })
  const inner = axis === undefined ? count : elementCount(shape.slice(axis + 1))
  return { channels, inner: Math.max(1, inner), count }
}
