// adapter_config.json of PEFT (https://github.com/huggingface/peft, LoraConfig): what of it changes the maths is honoured or refused
// by name; nothing is dropped silently.
import { ModelFormatError } from '../base/errors.ts'
import { isJsonObject, type JsonObject, type JsonValue, own } from '../base/json.ts'
import { matchesPattern } from './pattern.ts'

export interface LoraConfig {
  readonly rank: number
  readonly alpha: number
  /** alpha/√r instead of alpha/r (https://arxiv.org/abs/2312.03732). */
  readonly rankStabilized: boolean
  /** Suffixes of module names, a regular expression over the whole name, or every linear layer but the head. */
  readonly targets:
    | { readonly kind: 'suffixes'; readonly names: readonly string[] }
    | { readonly kind: 'pattern'; readonly pattern: string }
    | { readonly kind: 'all-linear' }
  /** Pattern → rank or alpha, in file order: the first that matches counts. */
  readonly rankPattern: ReadonlyMap<string, number>
  readonly alphaPattern: ReadonlyMap<string, number>
  readonly layers?: readonly number[]
  readonly excluded: readonly string[]
}

/** Fields that say nothing about what the adapter computes. */
const HARMLESS = new Set([
  'auto_mapping',
  'base_model_name_or_path',
  'revision',
  'task_type',
  'inference_mode',
  'lora_dropout',
  'init_lora_weights',
  'loftq_config',
  'eva_config',
  'corda_config',
  'megatron_config',
  'megatron_core',
  'peft_version',
  'runtime_config',
  'layers_pattern',
  'ensure_weight_tying',
  'lora_ga_config',
]) // prettier-ignore

/** Fields that must have this value (or be absent): anything else is a feature that is not there. */
const REFUSED: Readonly<Record<string, readonly JsonValue[]>> = {
  use_dora: [false, null],
  bias: ['none'],
  lora_bias: [false, null],
  fan_in_fan_out: [false, null],
  modules_to_save: [null],
  layer_replication: [null],
  trainable_token_indices: [null],
  target_parameters: [null],
  use_qalora: [false, null],
  alora_invocation_tokens: [null],
  arrow_config: [null],
  use_bdlora: [false, null],
}

const READ = new Set([
  'peft_type',
  'r',
  'lora_alpha',
  'use_rslora',
  'target_modules',
  'rank_pattern',
  'alpha_pattern',
  'layers_to_transform',
  'exclude_modules',
  'qalora_group_size',
])

function invalid(where: string, what: string, expected: unknown, got: unknown): never {
  throw new ModelFormatError('ADAPTER_INVALID', {
    what,
    where,
    expected,
    got: typeof got === 'object' ? JSON.stringify(got) : got,
  })
}

function unsupported(where: string, field: string, got: JsonValue): never {
  throw new ModelFormatError('ADAPTER_UNSUPPORTED', {
    what: `adapter uses ${field}, which is not implemented`,
    where,
    got: JSON.stringify(got),
    remedy: 'Merge the adapter into its base with the tool that made it, or wait for a release that supports it.',
    details: { field },
  })
}

/** Throws ADAPTER_INVALID, ADAPTER_UNSUPPORTED. */
export function parseLoraConfig(json: JsonObject, where: string): LoraConfig {
  const type = own(json, 'peft_type')
  if (type !== 'LORA')
    throw new ModelFormatError('ADAPTER_UNSUPPORTED', {
      what: 'adapter is not a LoRA',
      where,
      expected: 'LORA',
      got: String(type),
    })
  for (const [field, value] of Object.entries(json)) {
    if (HARMLESS.has(field) || READ.has(field)) continue
    const allowed = Object.hasOwn(REFUSED, field) ? REFUSED[field] : undefined
    if (allowed === undefined) {
      // A field of a newer PEFT: harmless while it is off, unknown when it is on.
      if (value === null || value === false || isEmpty(value)) continue
      unsupported(where, field, value)
    }
    if (!allowed.includes(value) && !isEmpty(value)) unsupported(where, field, value)
  }
  const rank = own(json, 'r')
  if (!Number.isInteger(rank) || (rank as number) < 1 || (rank as number) > 65536)
    invalid(`${where}: r`, 'rank is not a positive whole number', '1 … 65536', rank)
  const alpha = own(json, 'lora_alpha')
  if (typeof alpha !== 'number') invalid(`${where}: lora_alpha`, 'alpha is not a number', 'a number', alpha)
  const rslora = own(json, 'use_rslora') ?? false
  if (typeof rslora !== 'boolean') invalid(`${where}: use_rslora`, 'flag is not a boolean', 'true or false', rslora)
  const layers = own(json, 'layers_to_transform') ?? null
  const layerList = typeof layers === 'number' ? [layers] : layers
  if (layerList !== null && !(Array.isArray(layerList) && layerList.every((n) => Number.isInteger(n))))
    invalid(`${where}: layers_to_transform`, 'layers are not a list of numbers', 'a list', layers)
  return {
    rank: rank as number,
    alpha,
    rankStabilized: rslora,
    targets: parseTargets(own(json, 'target_modules') ?? null, where),
    rankPattern: parsePattern(own(json, 'rank_pattern'), `${where}: rank_pattern`, true),
    alphaPattern: parsePattern(own(json, 'alpha_pattern'), `${where}: alpha_pattern`, false),
    ...(layerList === null ? {} : { layers: layerList as number[] }),
    excluded: parseNames(own(json, 'exclude_modules') ?? [], `${where}: exclude_modules`),
  }
}

function isEmpty(value: JsonValue): boolean {
  return (Array.isArray(value) && value.length === 0) || (isJsonObject(value) && Object.keys(value).length === 0)
}

function parseNames(value: JsonValue, where: string): string[] {
  if (typeof value === 'string') return [value]
  if (Array.isArray(value) && value.every((v) => typeof v === 'string')) return value as string[]
  return invalid(where, 'module names are not strings', 'a list of names', value)
}

function parseTargets(value: JsonValue, where: string): LoraConfig['targets'] {
  if (value === 'all-linear') return { kind: 'all-linear' }
  if (typeof value === 'string') return { kind: 'pattern', pattern: value }
  if (Array.isArray(value) && value.length > 0)
    return { kind: 'suffixes', names: parseNames(value, `${where}: target_modules`) }
  return invalid(
    `${where}: target_modules`,
    'adapter does not say which modules it targets',
    'names, a pattern or all-linear',
    value,
  )
}

/** Each is tried on each module until one matches. Real files have a handful; one for every module of a large model is thousands. */
const MAX_PATTERNS = 10_000

function parsePattern(value: JsonValue | undefined, where: string, whole: boolean): Map<string, number> {
  const map = new Map<string, number>()
  if (value === undefined || value === null) return map
  if (!isJsonObject(value)) invalid(where, 'patterns are not an object', 'pattern → number', value)
  const patterns = Object.entries(value)
  if (patterns.length > MAX_PATTERNS) invalid(where, 'too many patterns', `≤ ${MAX_PATTERNS}`, patterns.length)
  for (const [pattern, n] of patterns) {
    if (typeof n !== 'number' || (whole && !(Number.isInteger(n) && n > 0)))
      invalid(`${where}: ${pattern}`, 'pattern has no usable number', whole ? 'a positive whole number' : 'a number', n)
    map.set(pattern, n)
  }
  return map
}

/** Rank and scale of one module (name without ".weight"), as PEFT computes them. */
export function scaleOf(config: LoraConfig, module: string): { rank: number; scale: number } {
  const rank = lookup(config.rankPattern, module) ?? config.rank
  const alpha = lookup(config.alphaPattern, module) ?? config.alpha
  return { rank, scale: alpha / (config.rankStabilized ? Math.sqrt(rank) : rank) }
}

/** PEFT's get_pattern_key: the first key that matches the end of the module name at a dot. */
function lookup(patterns: ReadonlyMap<string, number>, module: string): number | undefined {
  for (const [key, n] of patterns) {
    if (/^[\w.]+$/.test(key)) {
      if (endsWithName(module, key)) return n
      continue
    }
    if (matchesPattern(key.startsWith('^') ? `${key.slice(1)}` : `(?:.*\\.)?(?:${key})`, module)) return n
  }
  return undefined
}

/** What `(.*\.)?(name)` matches for a name of letters and dots, which stand for any character: nearly all patterns, a thousand times sooner. */
function endsWithName(module: string, name: string): boolean {
  const from = module.length - name.length
  if (from < 0 || (from > 0 && module[from - 1] !== '.')) return false
  for (let i = 0; i < name.length; i++) if (name[i] !== '.' && name[i] !== module[from + i]) return false
  return true
}

/** Whether the configuration targets a linear module of the base. `head` is the output head's module, which all-linear leaves out. */
export function isTargeted(config: LoraConfig, module: string, head: string): boolean {
  const ends = (names: readonly string[]) => names.some((n) => module === n || module.endsWith(`.${n}`))
  if (ends(config.excluded)) return false
  if (config.layers !== undefined) {
    const layer = /\.(?:layers|h|blocks?)\.(\d+)\./.exec(module)
    if (layer !== null && !config.layers.includes(Number(layer[1]))) return false
  }
  switch (config.targets.kind) {
    case 'all-linear':
      return module !== head
    case 'suffixes':
      return ends(config.targets.names)
    case 'pattern':
      return matchesPattern(config.targets.pattern, module)
  }
}
