// SmolLM 3: Llama with layers that do not rotate queries and keys (every fourth, unless the configuration lists them).
import type { Arch } from './arch.ts'
import type { Config } from './config.ts'
import { family } from './family.ts'
import { llamaBiases } from './huggingface.ts'
import { slidingWindow, someLayers } from './window.ts'

export const smollm3: Arch = family({
  modelType: 'smollm3',
  config: {
    architecture: 'SmolLM3ForCausalLM',
    ropeTheta: 2e6,
    rmsNormEps: 1e-6,
    contextLength: 32768,
    kvHeads: 4,
    tied: true,
    honours: ['no_rope_layers', 'use_sliding_window', 'sliding_window', 'layer_types'],
    features(config, { layers }) {
      const rotates = readRotates(config, layers)
      const window = slidingWindow(config, undefined)
      const used = config.flag('use_sliding_window', false) ? window : undefined
      config.has('max_window_layers') // In published files, and read by nobody.
      return { biases: llamaBiases(config), rotates, windows: someLayers(config, layers, used, (i) => !rotates[i]!) }
    },
  },
  // llama.cpp has the interval of four built in (src/models/smollm3.cpp): files do not say it.
  gguf: {
    architecture: 'smollm3',
    interleaved: true,
    features: (_, __, { layers }) => ({ rotates: everyButEach(layers, 4) }),
  },
})

/** no_rope_layers has a 1 for a layer that rotates. */
function readRotates(config: Config, layers: number): boolean[] {
  const listed = config.perLayer('no_rope_layers', layers, [0, 1])
  const interval = config.count('no_rope_layer_interval', 4)
  return listed?.map((v) => v === 1) ?? everyButEach(layers, interval)
}

function everyButEach(layers: number, interval: number): boolean[] {
  return Array.from({ length: layers }, (_, i) => (i + 1) % interval !== 0)
}
