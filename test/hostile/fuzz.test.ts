// Changed files of every format, opened, read, planned and run: each ends in success or in a typed error, soon, in bounded memory.
//
//   SLUICE_FUZZ_SECONDS=600 SLUICE_FUZZ_SEED=1 npx vitest run test/hostile/fuzz.test.ts
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { open } from '#sluice/api/model.js'
import { isSluiceError } from '#sluice/base/errors.js'
import { parseJsonObject } from '#sluice/base/json.js'
import { convertToWia } from '#sluice/convert/convert.js'
import { compile } from '#sluice/graph/compile.js'
import { readGraph } from '#sluice/graph/read.js'
import { gguf } from '../format/gguf/build.ts'
import { dice, SIZE, safetensors, scratch, weights, writeAdapter, writeModel } from './models.ts'
import { mutate, mutateJson } from './mutate.ts'

const SECONDS = Number(process.env.SLUICE_FUZZ_SECONDS ?? 6)
const SEED = Number(process.env.SLUICE_FUZZ_SEED ?? 1)
/** One case, everything included; the machine may be busy. */
const CASE_MS = 10_000
/** Growth of resident memory over the whole run: heaps, mappings and arenas settle well below. */
const GROWTH_BYTES = 768 * 1024 * 1024

interface Target {
  readonly name: string
  /** The file that is changed. */
  readonly file: string
  readonly json: boolean
  run(): Promise<void>
}

/** Everything a command line would do with a model, within 256 MiB. */
async function useModel(path: string, run: boolean, adapter?: string): Promise<void> {
  const model = await open(path)
  try {
    let first: unknown
    const attempt = async (work: () => Promise<unknown> | unknown) => {
      try {
        await work()
      } catch (err) {
        if (!isSluiceError(err) || err.code === 'INTERNAL' || err.code === 'WORKER_FAILED') throw err
        first ??= err
      }
    }
    for (const name of model.tensorNames.slice(0, 3))
      await attempt(async () => {
        const lazy = model.tensor(name)
        if (lazy.entry.byteLength < 2 ** 20) await lazy.astype('float32')
      })
    await attempt(async () => {
      const tokenizer = await model.tokenizer()
      const ids = tokenizer?.encode('the in an <s> x')
      if (ids !== undefined) tokenizer!.decode(ids.filter((id) => id < tokenizer!.vocabularySize))
    })
    await attempt(async () => {
      const adapters = []
      if (adapter !== undefined) {
        const a = await model.adapter(adapter)
        adapters.push({ name: a.name, scale: 1, reader: a.reader, pairs: a.pairs })
      }
      try {
        await model.plan({ memory: 256 * 2 ** 20 + process.memoryUsage().rss, threads: 1, adapters })
        if (!run) return
        const engine = await model.engine({ memory: 256 * 2 ** 20 + process.memoryUsage().rss, threads: 1, adapters })
        try {
          await engine.createSequence().forward([1, 2, 3], { logits: 'last' })
        } finally {
          await engine.close()
        }
      } finally {
        for (const a of adapters) await a.reader.close()
      }
    })
    if (first !== undefined) throw first
  } finally {
    await model.close()
  }
}

const root = scratch()

function ggufModel(): Uint8Array {
  const llama: [string, number, unknown][] = [
    ['general.architecture', 8, 'llama'],
    ['llama.block_count', 4, 1],
    ['llama.embedding_length', 4, SIZE.hidden],
    ['llama.feed_forward_length', 4, SIZE.inner],
    ['llama.attention.head_count', 4, SIZE.heads],
    ['llama.attention.head_count_kv', 4, SIZE.kvHeads],
    ['llama.attention.layer_norm_rms_epsilon', 6, 1e-5],
    ['llama.context_length', 4, SIZE.context],
    ['llama.vocab_size', 4, SIZE.vocabulary],
    ['tokenizer.ggml.model', 8, 'no_vocab'],
  ]
  const names: Record<string, string> = {
    'model.embed_tokens.weight': 'token_embd.weight',
    'model.norm.weight': 'output_norm.weight',
    'lm_head.weight': 'output.weight',
    'model.layers.0.input_layernorm.weight': 'blk.0.attn_norm.weight',
    'model.layers.0.self_attn.q_proj.weight': 'blk.0.attn_q.weight',
    'model.layers.0.self_attn.k_proj.weight': 'blk.0.attn_k.weight',
    'model.layers.0.self_attn.v_proj.weight': 'blk.0.attn_v.weight',
    'model.layers.0.self_attn.o_proj.weight': 'blk.0.attn_output.weight',
    'model.layers.0.post_attention_layernorm.weight': 'blk.0.ffn_norm.weight',
    'model.layers.0.mlp.gate_proj.weight': 'blk.0.ffn_gate.weight',
    'model.layers.0.mlp.up_proj.weight': 'blk.0.ffn_up.weight',
    'model.layers.0.mlp.down_proj.weight': 'blk.0.ffn_down.weight',
  }
  const tensors = [...weights()].flatMap(([name, { shape, data }]) => {
    const renamed = names[name]
    const bytes = new Uint8Array(data.buffer)
    return renamed === undefined ? [] : [{ name: renamed, ne: [...shape].reverse(), type: 0, bytes }]
  })
  return gguf(llama, tensors)
}

async function targets(): Promise<Target[]> {
  const model = writeModel(join(root, 'model'), { files: { 'generation_config.json': '{"eos_token_id":[1]}' } })
  const adapter = writeAdapter(join(root, 'adapter'))
  const split = writeModel(join(root, 'split'))
  const halves = [...weights()]
  writeFileSync(join(split, 'a.safetensors'), safetensors(new Map(halves.slice(0, 8))))
  writeFileSync(join(split, 'b.safetensors'), safetensors(new Map(halves.slice(8))))
  const index = join(split, 'x.safetensors.index.json')
  const map = halves.map(([name], i) => [name, i < 8 ? 'a.safetensors' : 'b.safetensors'])
  writeFileSync(index, JSON.stringify({ metadata: { total_size: 1 }, weight_map: Object.fromEntries(map) }))
  const pack = join(root, 'model.wia')
  const source = await open(model)
  await convertToWia(source.reader, source.architecture(), pack, { quantization: 'int8' })
  await source.close()
  const file = join(root, 'model.gguf')
  writeFileSync(file, ggufModel())
  const graph = join(root, 'graph.json')
  writeFileSync(graph, readFileSync(join(pack, 'architecture.json')))

  let n = 0
  const modelTarget = (name: string, path: string, changed: string, json: boolean, lora?: string): Target => ({
    name,
    file: changed,
    json,
    run: () => useModel(path, n++ % 8 === 0, lora),
  })
  return [
    modelTarget('safetensors', model, join(model, 'model.safetensors'), false),
    modelTarget('config.json', model, join(model, 'config.json'), true),
    modelTarget('tokenizer.json', model, join(model, 'tokenizer.json'), true),
    modelTarget('generation_config.json', model, join(model, 'generation_config.json'), true),
    modelTarget('index', index, index, true),
    modelTarget('gguf', file, file, false),
    modelTarget('manifest.json', pack, join(pack, 'manifest.json'), true),
    modelTarget('pages', pack, join(pack, 'weights', 'pages.sha256'), false),
    modelTarget('package weights', pack, join(pack, 'weights', 'model-00000.bin'), false),
    modelTarget('adapter_config.json', model, join(adapter, 'adapter_config.json'), true, adapter),
    modelTarget('adapter_model.safetensors', model, join(adapter, 'adapter_model.safetensors'), false, adapter),
    {
      name: 'architecture.json',
      file: graph,
      json: true,
      run: async () => {
        compile(readGraph(parseJsonObject(readFileSync(graph), { where: graph })).graph)
      },
    },
  ]
}

/** What a run ended with, without its numbers and names: two cases of the same kind are not both kept. */
async function outcome(target: Target): Promise<string> {
  try {
    await target.run()
    return 'ok'
  } catch (err) {
    if (isSluiceError(err) && err.code !== 'INTERNAL' && err.code !== 'WORKER_FAILED')
      return `${err.code} ${err.message.split('(')[0]!.replace(/\d+/g, '#').slice(0, 80)}`
    throw err
  }
}

describe('changed files', () => {
  it(
    'end in success or a typed error, within time and memory',
    async () => {
      const list = await targets()
      const originals = new Map<string, Uint8Array>(list.map((t) => [t.name, new Uint8Array(readFileSync(t.file))]))
      for (const t of list) expect(await outcome(t), t.name).toBe('ok')
      // The corpus of a target: its original and every change that ended in a new way.
      const corpus = new Map(list.map((t) => [t.name, [originals.get(t.name)!]]))
      const seen = new Set<string>()
      const failures: string[] = []
      const roll = dice(SEED)
      const note = join(root, 'case.txt')
      const end = performance.now() + SECONDS * 1000
      let rss = 0
      let cases = 0
      while (performance.now() < end && failures.length < 20) {
        const target = list[cases % list.length]!
        const seed = roll(2 ** 31)
        const kept = corpus.get(target.name)!
        const base = kept[roll(kept.length)]!
        let bytes: Uint8Array
        try {
          bytes =
            target.json && roll(4) > 0
              ? new TextEncoder().encode(mutateJson(new TextDecoder().decode(base), seed))
              : mutate(base, seed, kept[roll(kept.length)]!)
        } catch {
          bytes = mutate(base, seed) // a kept case that is no JSON any more
        }
        writeFileSync(target.file, bytes)
        writeFileSync(note, `${target.name} seed ${SEED} case ${cases}`)
        const started = performance.now()
        try {
          const signature = `${target.name}: ${await outcome(target)}`
          if (!seen.has(signature)) {
            seen.add(signature)
            kept.push(bytes)
          }
        } catch (err) {
          failures.push(`${target.name}, case ${cases}: ${(err as Error).stack ?? err}`)
          if (process.env.SLUICE_FUZZ_KEEP)
            writeFileSync(join(process.env.SLUICE_FUZZ_KEEP, `${target.name.replace(/\W/g, '_')}-${cases}`), bytes)
        }
        const ms = performance.now() - started
        if (ms > CASE_MS) failures.push(`${target.name}, case ${cases}: took ${ms.toFixed(0)} ms`)
        writeFileSync(target.file, originals.get(target.name)!)
        if (++cases === 60) rss = process.memoryUsage().rss
      }
      const grown = process.memoryUsage().rss - rss
      if (process.env.SLUICE_FUZZ_SECONDS)
        console.log(`${cases} cases, ${seen.size} endings, ${(grown / 2 ** 20).toFixed(0)} MiB more`)
      if (process.env.SLUICE_FUZZ_VERBOSE) console.log([...seen].sort().join('\n'))
      expect(failures).toEqual([])
      expect(cases).toBeGreaterThan(20)
      expect(seen.size).toBeGreaterThan(10)
      if (rss > 0) expect(grown).toBeLessThan(GROWTH_BYTES)
    },
    SECONDS * 1000 + 60_000,
  )
})
