// From how numbers are stored to how kernels compute with them: which encodings run as they lie, which need a repack or a
// transcode first, and how many bytes each takes.
import { SluiceError } from '../base/errors.ts'
import { mulSafe, roundUp } from '../base/shape.ts'
import { refuseOpaque } from '../quant/codec.ts'
import { ggmlBlock } from '../quant/ggml.ts'
import { EXACT_FORM } from '../quant/ggml-form.ts'
import { type Encoding, PANEL_ROWS, type PanelSchemeName } from '../quant/scheme.ts'
import { COMPUTE, type ComputeId, type MatrixBlock } from './kernels.ts'

/** How a kernel reads a matrix: the fields of MatrixBlock that do not depend on the place and the rows. */
export type Compute = Pick<MatrixBlock, 'encoding' | 'block' | 'scaleF32' | 'multiplier'>

/** What has to happen to stored bytes before a kernel can compute with them. */
export type Repack = 'none' | 'Q4_0' | 'Q8_0' | 'exactForm'

export interface ComputePlan extends Compute {
  /** `none`: compute where the bytes lie; `Q4_0`, `Q8_0`: a kernel re-lays them; `exactForm`: toExactForm of quant/ggml-form.ts does. */
  readonly repack: Repack
}

const PANEL_COMPUTE: Readonly<Record<PanelSchemeName, ComputeId>> = {
  int8: COMPUTE.int8,
  int4: COMPUTE.int4,
  int4m: COMPUTE.int4m,
  nf4: COMPUTE.nf4,
  fp8_e4m3: COMPUTE.fp8_e4m3,
  fp8_e5m2: COMPUTE.fp8_e5m2,
}

const PLAIN_COMPUTE: Readonly<Record<string, ComputeId>> = {
  float32: COMPUTE.f32,
  float16: COMPUTE.f16,
  bfloat16: COMPUTE.bf16,
}

/**
 * How kernels compute with a stored encoding, or undefined when its values must be decoded and written again (big-endian
 * numbers, plain integers, plain fp8). ggml blocks become panels or plain rows with the same numbers.
 */
export function computeOf(encoding: Encoding): ComputePlan | undefined {
  if (encoding.kind === 'panel')
    return {
      encoding: PANEL_COMPUTE[encoding.scheme],
      block: encoding.block,
      scaleF32: encoding.scale === 'f32' ? 1 : 0,
      multiplier: 2 ** encoding.exponent,
      repack: 'none',
    }
  if (encoding.kind === 'opaque') return refuseOpaque(encoding.type)
  if (encoding.bigEndian === true) return undefined
  if (encoding.kind === 'ggml') {
    ggmlBlock(encoding.type) // refuses unknown types by name
    const form = computeOf(EXACT_FORM[encoding.type])!
    return { ...form, repack: encoding.type === 'Q4_0' || encoding.type === 'Q8_0' ? encoding.type : 'exactForm' }
  }
  const plain = Object.hasOwn(PLAIN_COMPUTE, encoding.dtype) ? PLAIN_COMPUTE[encoding.dtype] : undefined
  return plain === undefined ? undefined : { encoding: plain, block: 0, scaleF32: 0, multiplier: 1, repack: 'none' }
}

/** True for encodings in 16-row panels. */
export function isPanel(encoding: ComputeId): boolean {
  return encoding >= COMPUTE.int8
}

/** Bytes of codes, scales and minima that a block (16 rows × block columns) of a panel takes. */
export function blockBytes(c: Pick<Compute, 'encoding' | 'block' | 'scaleF32'>): number {
  const fourBit = c.encoding === COMPUTE.int4 || c.encoding === COMPUTE.int4m || c.encoding === COMPUTE.nf4
  const codes = c.block * (fourBit ? PANEL_ROWS / 2 : PANEL_ROWS)
  const scales = PANEL_ROWS * (c.scaleF32 === 1 ? 4 : 2)
  return codes + (c.encoding === COMPUTE.int4m ? 2 * scales : scales)
}

/** Bytes that `rows` × `cols` take: whole panels and whole blocks for panel encodings. */
export function computeBytes(c: Pick<Compute, 'encoding' | 'block' | 'scaleF32'>, rows: number, cols: number): number {
  if (!isPanel(c.encoding)) return mulSafe(mulSafe(rows, cols, 'matrix'), c.encoding === COMPUTE.f32 ? 4 : 2, 'matrix')
  const panels = Math.ceil(rows / PANEL_ROWS)
  const panelBytes = mulSafe(Math.ceil(cols / c.block), blockBytes(c), 'panel')
  return mulSafe(panels, panelBytes, 'matrix')
}

/** Throws INTERNAL for a matrix no kernel can read: kernels trust what passed here. */
export function checkMatrix(m: MatrixBlock): void {
  if (!(Number.isInteger(m.encoding) && m.encoding >= COMPUTE.f32 && m.encoding <= COMPUTE.fp8_e5m2))
    throw bad('encoding', m.encoding, '0…8')
  if (isPanel(m.encoding) && m.block !== 32 && m.block !== 64) throw bad('block', m.block, '32 or 64')
  if (isPanel(m.encoding) && m.scaleF32 !== 0 && m.scaleF32 !== 1) throw bad('scaleF32', m.scaleF32, '0 or 1')
}

/** Throws INTERNAL for what matMulQ cannot read: plain rows. */
export function checkPanelMatrix(m: MatrixBlock): void {
  checkMatrix(m)
  if (!isPanel(m.encoding)) throw bad('encoding for matMulQ', m.encoding, 'a panel encoding')
}

/** Throws INTERNAL unless ggml rows of 32-element blocks fill the columns. */
export function checkGgmlColumns(cols: number): void {
  if (cols % 32 !== 0) throw bad('columns of ggml rows', cols, 'a multiple of 32')
}

function bad(field: string, got: unknown, expected: string): SluiceError {
  return new SluiceError('INTERNAL', { what: `kernel called with a wrong ${field}`, expected, got })
}

/**
 * Quantized activations of one token, n = columns rounded up to whole blocks, b = n / block:
 *   0        int8  [n]     codes
 *   n        int16 [n]     the same codes, four columns as (0, 2, 1, 3): what 16-bit dot products pair up
 *   3n       f32   [b]     scales
 *   3n + 4b  int32 [b]     sum of the codes of a block
 *   3n + 8b  int16 [b, 2]  -8 · sum of the codes of a block in columns 4k and 4k + 1, and in columns 4k + 2 and 4k + 3
 */
export function quantizedStride(cols: number, block: number): number {
  if (block !== 32 && block !== 64) throw bad('block', block, '32 or 64')
  const n = roundUp(cols, block)
  return roundUp(3 * n + 12 * (n / block), 64)
}

/** Heads that share one reading of a key-value head (QUERIES in native/kernels/attention.c). */
const ATTENTION_QUERIES = 4

/** Bytes of scratch that attention over `positions` positions takes: float32 scores of the heads it computes together. */
export function attentionScratch(positions: number): number {
  return mulSafe(ATTENTION_QUERIES * 4, roundUp(positions, 64), 'attention scores')
}
