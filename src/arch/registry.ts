// Which family a model belongs to. The only list of families.
import { ValidationError } from '../base/errors.ts'
import { own } from '../base/json.ts'
import type { Arch, ArchInput, ArchOutput } from './arch.ts'
import { expertCount } from './gguf.ts'
import { granite } from './granite.ts'
import { llama } from './llama.ts'
import { mistral } from './mistral.ts'
import { mixtral } from './mixtral.ts'
import { olmo2 } from './olmo2.ts'
import { phi3 } from './phi3.ts'
import { qwen2 } from './qwen2.ts'
import { qwen3 } from './qwen3.ts'
import { qwen3Moe } from './qwen3-moe.ts'
import { smollm3 } from './smollm3.ts'

const FAMILIES: readonly Arch[] = [llama, mistral, mixtral, qwen2, qwen3, qwen3Moe, olmo2, smollm3, granite, phi3]

/**
 * Graph and tensor names of a model. Throws ARCH_UNSUPPORTED (a family, RoPE type, activation or flag that is not implemented),
 * CONFIG_INVALID. Whether the tensors fit is checked by graph/tensors.ts.
 */
export function buildArchitecture(input: ArchInput): ArchOutput {
  return chooseFamily(input).build(input)
}

function chooseFamily(input: ArchInput): Arch {
  const gguf = input.format === 'gguf'
  const key = gguf ? 'general.architecture' : 'model_type'
  const name = own(input.config, key)
  if (typeof name !== 'string')
    throw new ValidationError('CONFIG_INVALID', {
      what: `${key} is missing`,
      where: gguf ? 'GGUF metadata' : 'config.json',
      expected: 'a string',
      got: name === undefined ? 'nothing' : JSON.stringify(name),
    })
  const named = FAMILIES.filter((f) => (gguf ? f.ggufArchitectures : f.modelTypes).includes(name))
  const family = gguf && named.length > 1 ? (expertCount(input) > 0 ? mixtral : llama) : named[0]
  if (family !== undefined) return family
  const known = FAMILIES.flatMap((f) => (gguf ? f.ggufArchitectures : f.modelTypes))
  throw new ValidationError('ARCH_UNSUPPORTED', {
    what: `${key} is not implemented`,
    where: gguf ? 'GGUF metadata' : 'config.json',
    expected: [...new Set(known)].join(' | '),
    got: name,
    details: { known: [...new Set(known)] },
  })
}
