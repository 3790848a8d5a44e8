// Rotary frequencies in float64. Formulas: Su et al., "RoFormer" (2021) for the base; Peng et al., "YaRN" (2023, arXiv 2309.00071) for
// `yarn`; Hugging Face transformers, modeling_rope_utils.py for how configurations state them, for `linear` and for `llama3`.

export interface RopeScaling {
  readonly type: 'none' | 'linear' | 'llama3' | 'yarn'
  readonly factor: number
  /** llama3 */
  readonly lowFreqFactor: number
  readonly highFreqFactor: number
  /** llama3, yarn: positions the model was trained on before its context was extended. */
  readonly originalContextLength: number
  /** yarn: pairs that turn more often than betaFast over the original context are kept, those below betaSlow divided by `factor`. */
  readonly betaFast: number
  readonly betaSlow: number
  /** yarn: the borders of the ramp are whole pairs. */
  readonly truncate: boolean
}

/** The angle a pair turns by per position, for i = 0 … dim/2 − 1: base^(−2i/dim), scaled. */
export function inverseFrequencies(dim: number, base: number, scaling: RopeScaling): number[] {
  const kept = scaling.type === 'yarn' ? keptShares(dim, base, scaling) : []
  const out: number[] = []
  for (let i = 0; i < dim / 2; i++) out.push(scaled(base ** ((-2 * i) / dim), scaling, kept[i] ?? 1))
  return out
}

function scaled(frequency: number, s: RopeScaling, kept: number): number {
  if (s.type === 'none') return frequency
  if (s.type === 'linear') return frequency / s.factor
  if (s.type === 'yarn') return (frequency / s.factor) * (1 - kept) + frequency * kept
  // llama3: long waves are slowed by `factor`, short ones kept, those between blended.
  const wavelength = (2 * Math.PI) / frequency
  if (wavelength < s.originalContextLength / s.highFreqFactor) return frequency
  if (wavelength > s.originalContextLength / s.lowFreqFactor) return frequency / s.factor
  const smooth = (s.originalContextLength / wavelength - s.lowFreqFactor) / (s.highFreqFactor - s.lowFreqFactor)
  return ((1 - smooth) * frequency) / s.factor + smooth * frequency
}

/** yarn: how much of each pair's frequency is kept, 1 … 0, falling linearly between the pairs that turn betaFast and betaSlow times. */
function keptShares(dim: number, base: number, s: RopeScaling): number[] {
  const pairAt = (turns: number) =>
    (dim * Math.log(s.originalContextLength / (turns * 2 * Math.PI))) / (2 * Math.log(base))
  const low = Math.max(s.truncate ? Math.floor(pairAt(s.betaFast)) : pairAt(s.betaFast), 0)
  const end = Math.min(s.truncate ? Math.ceil(pairAt(s.betaSlow)) : pairAt(s.betaSlow), dim - 1)
  const high = end === low ? low + 0.001 : end
  return Array.from({ length: dim / 2 }, (_, i) => 1 - Math.min(Math.max((i - low) / (high - low), 0), 1))
}
