// Adapters as PEFT writes them, made of seeded numbers; and models that have them merged into their weights, as other tools would do it.
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import type { Model } from '#sluice/api/model.js'

type Dtype = 'F32' | 'F16' | 'BF16'

export interface Module {
  /** Name without ".weight". */
  name: string
  /** [out, in] */
  shape: readonly [number, number]
}

export interface Pair extends Module {
  rank: number
  /** float32 [rank, in] and [out, rank]; every value fits into bfloat16 and float16. */
  A: Float32Array
  B: Float32Array
}

/** Linear modules whose name matches, of a model that can be run. */
export function modulesOf(model: Model, pattern: RegExp): Module[] {
  const { graph } = model.architecture()
  const shapes = new Map(graph.weights.map((w) => [w.name, w.shape]))
  const names = graph.nodes.filter((n) => n.op === 'Linear' || n.op === 'MoE').flatMap((n) => n.weights)
  return [...new Set(names)]
    .map((n) => ({ name: n.replace(/\.weight$/, ''), shape: shapes.get(n) as [number, number] }))
    .filter((m) => pattern.test(m.name))
}

/** Multiples of 2^-9 from -31 to 31 of them: five bits of mantissa. */
export function randomPairs(modules: readonly Module[], rank: number, random: (n: number) => number): Pair[] {
  const values = (n: number) => Float32Array.from({ length: n }, () => (random(63) - 31) / 512)
  return modules.map((m) => ({ ...m, rank, A: values(rank * m.shape[1]), B: values(m.shape[0] * rank) }))
}

function encode(values: Float32Array, dtype: Dtype): Uint8Array {
  if (dtype === 'F32') return new Uint8Array(values.buffer, values.byteOffset, values.byteLength)
  const bits = new Uint32Array(values.slice().buffer)
  if (dtype === 'BF16') return new Uint8Array(Uint16Array.from(bits, (b) => b >>> 16).buffer)
  // float16: these values are normal and exact, or zero.
  return new Uint8Array(
    Uint16Array.from(bits, (b) => {
      if ((b & 0x7fffffff) === 0) return b >>> 16
      return ((b >>> 16) & 0x8000) | ((((b >>> 23) & 0xff) - 112) << 10) | ((b >>> 13) & 0x3ff)
    }).buffer,
  )
}

export function writeSafetensors(
  path: string,
  tensors: ReadonlyMap<string, { dtype: Dtype; shape: readonly number[]; values: Float32Array }>,
): void {
  const header: Record<string, unknown> = {}
  const chunks: Uint8Array[] = []
  let at = 0
  for (const [name, t] of tensors) {
    const bytes = encode(t.values, t.dtype)
    header[name] = { dtype: t.dtype, shape: t.shape, data_offsets: [at, at + bytes.length] }
    chunks.push(bytes)
    at += bytes.length
  }
  const json = Buffer.from(JSON.stringify(header))
  const length = Buffer.alloc(8)
  length.writeBigUInt64LE(BigInt(json.length))
  writeFileSync(path, Buffer.concat([length, json, ...chunks]))
}

/** Writes a PEFT directory. `names` makes tensor names of a module's. */
export function writeAdapter(
  dir: string,
  pairs: readonly Pair[],
  config: Record<string, unknown>,
  options: { dtype?: Dtype; name?: (module: string, side: 'A' | 'B') => string } = {},
): string {
  const { dtype = 'F32', name = (m, s) => `base_model.model.${m}.lora_${s}.weight` } = options
  mkdirSync(dir, { recursive: true })
  const tensors = new Map(
    pairs.flatMap((p) => [
      [name(p.name, 'A'), { dtype, shape: [p.rank, p.shape[1]], values: p.A }] as const,
      [name(p.name, 'B'), { dtype, shape: [p.shape[0], p.rank], values: p.B }] as const,
    ]),
  )
  writeSafetensors(join(dir, 'adapter_model.safetensors'), tensors)
  writeFileSync(join(dir, 'adapter_config.json'), JSON.stringify({ peft_type: 'LORA', bias: 'none', ...config }))
  return dir
}

/** The model as a float32 checkpoint with Σ scale·B·A added, in float64, to its (dequantized) weights. */
export async function writeMerged(
  dir: string,
  model: Model,
  added: readonly { pair: Pair; scale: number }[],
): Promise<string> {
  mkdirSync(dir, { recursive: true })
  const { names, graph } = model.architecture()
  const tensors = new Map<string, { dtype: Dtype; shape: readonly number[]; values: Float32Array }>()
  for (const w of graph.weights) {
    const values = Float32Array.from((await model.tensor(names.get(w.name)!).astype('float32')) as Float32Array)
    for (const { pair, scale } of added) {
      if (`${pair.name}.weight` !== w.name) continue
      const [rows, cols] = pair.shape
      for (let r = 0; r < rows; r++)
        for (let c = 0; c < cols; c++) {
          let sum = 0
          for (let k = 0; k < pair.rank; k++) sum += pair.B[r * pair.rank + k]! * pair.A[k * cols + c]!
          values[r * cols + c]! += scale * sum
        }
    }
    tensors.set(w.name, { dtype: 'F32', shape: w.shape, values })
  }
  writeSafetensors(join(dir, 'model.safetensors'), tensors)
  writeFileSync(join(dir, 'config.json'), JSON.stringify({ ...model.reader.config, torch_dtype: 'float32' }))
  return dir
}

export function readJson(path: string): Record<string, unknown> {
  return JSON.parse(readFileSync(path, 'utf8')) as Record<string, unknown>
}
