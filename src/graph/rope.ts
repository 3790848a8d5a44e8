// Rotary frequencies in float64. Formulas: Su et al., "RoFormer" (2021) for the base; Hugging Face transformers,
// modeling_rope_utils.py for the scalings `linear` and `llama3`.

export interface RopeScaling {
  readonly type: 'none' | 'linear' | 'llama3'
  readonly factor: number
  readonly lowFreqFactor: number
  readonly highFreqFactor: number
  readonly originalContextLength: number
}

/** The angle a pair turns by per position, for i = 0 … dim/2 − 1: base^(−2i/dim), scaled. */
export function inverseFrequencies(dim: number, base: number, scaling: RopeScaling): number[] {
  const out: number[] = []
  for (let i = 0; i < dim / 2; i++) out.push(scaled(base ** ((-2 * i) / dim), scaling))
  return out
}

function scaled(frequency: number, s: RopeScaling): number {
  if (s.type === 'none') return frequency
  if (s.type === 'linear') return frequency / s.factor
  // llama3: long waves are slowed by `factor`, short ones kept, those between blended.
  const wavelength = (2 * Math.PI) / frequency
  if (wavelength < s.originalContextLength / s.highFreqFactor) return frequency
  if (wavelength > s.originalContextLength / s.lowFreqFactor) return frequency / s.factor
  const smooth = (s.originalContextLength / wavelength - s.lowFreqFactor) / (s.highFreqFactor - s.lowFreqFactor)
  return ((1 - smooth) * frequency) / s.factor + smooth * frequency
}
