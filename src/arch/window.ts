// Sliding windows of attention: how many positions each layer sees, from the fields that families state it with. transformers masks
// positions at a distance of sliding_window or more (masking_utils.py), so a token sees that many, itself included.
import type { Config } from './config.ts'

const LAYER_TYPES = ['full_attention', 'sliding_attention'] as const

/** sliding_window in every layer. `assumed` is transformers' default of an absent field; null is no window. */
export function everyLayer(config: Config, layers: number, assumed: number | undefined): number[] {
  const window = slidingWindow(config, assumed)
  return Array.from({ length: layers }, () => window ?? 0)
}

/** undefined: no window. */
export function slidingWindow(config: Config, assumed: number | undefined): number | undefined {
  if (config.has('sliding_window')) return config.count('sliding_window')
  return config.states('sliding_window') ? undefined : assumed
}

/** The window in layers that layer_types names, or, where that is absent, in those `slides` tells. */
export function someLayers(
  config: Config,
  layers: number,
  window: number | undefined,
  slides: (layer: number) => boolean,
): number[] {
  const types = config.perLayer('layer_types', layers, LAYER_TYPES)
  return Array.from({ length: layers }, (_, i) => {
    if (types === undefined) return window !== undefined && slides(i) ? window : 0
    if (types[i] === 'full_attention') return 0
    if (window === undefined)
      config.unsupported(`layer_types has ${types[i]} in layer ${i}, and no window is in use`, types[i], [
        'full_attention',
      ])
    return window
  })
}

/** Qwen 2 and 3: the layers from max_window_layers on, when use_sliding_window is set. */
export function qwenWindows(config: Config, layers: number): number[] {
  const stated = slidingWindow(config, 4096)
  const window = config.flag('use_sliding_window', false) ? stated : undefined
  const first = config.has('max_window_layers') ? config.natural('max_window_layers') : 28
  return someLayers(config, layers, window, (i) => i >= first)
}
