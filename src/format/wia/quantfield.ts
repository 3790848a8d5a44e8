// The `quant` field of a tensor: block quantization (wia.block_quant) or the standard's LINEAR. Both directions.
import type { DType } from '../../base/dtype.ts'
import type { JsonObject } from '../../base/json.ts'
import { own } from '../../base/json.ts'
import { PANEL_SCHEMES } from '../../quant/panel-layout.ts'
import type { Encoding, PanelEncoding, PanelSchemeName } from '../../quant/scheme.ts'
import type { TensorEntry } from '../reader.ts'
import { arrayField, countField, textField } from './fields.ts'
import type { StoredEncoding } from './layout.ts'
import { invalid } from './refuse.ts'

export type Linear = NonNullable<TensorEntry['linear']>

/** Integer types LINEAR may be stored as, and their ranges (zero points lie in them). */
const LINEAR_RANGE: Readonly<Partial<Record<DType, readonly [number, number]>>> = {
  int8: [-128, 127],
  uint8: [0, 255],
  int16: [-32768, 32767],
  int32: [-(2 ** 31), 2 ** 31 - 1],
}

const BLOCK_KEYS = new Set(['scheme', 'block', 'scale', 'exponent'])
const LINEAR_KEYS = new Set(['scheme', 'scale', 'zero_point', 'scales', 'zero_points', 'channel_dim'])

function unknown(what: string, where: string, got: unknown): never {
  return invalid(what, where, { got }, 'QUANT_UNSUPPORTED')
}

export interface QuantField {
  readonly encoding: StoredEncoding
  readonly linear?: Linear
}

/** Throws QUANT_UNSUPPORTED for anything not known, FORMAT_INVALID for impossible values. */
export function readQuant(quant: JsonObject, dtype: DType, shape: readonly number[], where: string): QuantField {
  const scheme = textField(quant, 'scheme', where)
  if (Object.hasOwn(PANEL_SCHEMES, scheme))
    return { encoding: readBlock(quant, scheme as PanelSchemeName, dtype, shape, where) }
  if (scheme === 'LINEAR') return { encoding: { kind: 'plain', dtype }, linear: readLinear(quant, dtype, shape, where) }
  return unknown('unknown quantization scheme', where, scheme)
}

function readBlock(
  quant: JsonObject,
  scheme: PanelSchemeName,
  dtype: DType,
  shape: readonly number[],
  where: string,
): PanelEncoding {
  for (const key of Object.keys(quant)) if (!BLOCK_KEYS.has(key)) unknown('unknown quantization field', where, key)
  if (dtype !== 'float32')
    invalid('block-quantized tensor has another dtype than it decodes to', where, { expected: 'float32', got: dtype })
  if (shape.length === 0) invalid('a scalar is block-quantized', where)
  const block = own(quant, 'block')
  if (block === undefined) invalid("field 'block' is missing", where)
  if (block !== 32 && block !== 64) unknown('unknown block size', where, block)
  const scale = own(quant, 'scale')
  if (scale === undefined) invalid("field 'scale' is missing", where)
  if (scale !== 'f16' && scale !== 'f32') unknown('unknown scale type', where, scale)
  const exponent = own(quant, 'exponent') ?? 0
  if (typeof exponent !== 'number' || !Number.isInteger(exponent) || exponent < -126 || exponent > 127)
    invalid('exponent is not an integer of −126…127', where, { got: exponent })
  return { kind: 'panel', scheme, block, scale, exponent }
}

function readLinear(quant: JsonObject, dtype: DType, shape: readonly number[], where: string): Linear {
  for (const key of Object.keys(quant)) if (!LINEAR_KEYS.has(key)) unknown('unknown quantization field', where, key)
  if (own(quant, 'scales') === undefined) {
    for (const key of ['zero_points', 'channel_dim'])
      if (own(quant, key) !== undefined) invalid(`field '${key}' without 'scales'`, where)
    const linear: Linear = {
      scheme: 'linear',
      scales: [own(quant, 'scale') as number],
      zeroPoints: [own(quant, 'zero_point') as number],
    }
    checkLinear(linear, dtype, shape, where)
    return linear
  }
  for (const key of ['scale', 'zero_point'])
    if (own(quant, key) !== undefined) invalid(`both '${key}' and 'scales'`, where)
  const linear: Linear = {
    scheme: 'linear',
    scales: arrayField(quant, 'scales', where) as number[],
    zeroPoints: arrayField(quant, 'zero_points', where) as number[],
    axis: countField(quant, 'channel_dim', where),
  }
  checkLinear(linear, dtype, shape, where)
  return linear
}

/** The rules of FORMAT §8, for values read and for values to be written. */
export function checkLinear(linear: Linear, dtype: DType, shape: readonly number[], where: string): void {
  if (linear.scheme !== 'linear') unknown('unknown quantization scheme', where, linear.scheme)
  const range = LINEAR_RANGE[dtype]
  if (range === undefined)
    invalid('LINEAR needs a stored integer type', where, { expected: Object.keys(LINEAR_RANGE).join(' '), got: dtype })
  const { axis } = linear
  if (axis !== undefined && axis >= shape.length)
    invalid('channel_dim is not a dimension', where, { expected: `< ${shape.length}`, got: axis })
  const channels = axis === undefined ? 1 : shape[axis]
  if (linear.scales.length !== channels || linear.zeroPoints.length !== channels)
    invalid('not one scale and zero point a channel', where, {
      expected: channels,
      got: `${linear.scales.length} scales, ${linear.zeroPoints.length} zero points`,
    })
  for (const s of linear.scales)
    if (typeof s !== 'number' || !Number.isFinite(s) || s <= 0)
      invalid('scale is not a number above 0', where, { got: s })
  for (const z of linear.zeroPoints)
    if (!Number.isInteger(z) || z < range[0] || z > range[1])
      invalid('zero point is not an integer in the range of its type', where, { expected: range, got: z })
}

/** The field as it is written; undefined for plain numbers. */
export function writeQuant(encoding: Encoding, linear: Linear | undefined): JsonObject | undefined {
  if (encoding.kind === 'panel') {
    const { scheme, block, scale, exponent } = encoding
    return { scheme, block, scale, exponent }
  }
  if (linear === undefined) return undefined
  if (linear.axis === undefined)
    return { scheme: 'LINEAR', scale: linear.scales[0]!, zero_point: linear.zeroPoints[0]! }
  return {
    scheme: 'LINEAR',
    scales: [...linear.scales],
    zero_points: [...linear.zeroPoints],
    channel_dim: linear.axis,
  }
}
