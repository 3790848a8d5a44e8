// Which tensor is stored how. Few bits go where they cost little: embeddings and head keep 8 bits or more, norms, biases and
// routers stay as they are. What is already stored as asked for is not rounded again.
import { isDeepStrictEqual } from 'node:util'
import { ConversionError } from '../base/errors.ts'
import { REPACKED } from '../quant/ggml-repack.ts'
import type { Encoding, PanelEncoding, PanelSchemeName } from '../quant/scheme.ts'

export const QUANTIZATIONS = [
  'keep',
  'f32',
  'f16',
  'bf16',
  'int8',
  'int4',
  'int4m',
  'nf4',
  'fp8_e4m3',
  'fp8_e5m2',
] as const
export type Quantization = (typeof QUANTIZATIONS)[number]

/** What a weight is for. */
export type Role = 'embedding' | 'head' | 'linear' | 'router' | 'vector'

const PLAIN = { f32: 'float32', f16: 'float16', bf16: 'bfloat16' } as const

/** Columns a block. */
const BLOCK: Readonly<Record<PanelSchemeName, 32 | 64>> = {
  int8: 32,
  int4: 32,
  int4m: 32,
  nf4: 64,
  fp8_e4m3: 32,
  fp8_e5m2: 32,
}

/**
 * Encoding of a weight under a quantization, before its exponent is known. `source` is how it is stored now.
 * Throws QUANT_UNSUPPORTED for blocks without a decoder.
 */
export function encodingFor(quantization: Quantization, role: Role, source: Encoding): Encoding {
  if (quantization === 'keep') return kept(source)
  if (quantization in PLAIN) return { kind: 'plain', dtype: PLAIN[quantization as keyof typeof PLAIN] }
  if (role === 'vector' || role === 'router') return kept(source)
  const asked = panel(quantization as PanelSchemeName)
  const now = kept(source)
  // Codes in the blocks asked for are as good as they will get: another rounding could only lose.
  if (sameBlocks(now, asked)) return now
  const fewBits = asked.scheme === 'int4' || asked.scheme === 'int4m' || asked.scheme === 'nf4'
  if (!fewBits || (role !== 'embedding' && role !== 'head')) return asked
  const eightBits = panel('int8')
  return sameBlocks(now, eightBits) ? now : eightBits
}

function panel(scheme: PanelSchemeName): PanelEncoding {
  return { kind: 'panel', scheme, block: BLOCK[scheme], scale: 'f16', exponent: 0 }
}

/** Equal but for the exponent, which is a tensor's own. */
function sameBlocks(a: Encoding, b: PanelEncoding): boolean {
  return a.kind === 'panel' && isDeepStrictEqual({ ...a, exponent: 0 }, b)
}

/** The same numbers in an encoding packages have: little-endian, ggml blocks as panels. */
function kept(source: Encoding): Encoding {
  if (source.kind === 'panel') return source
  if (source.kind === 'plain') return { kind: 'plain', dtype: source.dtype }
  if (source.kind === 'ggml') return REPACKED[source.type]
  throw new ConversionError('QUANT_UNSUPPORTED', { what: 'this block type has no decoder yet', got: source.type })
}

/** True when the numbers of `source` are those of `target` with their bytes in another order: nothing is rounded. */
export function isRelayout(source: Encoding, target: Encoding): boolean {
  if (source.kind === 'plain') return target.kind === 'plain' && target.dtype === source.dtype
  return source.kind === 'ggml' && target.kind === 'panel' && isDeepStrictEqual(REPACKED[source.type], target)
}
